"""The transcript: what the server saw in the rounds that are kept. It is all that an attack is given."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from veilrec.base.limits.bounds import RoundsOrNone, hold, takes
from veilrec.base.params import Rows, part_of
from veilrec.base.rows import padded, within
from veilrec.base.tensors import Reader
from veilrec.errors import BadInput, Corrupted, nearest
from veilrec.wire.codec import Schema, Spec
from veilrec.wire.uploads import Exchange, Letter, Posts, Uploads

__all__ = ["PROBE", "Record", "Transcript"]

LARGE = 1 << 16  # values of a weight: from all devices of a round they would be gigabytes
PROBE = 0  # the round under which the probe is kept; training counts from 1
RESERVED = {"cohort", "sent", "each", "posts"}  # what else lies beside the parts of an upload


@takes("record")
@dataclass(frozen=True)
class Record:
    """A choice of what is written down of the exchanges between devices and server.

    Attributes:
        parts: Names of parts; empty for everything that is no item table, and of which one device does not
            hold more than `LARGE` values.
        last: How many rounds are kept, counted from the last one; 0, the default, writes nothing.
    """

    parts: tuple[str, ...] = ()
    last: RoundsOrNone = 0

    def __post_init__(self) -> None:
        hold(self, "record")

    def chosen(self, schema: Schema) -> set[str]:
        """The names of an upload that are written down."""
        counts = {name for name, spec in schema.items() if spec.kind == "count"}
        names = set(schema) - counts
        parts = {part_of(name) for name in names}
        if clash := parts & RESERVED:
            raise BadInput("record.parts", f"a part is called {sorted(clash)[0]!r}", "rename that part")
        for part in self.parts:
            if part not in names | parts | {"posts"}:
                fix = nearest(part, names | parts | {"posts"})
                raise BadInput("record.parts", f'nothing called "{part}" is uploaded', fix)
        if not self.parts:
            plain = [name for name in names if schema[name].table is None]
            return counts | {name for name in plain if math.prod(schema[name].shape) <= LARGE}
        return counts | {name for name in names if name in self.parts or part_of(name) in self.parts}


class Transcript:
    """The server's memory of a run, read from disk as it is asked for.

    Attributes:
        rounds: The rounds of training that were kept, oldest first.
        probed: Whether the probe was kept, too, as round `PROBE`: every user once, on the selected state.
        schema: What one device's upload may hold, as the method declared it.
    """

    def __init__(self, path: Path) -> None:
        self._file = Reader(path)
        self._names: dict[int, list[str]] = {}
        try:
            for key in self._file.names:
                head, name = key.split("/", 1)
                self._names.setdefault(int(head.removeprefix("r")), []).append(name)
        except ValueError as cause:
            raise Corrupted(f"{path}: no transcript ({cause}); restore the file") from cause
        self.rounds = sorted(set(self._names) - {PROBE})
        self.probed = PROBE in self._names
        self.schema = declared(self._file.notes.get("schema", "{}"))

    @classmethod
    def open(cls, path: Path) -> Transcript:
        """The file ``transcript.safetensors`` of a finished run."""
        if not path.is_file():
            raise BadInput(path, "there is no transcript", "run again with record.last above 0")
        return cls(path)

    def holds(self, name: str) -> bool:
        """Whether every round that was kept has a weight, which is no table."""
        return bool(self.rounds) and all(name in self._names[round] for round in self.rounds)

    def cohort(self, round: int) -> Tensor:
        """``[c]`` who took part, in the order in which everything of that round lies."""
        if round not in self._names:
            raise BadInput("round", f"{round} was not kept", f"choose one of {self.rounds}")
        return self._file.get(f"r{round:06}/cohort")

    def exchange(self, round: int, start: int = 0, stop: int | None = None) -> Exchange:
        """A round, or clients `start` to `stop` of it, in the form in which the server saw it."""
        cohort = self.cohort(round)[start:stop]
        stop, prefix, names = start + len(cohort), f"r{round:06}/", self._names[round]

        def under(folder: str) -> list[str]:
            return [name.removeprefix(folder) for name in names if name.startswith(folder)]

        def cut(name: str) -> Tensor:
            return self._file.get(prefix + name, start, stop)

        values: dict[str, Tensor | Rows] = {n: cut(n) for n in names if "/" not in n and n not in RESERVED}
        for name in [n.removesuffix("/row") for n in names if n.endswith("/row")]:
            values[name] = self._rows(prefix + name, start, stop)
        sent = {name: self._file.get(f"{prefix}sent/{name}") for name in under("sent/")}
        each = {name: cut(f"each/{name}") for name in under("each/")}
        posts = {name: self._file.get(f"{prefix}posts/{name}") for name in under("posts/")}
        posted = Posts(posts.pop("owner"), posts) if posts else Posts.none()
        letter = Letter(sent, each, round=max(0, round - 1))
        return Exchange(round, letter, Uploads(cohort, values, posted), self.schema)

    def chunks(self, round: int, size: int = 256) -> Iterator[Exchange]:
        """A round in pieces of so many clients, for what does not fit into memory; each has all posts."""
        for start in range(0, len(self.cohort(round)), size):
            yield self.exchange(round, start, start + size)

    def _rows(self, name: str, start: int, stop: int) -> Rows:
        """The rows that some clients sent of a table, padded to the longest: ``[c, r]`` and ``[c, r, …]``."""
        bounds = torch.tensor([start, stop], dtype=torch.int32)
        first, last = torch.searchsorted(self._file.get(f"{name}/client"), bounds).tolist()
        client, row, value = (
            self._file.get(f"{name}/{column}", first, last) for column in ("client", "row", "value")
        )
        client = client.long() - start
        counts = torch.bincount(client, minlength=stop - start)
        place = within(client, counts)
        return Rows(padded(row.long(), client, place, counts, -1), padded(value, client, place, counts))


def declaration(schema: Schema) -> str:
    """A schema as text, for the header of a file."""
    told = {n: [list(s.shape), str(s.dtype), s.table, s.kind, s.below] for n, s in schema.items()}
    return json.dumps(told)


def declared(text: str) -> Schema:
    """The reverse of `declaration`."""
    return {
        name: Spec(tuple(shape), getattr(torch, dtype.removeprefix("torch.")), *rest)
        for name, (shape, dtype, *rest) in json.loads(text).items()
    }
