"""Measures: a number with its interval, over one seed or several, and the paired difference of two."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilrec.metrics.comparison import interval

__all__ = ["Measure", "combined_p", "difference", "pool", "read"]

NOTHING = np.zeros(0)
SURE = 0.05  # a leak is shown where the permutation p, if there is one, is below this


@dataclass(frozen=True)
class Measure:
    """One number.

    Attributes:
        value: The number.
        low, high: The ends of its 95 % interval; NaN where nobody knows them.
        replicates: ``[b]`` the number in each resample of users, or ``[0]``.
        p: Of permutations of the labels; None where nobody permuted.
        turned: Whether it was below chance and is shown as whoever turns it round would have it.
    """

    value: float
    low: float = math.nan
    high: float = math.nan
    replicates: NDArray[np.float64] = field(default_factory=lambda: NOTHING, compare=False)
    p: float | None = None
    turned: bool = False

    @property
    def sure(self) -> bool:
        """Whether there is an interval."""
        return not (math.isnan(self.low) or math.isnan(self.high))

    def leaning(self, chance: float) -> str:
        """``above``, ``below`` or ``none``: where the interval lies against chance; none where p is large."""
        if self.p is not None and self.p >= SURE:
            return "none"
        return "above" if self.low > chance else "below" if self.high < chance else "none"

    def upright(self, chance: float) -> Measure:
        """The same, turned round where it is surely below chance: a full read-out upside down is one."""
        if not self.high < chance:
            return self
        mirror = 2 * chance
        return Measure(
            mirror - self.value, mirror - self.high, mirror - self.low, mirror - self.replicates, self.p, True
        )

    def folded(self, chance: float) -> Measure:
        """The same as distance from chance, added to chance: wrong more often than chance is leakage too."""
        mirror = 2 * chance
        value = max(self.value, mirror - self.value)
        if self.low <= chance <= self.high:
            return Measure(value, chance, max(self.high, mirror - self.low))
        if self.high < chance:
            return Measure(value, mirror - self.high, mirror - self.low)
        return Measure(value, self.low, self.high)


def read(entry: Any, replicates: Sequence[float] = ()) -> Measure | None:
    """What a result says under one name: ``{"value", "low", "high"}`` or a bare number; None for null."""
    found: Mapping[str, Any] = entry if isinstance(entry, Mapping) else {"value": entry}
    value, low, high = (_number(found.get(name)) for name in ("value", "low", "high"))
    if math.isnan(value):
        return None
    again = np.array([_number(one) for one in replicates], dtype=np.float64)
    if again.size and math.isnan(low + high):
        low, high = np.nanquantile(again, (0.025, 0.975)).tolist()
    return Measure(value, low, high, again)


def pool(measures: Sequence[Measure]) -> Measure:
    """The mean over seeds, by the rule of `veilrec compare`: the doubt about users and that about seeds.

    Where a score kept no replicates, its users' part is the mean of the intervals: they are the same users in
    every seed, so that their luck does not average out.
    """
    if len(measures) == 1:
        return measures[0]
    values = [one.value for one in measures]
    if all(one.replicates.size for one in measures):
        return _measure(interval(values, [one.replicates.tolist() for one in measures]))
    seeds = _measure(interval(values, [[value] for value in values]))
    below = float(np.mean([one.value - one.low for one in measures]))
    above = float(np.mean([one.high - one.value for one in measures]))
    luck = seeds.high - seeds.value
    return Measure(seeds.value, seeds.value - math.hypot(below, luck), seeds.value + math.hypot(above, luck))


def combined_p(values: Sequence[float]) -> float | None:
    """One p of several seeds: twice their median, which is valid however they depend."""
    if not values:
        return None
    return values[0] if len(values) == 1 else min(1.0, 2 * median(values))


def difference(first: Mapping[Any, Measure], second: Mapping[Any, Measure]) -> Measure | None:
    """First less second, over the seeds that both have: the same users are drawn in both, so errors cancel.

    None where no seed is common, or replicates are missing.
    """
    pairs = [(first[seed], second[seed]) for seed in first if seed in second]
    if not pairs or not all(a.replicates.size and b.replicates.size for a, b in pairs):
        return None
    count = [min(a.replicates.size, b.replicates.size) for a, b in pairs]
    again = [(a.replicates[:n] - b.replicates[:n]).tolist() for (a, b), n in zip(pairs, count, strict=True)]
    return _measure(interval([a.value - b.value for a, b in pairs], again))


def _measure(found: Any) -> Measure:
    """A measure of `veilrec.metrics.comparison` as ours."""
    low, high = (math.nan if end is None else end for end in (found.low, found.high))
    return Measure(found.value, low, high)


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return math.nan
    return float(value)
