"""A shelf: what devices keep, a file for each, where all of it together is too much for memory.

A file holds first what has one shape on all devices. Where rows of item tables are kept, their number and
the rows of each table follow: such files have different lengths.

A file is written once; a device that has learned gets a new one. So a link to a file is a copy of it, and a
snapshot of all devices costs a name each. Files are read and written, never mapped: the pages of a mapping
count as memory of the process.
"""

from __future__ import annotations

import errno
import math
import os
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import RawIOBase
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from veilrec.base.files import digest, sync_file, sync_folder
from veilrec.base.params import KEPT, ROW, Params
from veilrec.base.scratch import Scratch
from veilrec.errors import BadInput, Corrupted

__all__ = ["COUNT", "Shelf", "beside", "layout"]

COUNT = f"{KEPT}count"  # beside rows that lie one after another: how many are each device's
NO_LINKS = {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.ENOSYS}


class Field(NamedTuple):
    """A field: one name that a device keeps, and where it begins in the device's file.

    Of what is kept row by row, the shape is that of one row, and `at` is where rows would begin, behind all
    else, if there were one.
    """

    dtype: torch.dtype
    shape: tuple[int, ...]
    at: int
    by_row: bool

    @property
    def bytes(self) -> int:
        """The bytes of one device's values, or of one row's."""
        return math.prod(self.shape) * self.dtype.itemsize


class Shelf:
    """Files of devices, by their number.

    Args:
        example: What a device keeps: name → ``[1, …]``.
        folder: Where they lie; None for a temporary folder that goes with the object.
    """

    def __init__(self, example: Params, folder: Path | None = None) -> None:
        self._scratch = Scratch() if folder is None else None
        self.folder = folder or self._scratch.folder / "devices"  # type: ignore[union-attr]
        self.fields = layout(example)
        self._end = sum(field.bytes for field in self.fields.values() if not field.by_row)
        self._sums: dict[int, bytes] = {}  # of files that were hashed

    def read(self, clients: Sequence[int], names: Collection[str] | None = None) -> Params:
        """Read what devices keep, all or what is named: ``[c, …]`` on the CPU; of rows, ``[c, r, …]``."""
        chosen = [name for name in self.fields if name != COUNT] if names is None else names
        rows: dict[str, list[Tensor]] = {name: [] for name in chosen if self.fields[name].by_row}
        whole = {
            name: torch.empty(len(clients), *self.fields[name].shape, dtype=self.fields[name].dtype)
            for name in [*chosen, *([COUNT] if rows else [])]
            if name not in rows
        }
        stacks = [(self.fields[name].at, _bytes(value)) for name, value in whole.items()]
        for place, client in enumerate(clients):
            with self._reading(client) as file:
                for at, stack in stacks:
                    _fill(file, at, stack[place])
                for name, some in rows.items():
                    some.append(self._rows(file, self.fields[name], int(whole[COUNT][place])))
        return {name: beside(name, rows[name]) if name in rows else whole[name] for name in chosen}

    def _rows(self, file: RawIOBase, field: Field, count: int) -> Tensor:
        some = torch.empty(count, *field.shape, dtype=field.dtype)
        _fill(file, self._end + count * field.at, _bytes(some, 0))
        return some

    def write(self, clients: Sequence[int], values: Params) -> None:
        """Give devices new files: name → ``[c, …]``, what they began with and nothing else."""
        if _kinds(layout(values)) != _kinds(self.fields):
            raise ValueError("devices keep other things than they began with")
        count = (values[ROW] >= 0).sum(1) if ROW in values else torch.zeros(len(clients))
        here = {**values, COUNT: count}
        stacks = {n: _bytes(here[n].detach().cpu(), 1 + field.by_row) for n, field in self.fields.items()}
        for place, (client, rows) in enumerate(zip(clients, count.int().tolist(), strict=True)):
            path = self.path(client)
            self._sums.pop(client, None)
            with self._writing():
                path.unlink(missing_ok=True)  # not overwritten: a snapshot may hold it
                with open(path, "xb", opener=_for_owner) as file:
                    for name, stack in stacks.items():
                        mine = stack[place, :rows] if self.fields[name].by_row else stack[place]
                        file.write(mine.data)

    def snapshot(self, folder: Path, clients: Sequence[int]) -> None:
        """The files once more in a new folder, brought to the disk."""
        with self._writing():
            _emptied(folder)
            for client in clients:
                _link(self.path(client), folder / self.path(client).name)
                sync_file(folder / self.path(client).name)
            sync_folder(folder)

    def take(self, folder: Path, clients: Sequence[int], sums: Tensor) -> None:
        """The files of a folder in the place of all there are; `sums [c, 32]` as `sums` gave them."""
        self.clear()
        with self._writing():
            for client in clients:
                _link(folder / self.path(client).name, self.path(client))
        self._sums = {client: bytes(row) for client, row in zip(clients, sums.tolist(), strict=True)}

    def sums(self, clients: Sequence[int]) -> Tensor:
        """``[c, 32]`` checksums, worked out where a file is new."""
        for client in clients:
            if client not in self._sums:
                with self._reading(client):
                    self._sums[client] = bytes.fromhex(digest(self.path(client)).sha256)
        found = [list(self._sums[client]) for client in clients]
        return torch.tensor(found, dtype=torch.uint8).reshape(len(clients), 32)

    def clear(self) -> None:
        """Remove all files, and make the folder where it is not there yet."""
        with self._writing():
            _emptied(self.folder)
        self._sums = {}

    def path(self, client: int) -> Path:
        """A device's file."""
        return self.folder / f"{client:08}"

    @contextmanager
    def _reading(self, client: int) -> Iterator[RawIOBase]:
        try:
            with self.path(client).open("rb", buffering=0) as file:
                yield file
        except OSError as cause:
            what = f"cannot be read ({cause.strerror or cause}); continue from a checkpoint with --resume"
            raise Corrupted(f"{self.path(client)}: {what}") from cause

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as cause:
            why = f"what devices keep cannot be written there ({cause.strerror or cause})"
            fix = 'make room, choose another folder (--out or TMPDIR), or set plan.keeps = "memory"'
            raise BadInput(self.folder, why, fix) from cause


def layout(example: Params) -> dict[str, Field]:
    """The fields of a file that holds such values, in their order: name → ``[1, …]`` of one device."""
    order = sorted(example, key=lambda name: name.startswith(KEPT))
    if ROW in example:
        order.insert(sum(not name.startswith(KEPT) for name in order), COUNT)
    fields, ends = dict[str, Field](), {False: 0, True: 0}
    for name in order:
        value = torch.zeros(1, dtype=torch.int64) if name == COUNT else example[name]
        by_row = name.startswith(KEPT) and name != COUNT
        fields[name] = Field(value.dtype, tuple(value.shape[1 + by_row :]), ends[by_row], by_row)
        ends[by_row] += fields[name].bytes
    return fields


def _kinds(fields: Mapping[str, Field]) -> dict[str, tuple[torch.dtype, tuple[int, ...]]]:
    return {name: (field.dtype, field.shape) for name, field in fields.items()}


def beside(name: str, values: Sequence[Tensor]) -> Tensor:
    """``[c, …]`` what several devices keep under a name; rows ``[r, …]`` are padded to ``[c, r, …]``.

    >>> beside(ROW, [torch.tensor([4, 7]), torch.tensor([5])])
    tensor([[ 4,  7],
            [ 5, -1]])
    """
    if not name.startswith(KEPT):
        return torch.stack(tuple(values))
    return pad_sequence(list(values), batch_first=True, padding_value=-1 if name == ROW else 0)


def _fill(file: RawIOBase, at: int, buffer: np.ndarray) -> None:
    """Read what begins at a place of a file that is not buffered."""
    file.seek(at)
    if file.readinto(buffer.data) != buffer.nbytes:
        raise OSError(errno.EIO, "the file is too short")


def _bytes(stack: Tensor, lead: int = 1) -> np.ndarray:
    """``[c, bytes]`` behind so many axes; those of a contiguous tensor are the same memory."""
    flat = stack.contiguous().reshape(*stack.shape[:lead], math.prod(stack.shape[lead:]))
    return flat.view(torch.uint8).numpy()


def _for_owner(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _emptied(folder: Path) -> None:
    """An empty folder for its owner's eyes, whatever was there."""
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(mode=0o700, parents=True)


def _link(source: Path, target: Path) -> None:
    """A second name for a file; a copy where the file system has no such thing."""
    try:
        os.link(source, target)
    except OSError as cause:
        if cause.errno not in NO_LINKS:
            raise
        shutil.copyfile(source, target)
        target.chmod(0o600)
