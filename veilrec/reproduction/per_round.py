"""Round by round: metrics at a few rounds, seconds and bytes a round, and how many times another method's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from veilrec.metrics.measures import average
from veilrec.metrics.words import ABSENT
from veilrec.result import Result

__all__ = ["HEAD", "Cost", "at_rounds", "cells", "costs", "looks"]

MOST = 8  # columns that a page is wide enough for, beside those in which a method ends

Runs = Mapping[int, Result]  # by seed


class Cost(NamedTuple):
    """One kind of cost over the seeds of a method.

    Attributes:
        mean: Of the runs; None where there is none.
        times: How many times that of the other method, over the seeds of both; None where none is named, or
            nothing was run.
    """

    mean: float | None
    times: float | None


def _seconds(run: Result) -> float:
    """Training alone: no look at validation items, no checkpoint, no attack."""
    return float(run.timing["train"]) / run.rounds


KINDS: dict[str, tuple[str, Callable[[Result], float], str]] = {
    "seconds": ("seconds a round (machine as it was)", _seconds, "{:.3g}"),
    "up": ("bytes up, a client and round", lambda run: float(run.traffic["up"]["mean"]), "{:,.0f}"),
    "down": ("bytes down, a client and round", lambda run: float(run.traffic["down"]["mean"]), "{:,.0f}"),
}
TIMED = ("seconds",)  # what a machine has its part in
HEAD = [word for label, *_ in KINDS.values() for word in (label, "times")]


def costs(mine: Runs, other: Runs) -> dict[str, Cost]:
    """Every kind of cost of some runs, against those of another method on the same machine."""
    return {name: _cost(mine, other, name, measure) for name, (_, measure, _) in KINDS.items()}


def _cost(mine: Runs, other: Runs, name: str, measure: Callable[[Result], float]) -> Cost:
    values = [measure(run) for run in mine.values()]
    pairs = [
        measure(run) / measure(other[seed])
        for seed, run in mine.items()
        if seed in other and (name not in TIMED or _machine(run) == _machine(other[seed]))
    ]
    return Cost(average(values), average(pairs))


def _machine(run: Result) -> tuple[object, ...]:
    return tuple(run.environment.get(key) for key in ("device", "processor", "cores"))


def cells(found: Mapping[str, Cost]) -> list[str]:
    """Cells of costs, as a table shows them."""
    shown = []
    for name, (_, _, form) in KINDS.items():
        one = found[name]
        shown += [ABSENT if one.mean is None else form.format(one.mean)]
        shown += [ABSENT if one.times is None else f"{one.times:.2f}"]
    return shown


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
    return [average(one[r] for one in points) if all(r in one for one in points) else None for r in rounds]


def _points(run: Result, name: str) -> dict[int, float]:
    pairs = zip(run.curves.get("round") or (), run.curves.get(name) or (), strict=False)
    return {int(r): float(value) for r, value in pairs if value is not None}
