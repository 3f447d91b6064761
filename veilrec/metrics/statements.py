"""Statements: one group against another, claimed only where the paired interval excludes zero.

Where several claims say that one leaks less than another, Holm's correction keeps the chance of any false one
below 5 %: the surest of m must be sure at 5 %/m, the next at 5 %/(m - 1), and so on. There must be 20 m
resamples, so that at 5 %/m one of them lies outside an interval.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, NamedTuple

from veilrec.metrics.groups import Group
from veilrec.metrics.leaks import leaks_by_seed
from veilrec.metrics.measures import Measure, difference, surprise
from veilrec.metrics.words import bracketed, number

__all__ = ["Statement", "holm", "resamples_for", "statements_of"]

TOGETHER = 3  # groups of which every pair is compared; of more, each against the undefended or the first
SURE = 0.05  # the chance of a false claim, in all of them together
Side = Mapping[Any, Measure]  # by seed


@dataclass(frozen=True)
class Statement:
    """One group against another.

    Attributes:
        about: An attribute, or the metric of utility.
        first, second: Labels of the groups.
        difference: First minus second, over the seeds that both have.
        seeds: How many those are.
        shown: Whether the interval excludes zero, and, of leaks, Holm's correction leaves the claim standing.
        sentence: The finding in plain words.
        p: The smallest share of misses at which the interval excludes zero; None where nothing is compared.
    """

    about: str
    first: str
    second: str
    difference: Measure | None
    seeds: int
    shown: bool
    sentence: str
    p: float | None = None


class Pair(NamedTuple):
    """Two groups by one number: an attribute's leak, or usefulness.

    Attributes:
        about, spoken, verb: The attribute or metric, the score in words, and what the better one does.
        one, other: The groups.
        sides: Their numbers by seed.
        worse: The sign of a difference that speaks against the first group.
        audit: Of a leak; "" for usefulness.
    """

    about: str
    spoken: str
    verb: str
    one: Group
    other: Group
    sides: tuple[Side, Side]
    worse: int
    audit: str = ""

    @property
    def ranked(self) -> bool:
        """Whether it is compared at all: what has not learned cannot leak."""
        return not self.audit or not (self.one.collapsed or self.other.collapsed)

    @property
    def resamples(self) -> int:
        """The resamples of users that all its numbers have."""
        return min((one.replicates.size for side in self.sides for one in side.values()), default=0)

    @property
    def turned(self) -> Pair:
        """The same from the other side."""
        return self._replace(one=self.other, other=self.one, sides=self.sides[::-1])


def statements_of(groups: Sequence[Group], metric: str, audits: Sequence[str]) -> dict[str, list[Statement]]:
    """State what can be said, by audit: of each pair of groups the attributes, then how useful they are.

    Of a few groups every pair is told, of many each against the undefended. Claims about leaks of all audits
    are corrected together.
    """
    pairs = {
        audit: [pair for two in _twos(groups) for pair in _about(*two, metric, audit)] for audit in audits
    }
    leaks = [pair for some in pairs.values() for pair in some if pair.audit and pair.ranked]
    compared = [pair for pair in leaks if difference(*pair.sides) is not None]
    few = any(pair.resamples < resamples_for(len(compared)) for pair in compared)
    limit = 0.0 if few and len(compared) > 1 else holm([surprise(*pair.sides) for pair in compared])
    return {audit: [_stated(pair, limit, len(compared)) for pair in some] for audit, some in pairs.items()}


def resamples_for(claims: int) -> int:
    """Resamples of users without which nothing can be sure enough, where there are so many claims."""
    return round(claims / SURE)


def _twos(groups: Sequence[Group]) -> list[tuple[Group, Group]]:
    if len(groups) <= TOGETHER:
        return list(itertools.combinations(groups, 2))
    base = next((group for group in groups if not group.defended), groups[0])
    return [(base, other) for other in groups if other is not base]


def _about(one: Group, other: Group, metric: str, audit: str) -> Iterator[Pair]:
    """Two groups: each attribute, then how useful they are."""
    first, second = one.leaks(audit), other.leaks(audit)
    for name in (name for name in first if name in second):
        leaks = (leaks_by_seed(one.runs, audit, name), leaks_by_seed(other.runs, audit, name))
        verb = f"leaks less {name} than"
        yield Pair(name, first[name].spoken, verb, one, other, leaks, 1, audit)
    useful = (one.useful(metric), other.useful(metric))
    yield Pair(metric, metric, "recommends better than", one, other, useful, -1)


def holm(p: Sequence[float]) -> float:
    """The largest p-value that is sure enough; 0 where none is."""
    limit = 0.0
    for place, value in enumerate(sorted(p)):
        if value > SURE / (len(p) - place):
            break
        limit = value
    return limit


def _stated(pair: Pair, limit: float, claims: int) -> Statement:
    """A sentence with both numbers; a claim only where it stands."""
    if not pair.ranked:
        return _not_ranked(pair)
    measure, labels = difference(*pair.sides), (pair.one.label, pair.other.label)
    if measure is None:
        said = (
            f"{pair.about}: {labels[0]} and {labels[1]} cannot be paired: no seed in common, or no resamples."
        )
        return Statement(pair.about, *labels, None, 0, False, said)
    p, apart = surprise(*pair.sides), measure.leaning(0.0) != "none"
    shown = apart and (not pair.audit or p <= limit)
    if shown and measure.value * pair.worse > 0:  # say it from the side of the better one
        return _stated(pair.turned, limit, claims)
    seeds = pair.sides[0].keys() & pair.sides[1].keys()
    first, second = (fmean(side[seed].value for seed in seeds) for side in pair.sides)
    numbers = f"{pair.spoken} {number(first)} against {number(second)}, "
    numbers += f"difference {bracketed(measure, sign=True)}"
    if any(one.turned for side in pair.sides for one in side.values()):
        numbers += ", what lies below chance turned round"
    said = f"{labels[0]} {pair.verb} {labels[1]}: {numbers}"
    if not shown:
        said = f"{pair.about}: no difference shown between {labels[0]} and {labels[1]}: {numbers}"
    doubt = _doubt(pair, p, claims) if apart and not shown else ""
    if shown and len(seeds) == 1:
        doubt = "; one seed: true of these two runs, another training may differ"
    return Statement(pair.about, *labels, measure, len(seeds), shown, f"{said}{doubt}.", p)


def _doubt(pair: Pair, p: float, claims: int) -> str:
    """The reason why a difference that leaves out zero is no claim among so many."""
    if pair.resamples < resamples_for(claims):
        wanted = f"{claims} claims ask for {resamples_for(claims):,} resamples (threat.resamples)"
        return f"; {wanted}, and there are {pair.resamples:,}"
    return f"; p {p:.3f} alone, which is not sure enough among {claims} claims (Holm)"


def _not_ranked(pair: Pair) -> Statement:
    low = [group for group in (pair.one, pair.other) if group.collapsed]
    told = [f"{group.label} ({group.collapsed} of {len(group.runs)} runs)" for group in low]
    said = f"{pair.about}: not ranked: below the popularity floor, so not learned: {', '.join(told)}."
    labels = pair.one.label, pair.other.label
    return Statement(pair.about, *labels, difference(*pair.sides), 0, False, said)
