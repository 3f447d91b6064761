"""Curves: metrics round by round, at a few rounds that all runs looked at which lasted so long."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from veilrec.result import Result

__all__ = ["at_rounds", "looks"]

MOST = 8  # columns that a page is wide enough for, beside those in which some run ends

Runs = Mapping[int, Result]  # by seed


def looks(methods: Sequence[Runs], name: str) -> list[int]:
    """A few rounds, evenly apart, and the last of each run; all runs that last so long have a value there."""
    each = [some for runs in methods for run in runs.values() if (some := set(_points(run, name)))]
    shared = [r for r in sorted(set().union(*each)) if all(r in some or r > max(some) for some in each)]
    if len(shared) <= MOST:
        return shared
    evenly = {shared[round((len(shared) - 1) * k / (MOST - 1))] for k in range(MOST)}
    return sorted(evenly | ({max(some) for some in each} & {*shared}))


def at_rounds(runs: Runs, name: str, rounds: Sequence[int]) -> list[float | None]:
    """The mean over the seeds at each of the rounds; None without a curve, or where some run is over."""
    points = [found for run in runs.values() if (found := _points(run, name))]
    there = [r for r in rounds if points and all(r in one for one in points)]
    return [sum(one[r] for one in points) / len(points) if r in there else None for r in rounds]


def _points(run: Result, name: str) -> dict[int, float]:
    pairs = zip(run.curves.get("round") or (), run.curves.get(name) or (), strict=False)
    return {int(r): float(value) for r, value in pairs if value is not None}
