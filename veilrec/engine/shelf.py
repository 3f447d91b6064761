"""A shelf: what devices keep, a file for each, where all of it together is too much for memory.

A file holds first what has one shape on all devices. Where rows of item tables are kept, their number and
the rows of each table follow: such files have different lengths.

A file is written once; a device that has learned gets a new one. So a link to a file is a copy of it, and a
snapshot of all devices costs a name each. Files are read and written, never mapped: the pages of a mapping
count as memory of the process.
"""

from __future__ import annotations

import errno
import os
import shutil
import weakref
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import RawIOBase
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from veilrec.base.files import digest, sync_file, sync_folder
from veilrec.base.params import KEPT, ROW, Params
from veilrec.base.scratch import Scratch
from veilrec.engine.heap import padded
from veilrec.errors import BadInput, Corrupted

__all__ = ["Field", "Shelf", "layout"]

COUNTED = 8  # bytes of a count of rows
NO_LINKS = {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.ENOSYS}


class Field(NamedTuple):
    """A field: one name that a device keeps, and where it begins in the device's file.

    Of rows, the shape is that of one, and `at` is where they would begin behind the count if there were one.
    """

    dtype: torch.dtype
    shape: tuple[int, ...]
    at: int
    ragged: bool = False

    @property
    def bytes(self) -> int:
        """The bytes of one device's values, or of one row's."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize


class Shelf:
    """Files of devices, by their number.

    Args:
        fields: What each file holds, from `layout`.
        folder: Where they lie.
        owner: What the folder goes with.
    """

    def __init__(self, fields: Mapping[str, Field], folder: Path, owner: Scratch | None = None) -> None:
        self.fields, self.folder = dict(fields), folder
        self.end = sum(field.bytes for field in fields.values() if not field.ragged)  # then rows, if any
        self._owner = owner
        self._sums: dict[int, bytes] = {}  # of files that were hashed
        self._unsure: set[int] = set()  # whose files may not be on the disk yet

    @classmethod
    def new(cls, fields: Mapping[str, Field], folder: Path | None = None) -> Shelf:
        """An empty one in a folder, whatever was there, or in a temporary one that goes with the object."""
        owner = Scratch() if folder is None else None
        shelf = cls(fields, owner.folder / "devices" if owner else folder, owner)  # type: ignore[arg-type]
        shelf.clear()
        return shelf

    def read(self, clients: Sequence[int], names: Collection[str]) -> Params:
        """Name → ``[c, …]`` on the CPU; of what is kept row by row, ``[c, r, …]``."""
        fields = {name: self.fields[name] for name in names}
        whole = {n: field for n, field in fields.items() if not field.ragged}
        found = {n: torch.empty((len(clients), *f.shape), dtype=f.dtype) for n, f in whole.items()}
        stacks = [(field.at, _bytes(found[name])) for name, field in whole.items()]
        ragged = {n: field for n, field in fields.items() if field.ragged}
        rows = {n: [torch.empty((0, *field.shape), dtype=field.dtype)] for n, field in ragged.items()}
        counts = torch.zeros(len(clients), dtype=torch.int64)
        for place, client in enumerate(clients):
            with self._reading(client), self.path(client).open("rb", buffering=0) as file:
                for at, stack in stacks:
                    _fill(file, at, stack[place])
                count = self._count(file) if ragged else 0
                for name, field in ragged.items():
                    rows[name].append(self._rows(file, field, count))
                counts[place] = count
        wide = padded(counts, {name: torch.cat(some) for name, some in rows.items()})
        return {name: wide[name] if name in wide else found[name] for name in names}

    def _rows(self, file: RawIOBase, field: Field, count: int) -> Tensor:
        some = torch.empty((count, *field.shape), dtype=field.dtype)
        _fill(file, self.end + COUNTED + count * field.at, _bytes(some).reshape(-1))
        return some

    def counts(self, clients: Sequence[int]) -> Tensor:
        """``[c]`` how many rows of its own tables each device keeps."""
        found = torch.zeros(len(clients), dtype=torch.int64)
        for place, client in enumerate(clients if ROW in self.fields else ()):
            with self._reading(client), self.path(client).open("rb", buffering=0) as file:
                found[place] = self._count(file)
        return found

    def _count(self, file: RawIOBase) -> int:
        count = np.empty(1, dtype="<i8")
        _fill(file, self.end, count)
        return int(count[0])

    def write(self, clients: Sequence[int], values: Params) -> None:
        """Give devices new files: name → ``[c, …]``, exactly the names of `fields`."""
        if {name: (f.dtype, f.shape, f.ragged) for name, f in layout(values).items()} != self._kinds():
            raise ValueError("devices keep other things than they began with")
        stacks = {name: values[name].detach().cpu().contiguous() for name in self.fields}
        whole = [_bytes(stacks[name]) for name, field in self.fields.items() if not field.ragged]
        ragged = [_by_row(stacks[name]) for name, field in self.fields.items() if field.ragged]
        counts = (stacks[ROW] >= 0).sum(1).tolist() if ragged else [0] * len(clients)
        for place, client in enumerate(clients):
            path = self.path(client)
            self._sums.pop(client, None)
            self._unsure.add(client)
            with self._writing():
                path.unlink(missing_ok=True)  # not overwritten: a snapshot may hold it
                with open(path, "xb", opener=_for_owner) as file:
                    for row in whole:
                        file.write(row[place])
                    if ragged:
                        file.write(np.array(counts[place], dtype="<i8").tobytes())
                    for rows in ragged:
                        file.write(rows[place, : counts[place]].data)

    def snapshot(self, folder: Path, clients: Sequence[int]) -> None:
        """The files once more in a new folder, brought to the disk."""
        with self._writing():
            _emptied(folder)
            for client in clients:
                linked = _link(self.path(client), folder / self.path(client).name)
                if not linked or client in self._unsure:
                    sync_file(folder / self.path(client).name)
            sync_folder(folder)
        self._unsure.difference_update(clients)

    def take(self, folder: Path, clients: Sequence[int], sums: Tensor | None = None) -> None:
        """The files of a folder in the place of all there are; `sums [c, 32]` as `digests` gave them."""
        self.clear()
        with self._writing():
            for client in clients:
                _link(folder / self.path(client).name, self.path(client))
        if sums is None:
            self._unsure = set(clients)
        else:
            self._sums = {client: bytes(row) for client, row in zip(clients, sums.tolist(), strict=True)}

    def digests(self, clients: Sequence[int]) -> Tensor:
        """``[c, 32]`` checksums, worked out where a file is new."""
        for client in clients:
            if client not in self._sums:
                with self._reading(client):
                    self._sums[client] = bytes.fromhex(digest(self.path(client)).sha256)
        sums = np.frombuffer(b"".join(self._sums[client] for client in clients), dtype=np.uint8)
        return torch.from_numpy(sums.reshape(len(clients), 32).copy())

    def twin(self, clients: Sequence[int]) -> Shelf:
        """The same files, independent of what happens next; they go with the object."""
        number = 1
        while (folder := self.folder.with_name(f"{self.folder.name}-{number}")).exists():
            number += 1
        twin = Shelf(self.fields, folder, self._owner)  # beside this one, where links reach
        twin.take(self.folder, clients)
        weakref.finalize(twin, shutil.rmtree, folder, ignore_errors=True)  # it may have gone with the owner
        return twin

    def clear(self) -> None:
        """Remove all files."""
        with self._writing():
            _emptied(self.folder)
        self._sums, self._unsure = {}, set()

    def path(self, client: int) -> Path:
        """A device's file."""
        return self.folder / f"{client:08}"

    def _kinds(self) -> dict[str, tuple[torch.dtype, tuple[int, ...], bool]]:
        return {name: (field.dtype, field.shape, field.ragged) for name, field in self.fields.items()}

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as cause:
            why = f"what devices keep cannot be written there ({cause.strerror or cause})"
            fix = 'make room, choose another folder (--out or TMPDIR), or set plan.keeps = "memory"'
            raise BadInput(self.folder, why, fix) from cause

    @contextmanager
    def _reading(self, client: int) -> Iterator[None]:
        try:
            yield
        except OSError as cause:
            what = f"cannot be read ({cause.strerror or cause}); continue from a checkpoint with --resume"
            raise Corrupted(f"{self.path(client)}: {what}") from cause


def layout(example: Params) -> dict[str, Field]:
    """The fields of a file that holds such values: name → ``[1, …]`` of one device."""
    fields: dict[str, Field] = {}
    ends = {False: 0, True: 0}
    for name, value in example.items():
        ragged = name.startswith(KEPT)
        fields[name] = Field(value.dtype, tuple(value.shape[2 if ragged else 1 :]), ends[ragged], ragged)
        ends[ragged] += fields[name].bytes
    return fields


def _fill(file: RawIOBase, at: int, buffer: np.ndarray) -> None:
    """Read what begins at a place of a file that is not buffered."""
    file.seek(at)
    if file.readinto(buffer.data) != buffer.nbytes:
        raise OSError(errno.EIO, "the file is too short")


def _bytes(stack: Tensor) -> np.ndarray:
    """``[c, bytes]`` of a contiguous tensor with the client axis first, in the same memory."""
    each = stack.numel() // max(1, len(stack))
    return stack.reshape(len(stack), each).view(torch.uint8).numpy()


def _by_row(stack: Tensor) -> np.ndarray:
    """``[c, r, bytes]`` of a contiguous tensor ``[c, r, …]``, in the same memory."""
    flat = _bytes(stack.flatten(0, 1))
    return flat.reshape(*stack.shape[:2], flat.shape[1])


def _for_owner(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _emptied(folder: Path) -> None:
    """An empty folder for its owner's eyes, whatever was there."""
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(mode=0o700, parents=True)


def _link(source: Path, target: Path) -> bool:
    """A second name for a file; a copy, and False, where the file system has no such thing."""
    try:
        os.link(source, target)
    except OSError as cause:
        if cause.errno not in NO_LINKS:
            raise
        shutil.copyfile(source, target)
        target.chmod(0o600)
        return False
    return True
