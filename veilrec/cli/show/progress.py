"""Progress on the standard error: counts, metrics and time left, in a line that changes or in several."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from veilrec.cli.show.tables import console
from veilrec.metrics.words import duration

if TYPE_CHECKING:
    from rich.status import Status

__all__ = ["Sentences", "Silence", "showing"]

SILENT = 10.0  # seconds after which a line is due even if nothing was measured


class Silence:
    """Says nothing."""

    def begin(self, title: str) -> None:
        """Another run begins."""

    def phase(self, name: str) -> None:
        """Something without a count begins."""

    def __call__(self, phase: str, done: int, total: int, row: Mapping[str, float] | None) -> None:
        """So much of a phase is done; after a round, with what was measured in it."""


class Sentences(Silence):
    """Says what is done, what was measured and how long it may take.

    Args:
        select: The metric that is told.
        title: What each sentence begins with.
        status: A line of a terminal that is written over; without one, a line for each measured round,
            and now and then for others.
    """

    def __init__(self, select: str, title: str = "", status: Status | None = None) -> None:
        self.select, self.status = select, status
        self.last = self.heard = time.monotonic()  # of the last line, and of the last round
        self.begin(title)

    def begin(self, title: str) -> None:
        """Sentences begin with the title."""
        self.title, self.said = f"{title}: " if title else "", ""
        self.first: tuple[float, int] | None = None  # when the first round was told of, and which
        self.rounds = 0

    def phase(self, name: str) -> None:
        """Something without a count begins: of interest while somebody looks on."""
        if self.status is not None:
            self._say(name)

    def __call__(self, phase: str, done: int, total: int, row: Mapping[str, float] | None) -> None:
        """A sentence if there is something to say."""
        if phase == "rounds":
            self._round(done, total, row)
        elif self.status is not None or (phase not in ("test", "write") and self._late()):
            if phase == "clients":
                self._say(
                    f"round {self.rounds + 1}: {done}/{total} clients{self.said if self.status else ''}"
                )
            else:
                self._say(f"{phase} ({done}/{total})")

    def _round(self, done: int, total: int, row: Mapping[str, float] | None) -> None:
        now, late = time.monotonic(), self._late(of_rounds=False)
        self.rounds, self.heard = done, now
        self.first = self.first or (now, done)
        measured = row is not None and self.select in row
        self.said = _measured(row, self.select) if measured or self.status is None else self.said
        if self.status is not None or measured or done == total or late:
            self._say(f"rounds {done}/{total}{self.said}{self._left(now, done, total)}")

    def _late(self, *, of_rounds: bool = True) -> bool:
        """Whether the last line, and the last round, are too long ago."""
        return time.monotonic() - max(self.last, self.heard if of_rounds else 0.0) > SILENT

    def _left(self, now: float, done: int, total: int) -> str:
        if self.first is None or done in (self.first[1], total):
            return ""
        began, before = self.first
        return f", about {duration((now - began) / (done - before) * (total - done))} left"

    def _say(self, text: str) -> None:
        self.last = time.monotonic()
        if self.status is not None:
            self.status.update(f"{self.title}{text}")
            return
        sys.stderr.write(f"{self.title}{text}\n")
        sys.stderr.flush()


def _measured(row: Mapping[str, float] | None, select: str) -> str:
    if not row:
        return ""
    text = f", loss {row['loss']:.4f}" if "loss" in row else ""
    return text + (f", {select} {row[select]:.4f}" if select in row else "")


@contextmanager
def showing(select: str, title: str = "", *, quiet: bool = False) -> Iterator[Silence]:
    """Show people how far a command is, for as long as it goes on."""
    screen = console(stderr=True)
    if quiet:
        yield Silence()
    elif screen.is_terminal:
        with screen.status(title) as status:
            yield Sentences(select, title, status)
    else:
        yield Sentences(select, title)
