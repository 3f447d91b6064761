"""Curves: metrics round by round, at a few rounds that all runs looked at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from veilrec.result import Result

__all__ = ["at_rounds", "looks"]

MOST = 8  # columns that a page is wide enough for

Runs = Mapping[int, Result]  # by seed


def looks(methods: Sequence[Runs], name: str) -> list[int]:
    """A few rounds, evenly apart and the last among them, at which every run has a value."""
    each = [set(_points(run, name)) for runs in methods for run in runs.values()]
    shared = sorted(set.intersection(*[some for some in each if some])) if any(each) else []
    if len(shared) <= MOST:
        return shared
    places = {round((len(shared) - 1) * k / (MOST - 1)) for k in range(MOST)}
    return [shared[place] for place in sorted(places)]


def at_rounds(runs: Runs, name: str, rounds: Sequence[int]) -> list[float | None]:
    """The mean over the seeds at each of the rounds; None where no run has the curve."""
    points = [found for run in runs.values() if (found := _points(run, name))]
    return [sum(one[r] for one in points) / len(points) if points else None for r in rounds]


def _points(run: Result, name: str) -> dict[int, float]:
    pairs = zip(run.curves.get("round") or (), run.curves.get(name) or (), strict=False)
    return {int(r): float(value) for r, value in pairs if value is not None}
