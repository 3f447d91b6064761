"""Progress on the standard error: a bar with count and time left, or lines where there is no terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from veilrec.cli.show.tables import console, minutes

if TYPE_CHECKING:
    from rich.progress import Progress

__all__ = ["Bar", "Lines", "Silence", "showing"]

SILENT = 10.0  # seconds after which a line is due even if nothing was measured


class Silence:
    """Says nothing."""

    def begin(self, title: str) -> None:
        """Another run begins."""

    def phase(self, name: str) -> None:
        """Something without a count begins."""

    def __call__(self, phase: str, done: int, total: int, row: Mapping[str, float] | None) -> None:
        """So much of a phase is done; after a round, with what was measured in it."""


class Lines(Silence):
    """One line for each round that was measured, and now and then for others."""

    def __init__(self, select: str, title: str = "") -> None:
        self.select, self.title = select, f"{title}: " if title else ""
        self.first: tuple[float, int] | None = None  # when the first round was told of, and which
        self.last = self.heard = time.monotonic()  # of the last line, and of the last round
        self.rounds = 0

    def begin(self, title: str) -> None:
        """Lines begin with the title."""
        self.title, self.first, self.rounds = f"{title}: ", None, 0

    def __call__(self, phase: str, done: int, total: int, row: Mapping[str, float] | None) -> None:
        """A line if there is something to say."""
        now = time.monotonic()
        if phase == "rounds":
            self.rounds, self.heard = done, now
            self.first = self.first or (now, done)
            if now - self.last > SILENT or done == total or (row is not None and self.select in row):
                self._say(f"rounds {done}/{total}{_measured(row, self.select)}{self._left(now, done, total)}")
        elif phase == "clients" and now - max(self.last, self.heard) > SILENT:
            self._say(f"round {self.rounds + 1}: {done}/{total} clients")
        elif phase not in ("clients", "test", "write") and now - self.last > SILENT:
            self._say(f"{phase} ({done}/{total})")

    def _left(self, now: float, done: int, total: int) -> str:
        if self.first is None or done in (self.first[1], total):
            return ""
        began, before = self.first
        return f", about {minutes((now - began) / (done - before) * (total - done))} left"

    def _say(self, text: str) -> None:
        self.last = time.monotonic()
        sys.stderr.write(f"{self.title}{text}\n")
        sys.stderr.flush()


class Bar(Silence):
    """One bar for the rounds; the clients of a round move it a little."""

    def __init__(self, bars: Progress, select: str, title: str = "") -> None:
        self.bars, self.select = bars, select
        self.title = f"{title}  " if title else ""
        self.task = bars.add_task(self.title, total=None, unit="", said="")
        self.rounds = 0

    def begin(self, title: str) -> None:
        """The bar starts anew."""
        self.title, self.rounds = f"{title}  ", 0
        self.bars.reset(self.task, description=self.title, total=None, unit="", said="")

    def phase(self, name: str) -> None:
        """A bar that only says that something goes on."""
        self.bars.update(self.task, description=f"{self.title}{name}", total=None, unit="", said="")

    def __call__(self, phase: str, done: int, total: int, row: Mapping[str, float] | None) -> None:
        """Move the bar."""
        if phase == "rounds":
            self.rounds = done
            said: Any = (
                {"said": _measured(row, self.select).strip(", ")} if row and self.select in row else {}
            )
            unit = f"{done}/{total} rounds"
            self.bars.update(
                self.task, description=f"{self.title}training", completed=done, total=total, unit=unit, **said
            )
        elif phase == "clients":
            self.bars.update(self.task, completed=self.rounds + done / max(1, total))
        elif phase == "server":
            self.bars.update(self.task, unit=f"server {done}/{total}")
        else:
            unit = f"{done}/{total}"
            self.bars.update(
                self.task, description=f"{self.title}{phase}", completed=done, total=total, unit=unit
            )


def _measured(row: Mapping[str, float] | None, select: str) -> str:
    if not row:
        return ""
    text = f", loss {row['loss']:.4f}" if "loss" in row else ""
    return text + (f", {select} {row[select]:.4f}" if select in row else "")


@contextmanager
def showing(select: str, title: str = "", *, quiet: bool = False) -> Iterator[Silence]:
    """What tells people how far it is, for as long as it goes on."""
    if quiet:
        yield Silence()
        return
    screen = console(stderr=True)
    if not screen.is_terminal:
        yield Lines(select, title)
        return
    from rich.progress import (
        BarColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = [
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        TextColumn("{task.fields[unit]}"),
        TimeElapsedColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[said]}", style="dim"),
    ]
    with Progress(*columns, console=screen, transient=True, refresh_per_second=5) as bars:
        yield Bar(bars, select, title)
