"""Runs contestants in turn, each in a fresh process, and sums up what they report."""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks import worlds
from benchmarks.process import Finished, calmest

DEADLINE = 900  # seconds for one process of one contestant
AGREE = 1e-3  # relative difference of `moved` that float32 sums in another order may show


def arguments(about: str | None, *, shape: str = "ml-100k", workers: int = 2) -> argparse.ArgumentParser:
    """What every benchmark of rounds may be told."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=worlds.SHAPES, default=shape)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=workers)
    return parser


@dataclass(frozen=True)
class Contestant:
    """Something that does the round when its command is run, and prints one line of JSON at the end."""

    name: str
    workers: int
    command: Sequence[str]
    counted: bool = True  # False where its own helpers would be taken for other programs


@dataclass
class Result:
    """What all repeats of one contestant gave."""

    name: str
    workers: int
    round_s: list[float] = field(default_factory=list)
    evaluate_s: list[float] = field(default_factory=list)
    peak_mb: float = 0.0
    clients: int = 0
    world: str = ""
    moved: float | None = None
    others: list[float] = field(default_factory=list)  # cores that other programs kept busy meanwhile
    error: str = ""

    def add(self, process: Finished) -> None:
        """Take in one process's report."""
        found = process.report
        self.others.append(process.others)
        self.round_s += found["round_s"]
        if found.get("evaluate_s") is not None:
            self.evaluate_s.append(found["evaluate_s"])
        self.peak_mb = max(self.peak_mb, found.get("peak_mb", 0.0))
        self.clients, self.world = found["clients"], found["world"]
        self.moved = found.get("moved")

    @property
    def median_s(self) -> float:
        """The median round."""
        return statistics.median(self.round_s)

    @property
    def min_s(self) -> float:
        """The fastest round: the one that other programs disturbed least."""
        return min(self.round_s)

    def as_dict(self) -> dict[str, Any]:
        """For JSON: what was reported, and the figures that the tables show."""
        if not self.round_s:
            return asdict(self)
        figures = {"median_s": self.median_s, "min_s": self.min_s}
        return asdict(self) | figures | {"clients_per_s": self.clients / self.median_s}


def interleaved(
    contestants: Sequence[Contestant], repeats: int, *, calm: float = math.inf, deadline: float = DEADLINE
) -> list[Result]:
    """Run A B C A B C …: whatever else the machine does then falls on all alike.

    Args:
        contestants: Who takes part.
        repeats: Processes per contestant.
        calm: Run a process again where other programs kept more cores busy than this meanwhile.
        deadline: Seconds for one process.
    """
    results = [Result(one.name, one.workers) for one in contestants]
    for repeat in range(repeats):
        for contestant, result in zip(contestants, results, strict=True):
            if result.error:
                continue
            say(f"{repeat + 1}/{repeats} {contestant.name}, workers: {contestant.workers}")
            try:
                result.add(calmest(contestant.command, deadline, calm if contestant.counted else math.inf))
            except RuntimeError as error:
                result.error = str(error)
                say(f"{contestant.name} failed: {error}")
            check_same_work(results)  # at once: the first difference ends the run, not the last
    return results


def check_same_work(results: Sequence[Result]) -> None:
    """Refuse to compare contestants that worked on other data or arrived at other weights."""
    done = [result for result in results if result.round_s]
    if len({(result.world, result.clients) for result in done}) > 1:
        raise RuntimeError(f"not the same world: { {r.name: (r.world, r.clients) for r in done} }")
    moved = {f"{r.name} × {r.workers}": r.moved for r in done if r.moved is not None}
    if moved and max(moved.values()) > (1 + AGREE) * min(moved.values()):
        raise RuntimeError(f"not the same work: the weights moved by {moved}")


def say(text: str) -> None:
    """Progress goes to stderr, so that stdout holds results alone."""
    print(text, file=sys.stderr, flush=True)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A plain text table: first column to the left, numbers to the right."""
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    lines = []
    for row in (head, ["-" * width for width in widths], *rows):
        cells = [cell.rjust(width) for cell, width in zip(row, widths, strict=True)]
        lines.append("  ".join([row[0].ljust(widths[0]), *cells[1:]]).rstrip())
    return "\n".join(lines)
