"""Measures: a number with its interval, over one seed or several, and the paired difference of two.

The interval has the doubt about users, who are resampled alike in all runs, and the doubt about seeds, whose
spread widens it as Student's t asks for.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, median
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "SURE",
    "Measure",
    "average",
    "combined_p",
    "difference",
    "gathered",
    "interval",
    "number_in",
    "pool",
    "read",
    "surprise",
    "together",
    "widened",
]

Key = TypeVar("Key")
Entry = TypeVar("Entry")

NOTHING = np.zeros(0)
SURE = 0.05  # a leak is shown where the permutation p, if there is one, is below this
TINY = 1e-6  # the smallest p-value that is told
ENDS = (0.025, 0.975)  # of a two-sided interval of 95 %
SHARE = (0.0, 1.0)
LIMITS = {  # of the scores that are no share
    "spearman": (-1.0, 1.0),
    "r2": (-math.inf, 1.0),
    "mae": (0.0, math.inf),
    "predicted": (-math.inf, math.inf),
    "correction": (-math.inf, math.inf),
}


@dataclass(frozen=True)
class Measure:
    """One number.

    Attributes:
        value: The number.
        low, high: The ends of its 95 % interval; NaN where nobody knows them.
        replicates: ``[b]`` the number in each resample of users, or ``[0]``.
        p: Of permutations of the labels; None where nobody permuted.
        turned: Whether it was below chance and is shown as whoever turns it round would have it.
        mute: Whether its attacker said the same of everybody: it failed, and the number tells nothing.
    """

    value: float
    low: float = math.nan
    high: float = math.nan
    replicates: NDArray[np.float64] = field(default_factory=lambda: NOTHING, compare=False, repr=False)
    p: float | None = None
    turned: bool = False
    mute: bool = False

    @property
    def sure(self) -> bool:
        """Whether the measure has an interval."""
        return not (math.isnan(self.low) or math.isnan(self.high))

    def plain(self) -> dict[str, float | None]:
        """The number and its ends for machines; None for ends that nobody knows."""
        ends = (self.low, self.high) if self.sure else (None, None)
        return dict(zip(("value", "low", "high"), (self.value, *ends), strict=True))

    def leaning(self, chance: float) -> str:
        """``above``, ``below`` or ``none``: where the interval lies against chance; none where p is large."""
        if self.p is not None and self.p >= SURE:
            return "none"
        return "above" if self.low > chance else "below" if self.high < chance else "none"

    def upright(self, chance: float) -> Measure:
        """Turn a measure round where it is surely below chance: a full read-out upside down is one."""
        return self.mirrored(chance) if self.high < chance else self

    def mirrored(self, chance: float) -> Measure:
        """Turn a measure round."""
        mirror = 2 * chance
        return Measure(
            mirror - self.value, mirror - self.high, mirror - self.low, mirror - self.replicates, self.p, True
        )

    def within(self, least: float, most: float) -> Measure:
        """Cut the interval where no number can be: with few seeds it may reach beyond."""
        return replace(self, low=min(max(self.low, least), most), high=min(max(self.high, least), most))

    def folded(self, chance: float) -> Measure:
        """Distance from chance, added to chance: wrong more often than chance is leakage too."""
        mirror = 2 * chance
        value = max(self.value, mirror - self.value)
        if self.low <= chance <= self.high:
            return Measure(value, chance, max(self.high, mirror - self.low))
        if self.high < chance:
            return Measure(value, mirror - self.high, mirror - self.low)
        return Measure(value, self.low, self.high)


def average(values: Iterable[float | None]) -> float | None:
    """The mean of the numbers that there are; None where there is none."""
    there = [value for value in values if value is not None]
    return fmean(there) if there else None


def gathered(pairs: Iterable[tuple[Key, Entry]]) -> dict[Key, list[Entry]]:
    """All entries of each key, in the order in which they come."""
    found: dict[Key, list[Entry]] = {}
    for key, entry in pairs:
        found.setdefault(key, []).append(entry)
    return found


def read(entry: Any, replicates: Sequence[float] = ()) -> Measure | None:
    """Read an entry of a result: ``{"value", "low", "high"}`` or a bare number; None for null."""
    found: Mapping[str, Any] = entry if isinstance(entry, Mapping) else {"value": entry}
    value, low, high = (number_in(found.get(name)) for name in ("value", "low", "high"))
    if math.isnan(value):
        return None
    again = np.array([number_in(one) for one in replicates], dtype=np.float64)
    if again.size and math.isnan(low + high):
        low, high = np.nanquantile(again, ENDS).tolist()
    return Measure(value, low, high, again)


def number_in(value: Any) -> float:
    """A finite number of a file; NaN for anything else that it may say."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return math.nan
    return float(value)


def interval(
    values: Sequence[float], replicates: Sequence[Sequence[float] | NDArray[np.float64]], miss: float = 0.05
) -> Measure:
    """The mean of one value a seed, with the doubt about users and the doubt about seeds.

    Args:
        values: One a seed.
        replicates: ``[seeds][resamples]`` of the same resamples of users; the shortest decides how many.
        miss: How often the interval may miss the truth.
    """
    mean = float(np.mean(values))
    shortest = min(len(one) for one in replicates)
    if not shortest:
        return Measure(mean)
    over_users = np.mean([np.asarray(one[:shortest], dtype=np.float64) for one in replicates], axis=0)
    below, above = _reach(over_users, mean, miss)
    luck = _luck(values, miss)
    return Measure(mean, mean - math.hypot(below, luck), mean + math.hypot(above, luck))


def _reach(again: NDArray[np.float64], mean: float, miss: float) -> tuple[float, float]:
    """How far the interval of some replicates reaches below the mean, and above it.

    With fewer than two replicates beyond an end it goes on as a normal law does.
    """
    from scipy.special import ndtri

    least = miss if miss >= 0.05 else max(miss, min(0.05, 4 / len(again)))
    low, high = np.percentile(again, [50 * least, 100 - 50 * least]).tolist()
    further = 1.0 if miss >= least else float(ndtri(miss / 2) / ndtri(least / 2))
    return further * max(0.0, mean - low), further * max(0.0, high - mean)


def widened(values: Sequence[float], below: float, above: float) -> Measure:
    """The mean of one value a seed, where the doubt about users is known by its two sides alone."""
    mean, luck = float(np.mean(values)), _luck(values)
    return Measure(mean, mean - math.hypot(below, luck), mean + math.hypot(above, luck))


def _luck(values: Sequence[float], miss: float = 0.05) -> float:
    """Half the width of the interval of the mean that seeds alone would give; 0 for a single seed."""
    seeds = len(values)
    return _student(seeds - 1, miss) * float(np.std(values, ddof=1)) / math.sqrt(seeds) if seeds > 1 else 0.0


def _student(freedom: int, miss: float = 0.05) -> float:
    """The quantile of Student's t with three decimals, as every table of it has and papers compute by."""
    from scipy.special import (
        stdtrit,
    )  # what scipy.stats.t.ppf calls, without the second that its import takes

    return round(float(stdtrit(freedom, 1 - miss / 2)), 3)


def pool(measures: Sequence[Measure], score: str) -> Measure:
    """The mean over seeds; a single one as it is."""
    return measures[0] if len(measures) == 1 else together(measures, score)


def together(measures: Sequence[Measure], score: str) -> Measure:
    """The mean over seeds of a score, by its name: the doubt about users and that about seeds.

    The interval ends where the score does: no AUC is above 1. Where a score kept no replicates, its users'
    part is the mean of the intervals: they are the same users in every seed, whose luck does not average out.
    """
    values = [one.value for one in measures]
    if all(one.replicates.size for one in measures):
        found = interval(values, [one.replicates for one in measures])
    else:
        below = float(np.mean([one.value - one.low for one in measures]))
        above = float(np.mean([one.high - one.value for one in measures]))
        found = widened(values, below, above)
    return found.within(*LIMITS.get(score, SHARE))


def combined_p(values: Sequence[float]) -> float | None:
    """One p of several seeds: twice their median, which is valid however they depend."""
    if not values:
        return None
    return values[0] if len(values) == 1 else min(1.0, 2 * median(values))


def difference(first: Mapping[Any, Measure], second: Mapping[Any, Measure]) -> Measure | None:
    """Subtract the second from the first, over the seeds that both have; None without those, or replicates.

    A resample that happens to hold easy people is easy for both runs. In the difference of replicates of the
    same resample that luck cancels, as far as both runs judge the same people; two separate intervals count
    it twice and miss real differences. Where only one run has more replicates, the rest have no partner.
    """
    pairs = _paired(first, second)
    return interval(*pairs) if pairs else None


def surprise(first: Mapping[Any, Measure], second: Mapping[Any, Measure]) -> float:
    """The p-value of a difference: how often an interval may miss the truth and still leave out zero.

    1 where there are no pairs; less than a millionth is told as that.
    """
    pairs = _paired(first, second)
    if not pairs:
        return 1.0

    def told_apart(miss: float) -> bool:
        return interval(*pairs, miss).leaning(0.0) != "none"

    low, high = TINY, 1.0
    if told_apart(low):
        return low
    for _ in range(24):
        middle = (low + high) / 2
        low, high = (low, middle) if told_apart(middle) else (middle, high)
    return high


def _paired(
    first: Mapping[Any, Measure], second: Mapping[Any, Measure]
) -> tuple[list[float], list[NDArray[np.float64]]] | None:
    """Differences and their replicates, of every seed that both have."""
    pairs = [(first[seed], second[seed]) for seed in first if seed in second]
    if not pairs or not all(a.replicates.size and b.replicates.size for a, b in pairs):
        return None
    count = [min(a.replicates.size, b.replicates.size) for a, b in pairs]
    again = [a.replicates[:n] - b.replicates[:n] for (a, b), n in zip(pairs, count, strict=True)]
    return [a.value - b.value for a, b in pairs], again
