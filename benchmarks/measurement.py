"""What every contestant reports, and the clock and memory readings behind it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import NotRequired, TypedDict


class Measurement(TypedDict):
    """The answer of a contestant's ``measure(world, *, workers, rounds)``."""

    round_s: list[float]  # one per timed round, after one round that is not timed
    evaluate_s: float | None  # full ranking of all users; None where it is not part of the contest
    clients: int  # trained in each round
    moved: NotRequired[float]  # by the round that is not timed, for contestants with the same draws
    workers_mb: NotRequired[float]  # sum of the peaks of worker processes, where there are any


def seconds(work: Callable[[], object]) -> float:
    """How long a piece of work takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def peak_mb() -> float:
    """The largest resident memory this process has ever had (VmHWM), in MB; 0 where unknown."""
    status = Path("/proc/self/status")
    if not status.exists():
        return 0.0
    fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
    return int(fields["VmHWM"].split()[0]) / 1024
