"""The recorder: writes down what the server sees, chunk by chunk, and keeps the last rounds of it."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from veilrec.base.files import Digest, read_json, sync_file, sync_folder, write_json, writing
from veilrec.base.limits.schema import Wrong, anything, listed, one_of, text, whole
from veilrec.base.params import Rows
from veilrec.base.plain import check_folder, made, opened
from veilrec.base.tensors import DTYPES, NAMES, Column, Reader, raw, write_columns
from veilrec.errors import Corrupted
from veilrec.wire.codec import Schema
from veilrec.wire.transcript import PROBE, Record, declaration, declared
from veilrec.wire.uploads import Exchange

__all__ = ["Recorder"]

INDEX = "index.json"  # written last: a round without it is not complete


class Recorder:
    """Writes exchanges down, chunk by chunk: a watch for `Federation.rounds`.

    Each round has a folder with one file of plain bytes per column. `finish` ends a round and drops those
    that are too old; `merge` puts the rounds that are left into one safetensors file. No cohort is ever held
    in memory, and neither losses nor anything else that stays on devices is written.
    """

    def __init__(self, folder: Path, record: Record, schema: Schema) -> None:
        self.folder, self.record = folder, record
        self._chosen, self._schema = record.chosen(schema), schema
        self._spool: _Spool | None = None
        self._loose: list[Path] = []  # rounds that are complete but perhaps not on the disk yet

    @property
    def reads(self) -> set[str]:
        """The names it reads of an upload: those that it will write down."""
        return self._chosen if self.record.last else set()

    def __call__(self, exchange: Exchange) -> None:
        """Write one chunk of one round down."""
        if not self.record.last:
            return
        self._schema = {**self._schema, **exchange.schema}
        self._spool = self._append(self._spool, exchange.round, exchange)

    def finish(self) -> None:
        """The round is over: close it, and drop the rounds before the last ones."""
        if self._spool is None:
            return
        self._spool.close()
        self._loose.append(self._spool.folder)
        kept = self.rounds()
        for folder in kept[: -self.record.last]:
            shutil.rmtree(folder)
        self._loose = [folder for folder in self._loose if folder in kept[-self.record.last :]]
        self._spool = None

    def take(self, transcript: Path) -> None:
        """Take over the rounds of training that another run has kept, all of them."""
        there = Reader(transcript)
        self._schema = {**self._schema, **declared(there.notes.get("schema", "{}"))}
        spools: dict[str, _Spool] = {}
        for key in there.names:
            place, name = key.split("/", 1)
            if place == f"r{PROBE:06}" or not self.record.last:
                continue
            if place not in spools:
                spools[place] = _Spool(self.folder / place)
            spools[place].append(name, there.get(key), grows=False)
        for spool in spools.values():
            spool.close()
            self._loose.append(spool.folder)

    def probe(self, exchanges: Iterable[Exchange]) -> None:
        """Write the probe down beside the rounds that are kept."""
        if not self.record.last:
            return
        spool: _Spool | None = None
        for exchange in exchanges:
            spool = self._append(spool, PROBE, exchange)
        if spool is not None:
            spool.close()

    def close(self) -> None:
        """Leave a round that will not be finished."""
        if self._spool is not None:
            self._spool.abandon()
            self._spool = None

    def sync(self) -> None:
        """Bring the rounds that are kept to the disk, before a checkpoint relies on them."""
        for folder in self._loose:
            for path in folder.iterdir():
                sync_file(path)
            sync_folder(folder)
        self._loose = []

    def rewind(self, round: int) -> None:
        """Forget what was written after a round."""
        for folder in self.rounds():
            if int(folder.name[1:]) > round or not (folder / INDEX).exists():
                shutil.rmtree(folder)

    def rounds(self) -> list[Path]:
        """The folders of the rounds, oldest first."""
        with writing(self.folder):
            check_folder(self.folder)
            found = sorted(self.folder.glob("r*")) if self.folder.is_dir() else []
            for folder in found:
                check_folder(folder)
        return [folder for folder in found if folder.name != f"r{PROBE:06}"]

    def merge(self, path: Path, round: int) -> Digest | None:
        """One file of the rounds up to the given one; None where nothing was to be kept.

        Raises:
            Corrupted: Where one of them is missing.
        """
        columns: dict[str, Column] = {}
        rounds = list(range(max(1, round - self.record.last + 1), round + 1))
        probed = (self.folder / f"r{PROBE:06}" / INDEX).exists()
        for number in [PROBE, *rounds] if probed else rounds:
            folder = self.folder / f"r{number:06}"
            if not (folder / INDEX).exists():
                raise Corrupted(f"{folder}: round {number} of the transcript is missing; run again")
            columns |= {f"{folder.name}/{name}": column for name, column in _columns(folder).items()}
        notes = {"schema": declaration(self._schema)}
        return write_columns(path, columns, secret=True, notes=notes) if columns else None

    def _append(self, spool: _Spool | None, round: int, exchange: Exchange) -> _Spool:
        """One more chunk of a round; the first one opens it."""
        if spool is None:
            spool = _Spool(self.folder / f"r{round:06}")
            for name, value in self._told(exchange.sent.all).items():
                spool.append(f"sent/{name}", value, grows=False)
        chosen = self._chosen & exchange.schema.keys()
        spool.take(exchange, chosen, self._told(exchange.sent.each), posts=self._wants("posts"))
        return spool

    def _wants(self, name: str) -> bool:
        return not self.record.parts or name in self.record.parts

    def _told(self, sent: dict[str, Tensor]) -> dict[str, Tensor]:
        """The part of what the server sent that is written down: names that only go down are left out."""
        return {
            n: v for n, v in sent.items() if n in self._chosen or (n not in self._schema and self._wants(n))
        }


class _Spool:
    """The columns of one round while it runs."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._clients = folder, 0
        self._files: dict[str, IO[bytes]] = {}
        self._index: dict[str, tuple[str, list[int], str]] = {}
        with writing(folder):
            made(folder.parent, 0o700)
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(mode=0o700)  # what people sent is nobody else's business

    def take(self, exchange: Exchange, chosen: set[str], each: dict[str, Tensor], *, posts: bool) -> None:
        received = exchange.received
        self.append("cohort", received.cohort)
        for name, letter in each.items():
            self.append(f"each/{name}", letter)
        for name in sorted(chosen):
            value = received.values[name]
            if isinstance(value, Rows):
                client, place = (value.row >= 0).nonzero(as_tuple=True)
                self.append(f"{name}/client", (client + self._clients).to(torch.int32))
                self.append(f"{name}/row", value.row[client, place].to(torch.int32))
                self.append(f"{name}/value", value.value[client, place])
            else:
                self.append(name, value)
        if posts and received.posts.values:
            self.append("posts/owner", received.posts.owner)
            for name, post in received.posts.values.items():
                self.append(f"posts/{name}", post)
        self._clients += len(received.cohort)

    def append(self, name: str, value: Tensor, *, grows: bool = True) -> None:
        """More of a column: along its first axis, or all of it at once."""
        path = self.folder / str(len(self._index))
        with writing(path):
            if name not in self._files:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
                self._files[name] = os.fdopen(opened(path, flags), "wb")
                shape = [0, *value.shape[1:]] if grows else list(value.shape)
                self._index[name] = (NAMES[value.dtype], shape, path.name)
            if grows:
                self._index[name][1][0] += len(value)
            self._files[name].write(raw(value))

    def close(self) -> None:
        for file in self._files.values():
            with writing(self.folder):
                file.close()
        write_json(self.folder / INDEX, self._index, secret=True, indent=None)

    def abandon(self) -> None:
        for file in self._files.values():
            with suppress(OSError):  # on a full disk not even the rest of a buffer gets out: nobody needs it
                file.close()


def _columns(folder: Path) -> dict[str, Column]:
    """The columns of a round that is complete.

    Raises:
        Corrupted: Where its index is not what `_Spool` wrote, or a column has another length.
    """
    told, found = read_json(folder / INDEX), dict[str, Column]()
    for name, entry in told.items():
        try:
            _check_entry(entry, name)
            column = Column(DTYPES[entry[0]], tuple(entry[1]), folder / entry[2])
            wanted = math.prod(column.shape) * column.dtype.itemsize
            if (bytes := os.lstat(column.path).st_size) != wanted:
                raise Wrong(name, f"has {bytes:,} bytes, not {wanted:,}")
        except (OSError, ValueError) as cause:
            raise Corrupted(f"{folder / INDEX}: {cause}; run again in another folder") from cause
        found[name] = column
    return found


def _check_entry(value: Any, place: str) -> None:
    """Check what an index says of a column: its type, its shape, and the number that is its file."""
    listed(anything, 3, 3)(value, place)
    one_of(*DTYPES)(value[0], place)
    listed(whole(), 16)(value[1], place)
    text(9, r"\d+")(value[2], place)
