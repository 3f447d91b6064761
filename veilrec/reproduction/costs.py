"""Costs: seconds and bytes a round, and how many times those of another method they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from veilrec.metrics.words import ABSENT
from veilrec.result import Result

__all__ = ["HEAD", "Cost", "cells", "costs"]

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
    return Cost(sum(values) / len(values) if values else None, sum(pairs) / len(pairs) if pairs else None)


def _machine(run: Result) -> tuple[object, ...]:
    return tuple(run.environment.get(key) for key in ("device", "processor", "cores"))


def cells(found: Mapping[str, Cost]) -> list[str]:
    """The same as a table shows it."""
    shown = []
    for name, (_, _, form) in KINDS.items():
        one = found[name]
        shown += [ABSENT if one.mean is None else form.format(one.mean)]
        shown += [ABSENT if one.times is None else f"{one.times:.2f}"]
    return shown
