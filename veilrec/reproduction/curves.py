"""Curves: metrics round by round, at a few rounds; all runs that lasted so long looked there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from veilrec.result import Result

__all__ = ["at_rounds", "looks"]

MOST = 8  # columns that a page is wide enough for, beside those in which a method ends

Runs = Mapping[int, Result]  # by seed


def looks(methods: Sequence[Runs], name: str) -> list[int]:
    """A few rounds, evenly apart, and the last of each method; all runs that last so long looked there."""
    each = [[some for run in runs.values() if (some := set(_points(run, name)))] for runs in methods]
    all_runs = [some for runs in each for some in runs]
    every = sorted(set().union(*all_runs))
    shared = [r for r in every if all(r in some or r > max(some) for some in all_runs)]
    if len(shared) <= MOST:
        return shared
    evenly = {shared[round((len(shared) - 1) * k / (MOST - 1))] for k in range(MOST)}
    common = [set(shared).intersection(*runs) for runs in each if runs]
    return sorted(evenly | {max(some) for some in common if some})


def at_rounds(runs: Runs, name: str, rounds: Sequence[int]) -> list[float | None]:
    """The mean over the seeds at each of the rounds; None without a curve, or where some run is over."""
    points = [found for run in runs.values() if (found := _points(run, name))]
    there = [r for r in rounds if points and all(r in one for one in points)]
    return [sum(one[r] for one in points) / len(points) if r in there else None for r in rounds]


def _points(run: Result, name: str) -> dict[int, float]:
    pairs = zip(run.curves.get("round") or (), run.curves.get(name) or (), strict=False)
    return {int(r): float(value) for r, value in pairs if value is not None}
