"""The clock: seconds by phase, and memory at its peak; nothing that a second run would give again."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from veilrec.base.limits.machine import peak
from veilrec.wire.uploads import Exchange

__all__ = ["Clock", "total"]

PHASES = ("train", "evaluate", "checkpoint")


class Clock:
    """Times rounds; a watch, because evaluation begins where the last chunk, or the server, has passed.

    Attributes:
        round: Seconds of the last round.
        cost: Seconds of the last checkpoint.
        owed: Seconds of checkpoints that no row counts yet.
    """

    reads = ()  # of an upload

    def __init__(self) -> None:
        self.round = self.cost = 0.0
        self.owed = 0.0
        self.begin()
        self._written = self._start

    def begin(self) -> None:
        """A round begins."""
        self._start = self._passed = time.perf_counter()

    def __call__(self, exchange: Exchange | None = None) -> None:
        """A chunk has passed, or a step of the server."""
        self._passed = time.perf_counter()

    def finish(self, *, looked: bool) -> dict[str, float]:
        """A round is over: its seconds by phase, and the peak of memory so far."""
        now = time.perf_counter()
        trained = self._passed if looked else now
        self.round = now - self._start
        row = {"train": trained - self._start, "evaluate": now - trained, "checkpoint": self.owed}
        self.owed = 0.0
        self.begin()
        return {**{name: round(seconds, 6) for name, seconds in row.items()}, "peak_bytes": peak()}

    @property
    def age(self) -> float:
        """Seconds since the last checkpoint."""
        return time.perf_counter() - self._written

    @contextmanager
    def checkpoint(self) -> Iterator[None]:
        """While a checkpoint is written."""
        before = time.perf_counter()
        yield
        self._written = time.perf_counter()
        self.cost = self._written - before
        self.owed += self.cost
        self.begin()


def total(rows: Sequence[Mapping[str, Any]], **more: float) -> dict[str, float]:
    """Seconds by phase over all rounds, further phases, all together, and the peak of memory."""
    seconds = {phase: sum(row[phase] for row in rows) for phase in PHASES}
    seconds |= {phase: seconds.get(phase, 0.0) + value for phase, value in more.items()}
    most = max([peak(), *(row["peak_bytes"] for row in rows)])
    named = {name: round(value, 3) for name, value in seconds.items()}
    return {**named, "total": round(sum(seconds.values()), 3), "peak_bytes": most}
