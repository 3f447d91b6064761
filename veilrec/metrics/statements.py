"""Statements: one group against another, claimed only where the paired interval excludes zero."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from veilrec.metrics.groups import Group
from veilrec.metrics.leaks import leaks_by_seed
from veilrec.metrics.measures import Measure, difference
from veilrec.metrics.words import bracketed, number

__all__ = ["Statement", "statements_of"]

TOGETHER = 3  # groups of which every pair is compared; of more, each against the undefended or the first
Side = Mapping[Any, Measure]  # by seed


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


def statements_of(groups: Sequence[Group], metric: str, audit: str) -> list[Statement]:
    """State what can be said: of a few groups about every pair, of many about each against the undefended."""
    if len(groups) <= TOGETHER:
        pairs = list(itertools.combinations(groups, 2))
    else:
        base = next((group for group in groups if not group.defended), groups[0])
        pairs = [(base, other) for other in groups if other is not base]
    return [said for one, other in pairs for said in _about(one, other, metric, audit)]


def _about(one: Group, other: Group, metric: str, audit: str) -> list[Statement]:
    """Two groups: each attribute, then how useful they are."""
    said = []
    first, second = one.leaks(audit), other.leaks(audit)
    for name in (name for name in first if name in second):
        leaks = [leaks_by_seed(group.runs, audit, name) for group in (one, other)]
        said.append(_leaks_less(one, other, name, leaks, first[name].spoken))
    useful = [group.useful(metric) for group in (one, other)]
    return [*said, _stated(metric, one, other, useful, "recommends better than", metric, -1)]


def _leaks_less(one: Group, other: Group, name: str, leaks: Sequence[Side], spoken: str) -> Statement:
    if low := [group for group in (one, other) if group.collapsed]:
        told = [f"{group.label} ({group.collapsed} of {len(group.runs)} runs)" for group in low]
        said = f"{name}: not ranked: below the popularity floor, so not learned: {', '.join(told)}."
        return Statement(name, one.label, other.label, difference(*leaks), 0, False, said)
    return _stated(name, one, other, leaks, f"leaks less {name} than", spoken, 1)


def _stated(
    about: str, one: Group, other: Group, sides: Sequence[Side], verb: str, spoken: str, worse: int
) -> Statement:
    """A sentence with both numbers; a claim only where the interval of the difference excludes zero.

    `sides` are the numbers of the two by seed, and `worse` is the sign of a difference that speaks against
    the first group.
    """
    measure = difference(*sides)
    if measure is None:
        said = f"{about}: {one.label} and {other.label} cannot be paired: no seed in common, or no resamples."
        return Statement(about, one.label, other.label, None, 0, False, said)
    shown = measure.leaning(0.0) != "none"
    if shown and measure.value * worse > 0:  # say it from the side of the better one
        return _stated(about, other, one, sides[::-1], verb, spoken, worse)
    seeds = sides[0].keys() & sides[1].keys()
    first, second = (fmean(side[seed].value for seed in seeds) for side in sides)
    numbers = f"{spoken} {number(first)} against {number(second)}, "
    numbers += f"difference {bracketed(measure, sign=True)}"
    said = f"{one.label} {verb} {other.label}: {numbers}"
    if not shown:
        said = f"{about}: no difference shown between {one.label} and {other.label}: {numbers}"
    alone = "; one seed: true of these two runs, another training may differ"
    doubt = alone if len(seeds) == 1 and shown else ""
    return Statement(about, one.label, other.label, measure, len(seeds), shown, f"{said}{doubt}.")
