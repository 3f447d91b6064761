"""Statements: one group against another, claimed only where the paired interval excludes zero."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from veilrec.metrics.groups import Group
from veilrec.metrics.measures import Measure, found_in, interval, usefulness

__all__ = ["Statement", "statements_of"]

TOGETHER = 3  # groups of which every pair is compared; of more, each against the undefended or the first
Side = Sequence[tuple[float, NDArray[np.float64]]]  # a value and its replicates, by seed


@dataclass(frozen=True)
class Statement:
    """One group against another.

    Attributes:
        about: An attribute, or the metric of utility.
        first, second: Labels of the groups.
        difference: First minus second, over the seeds that both have.
        seeds: How many those are.
        shown: Whether the interval excludes zero.
        sentence: The finding in plain words.
    """

    about: str
    first: str
    second: str
    difference: Measure | None
    seeds: int
    shown: bool
    sentence: str


class Difference(NamedTuple):
    """Two groups over the seeds they share: the mean of each, and how much larger the first is."""

    first: float
    second: float
    value: float
    low: float
    high: float
    seeds: int

    def turned(self) -> Difference:
        """The same, seen from the other side."""
        return Difference(self.second, self.first, -self.value, -self.high, -self.low, self.seeds)

    def told(self) -> Measure:
        """With its interval."""
        return Measure(self.value, self.low, self.high)


def statements_of(groups: Sequence[Group], metric: str, audit: str) -> list[Statement]:
    """What can be said: of a few groups about every pair, of many about each against the undefended one."""
    if len(groups) <= TOGETHER:
        pairs = list(itertools.combinations(groups, 2))
    else:
        base = next((group for group in groups if not group.defended), groups[0])
        pairs = [(base, other) for other in groups if other is not base]
    return [said for one, other in pairs for said in _about(one, other, metric, audit)]


def _about(one: Group, other: Group, metric: str, audit: str) -> list[Statement]:
    """Two groups: each attribute, then how useful they are."""
    seeds = sorted(one.runs.keys() & other.runs.keys())
    said = []
    for name in (name for name in one.leaks if name in other.leaks):
        leaks = [_leaks(group, seeds, audit, name) for group in (one, other)]
        said.append(_leaks_less(one, other, name, _difference(*leaks)))
    useful = [_useful(group, seeds, metric) for group in (one, other)]
    return [*said, _stated(metric, one, other, _difference(*useful), "recommends better than", metric, -1)]


def _leaks(group: Group, seeds: Sequence[int], audit: str, name: str) -> Side:
    found = (found_in(group.runs[seed], audit, name) for seed in seeds)
    return [(one.value, one.replicates) for one in found if one is not None]


def _useful(group: Group, seeds: Sequence[int], metric: str) -> Side:
    results = [group.runs[seed].result for seed in seeds]
    return [(float(r.utility.test[metric]), np.asarray(usefulness(r, metric))) for r in results]


def _difference(side: Side, against: Side) -> Difference | None:
    """Pairs by seed; None where there are none, or nothing was resampled.

    A resample that happens to hold easy people is easy for both runs. In the difference of replicates of the
    same resample that luck cancels, as far as both runs judge the same people; two separate intervals count
    it twice and miss real differences. Where only one run has more replicates, the rest have no partner.
    """
    values, replicates = [], []
    for (value, some), (other, others) in zip(side, against, strict=True):
        both = min(len(some), len(others))
        values.append(value - other)
        replicates.append((some[:both] - others[:both]).tolist())
    if not values:
        return None
    value, low, high = interval(values, replicates)
    if low is None or high is None:
        return None
    first, second = (float(np.mean([value for value, _ in one])) for one in (side, against))
    return Difference(first, second, value, low, high, len(values))


def _leaks_less(one: Group, other: Group, name: str, found: Difference | None) -> Statement:
    if low := [group for group in (one, other) if group.collapsed]:
        told = [f"{group.label} ({group.collapsed} of {len(group.runs)} runs)" for group in low]
        said = f"{name}: not ranked: below the popularity floor, so not learned: {', '.join(told)}."
        return Statement(name, one.label, other.label, found and found.told(), 0, False, said)
    spoken = "AUC" if one.leaks[name].score == "auc" else "rank correlation"
    return _stated(name, one, other, found, f"leaks less {name} than", spoken, 1)


def _stated(
    about: str, one: Group, other: Group, found: Difference | None, verb: str, spoken: str, worse: int
) -> Statement:
    """A sentence with both numbers; a claim only where the interval of the difference excludes zero.

    `worse` is the sign of a difference that speaks against the first group.
    """
    if found is None:
        said = f"{about}: {one.label} and {other.label} cannot be paired: no seed in common, or no resamples."
        return Statement(about, one.label, other.label, None, 0, False, said)
    shown = found.low > 0 or found.high < 0
    if shown and found.value * worse > 0:  # say it from the side of the better one
        return _stated(about, other, one, found.turned(), verb, spoken, worse)
    numbers = f"{spoken} {found.first:.3f} against {found.second:.3f}, difference "
    numbers += f"{found.value:+.3f} [{found.low:+.3f}, {found.high:+.3f}]"
    said = f"{one.label} {verb} {other.label}: {numbers}"
    if not shown:
        said = f"{about}: no difference shown between {one.label} and {other.label}: {numbers}"
    doubt = (
        "; one seed: true of these two runs, another training may differ"
        if found.seeds == 1 and shown
        else ""
    )
    return Statement(about, one.label, other.label, found.told(), found.seeds, shown, f"{said}{doubt}.")
