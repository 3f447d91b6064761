"""Findings: what a family of runs shows, in sentences and two tables, worst first."""

from __future__ import annotations

from itertools import combinations
from typing import NamedTuple

from veilrec.metrics.arms import Arm, Family, Terms
from veilrec.metrics.measures import Measure, difference
from veilrec.metrics.sentences import sentence
from veilrec.metrics.words import number, whole
from veilrec.report.verdicts import MEASURES, Verdict, leaks_less, not_alike, verdict, verdicts, worst

__all__ = [
    "MARKS",
    "Comparison",
    "Finding",
    "Versus",
    "comparisons",
    "findings",
    "strip",
    "table_of_verdicts",
]

MARKS = {"above": ("▲", "leaks"), "below": ("▼", "leaks, below chance"), "none": ("○", "no leak shown")}
EDGE = 0.04  # room on a strip beyond chance


class Finding(NamedTuple):
    """One plain sentence, the verdict that it tells, its title, and the number behind it."""

    sentence: str
    verdict: Verdict
    title: str
    measure: str

    @property
    def arm(self) -> Arm:
        """The runs that it is about."""
        return self.verdict.arm

    @property
    def terms(self) -> Terms:
        """The protocol under which it holds."""
        return self.verdict.terms


class Versus(NamedTuple):
    """One thing held against another: what may be said, and the paired difference behind it."""

    says: str
    by: str
    ends: str
    kind: str


class Comparison(NamedTuple):
    """Two arms: how many seeds they share, usefulness, and each attribute."""

    this: Arm
    that: Arm
    seeds: int
    useful: Versus
    leaks: dict[str, Versus]


def findings(family: Family) -> list[Finding]:
    """Every verdict as a sentence: leaks first, the worst of them on top, collapsed models at the end."""
    found = sorted(verdicts(family), key=_badness, reverse=True)
    return [_finding(family, one) for one in found]


def table_of_verdicts(family: Family, audit: str) -> list[tuple[Arm, dict[str, Verdict | None]]]:
    """Arms by attribute, those that leak most on top; collapsed arms stand at the end and are not ranked."""
    attributes = family.attributes(audit)

    def place(arm: Arm) -> tuple[bool, float]:
        most = worst(arm, audit, attributes)
        return bool(arm.collapsed), -most.leak.value if most else 0.0

    return [
        (arm, {attribute: verdict(arm, audit, attribute) for attribute in attributes})
        for arm in sorted(family.arms, key=place)
    ]


def rows_apart(family: Family, audit: str) -> str:
    """The reason why rows of a table of verdicts cannot be compared; empty where they can."""
    for attribute in family.attributes(audit):
        found = [one for arm in family.arms if (one := verdict(arm, audit, attribute))]
        if what := next(filter(None, (not_alike(found[0], other) for other in found[1:])), ""):
            return what
    return ""


def comparisons(family: Family, audit: str, defended: bool) -> list[Comparison]:
    """Every two arms: usefulness, then each attribute; those that collapsed are not compared.

    With `defended` defences against each other, without it everything against what has no defence.
    """
    arms = [arm for arm in family.arms if not arm.collapsed]
    pairs = [(b, a) if not a.defended and b.defended else (a, b) for a, b in combinations(arms, 2)]
    pairs = [pair for pair in pairs if pair[1].defended == defended]
    attributes = family.attributes(audit)
    return [
        Comparison(
            a,
            b,
            len(a.seeds.keys() & b.seeds.keys()),
            _more_useful(a, b),
            {name: _leaks_less(a, b, audit, name) for name in attributes},
        )
        for a, b in pairs
    ]


def strip(one: Verdict) -> dict[str, float] | None:
    """Places on a line from a little below chance to 1; from 1 below it where a leak lies below."""
    if not one.measure.sure:
        return None
    least = 2 * one.chance - 1 if one.leaning == "below" else one.chance - 2 * EDGE
    span = 1 - least
    places = {
        "low": one.measure.low,
        "value": one.measure.value,
        "high": one.measure.high,
        "chance": one.chance,
    }
    return {name: round(min(100.0, max(0.0, 100 * (at - least) / span)), 1) for name, at in places.items()}


def _badness(one: Verdict) -> tuple[bool, bool, float]:
    return not one.arm.collapsed, one.leaning != "none", (one.leak.value - one.chance) / (1 - one.chance)


def _finding(family: Family, one: Verdict) -> Finding:
    words = _sentence(one)
    if one.arm.collapsed:
        about = "the defence" if one.arm.defended else "what a model that has learned would leak"
        words += f" The model is below the popularity floor, so this says nothing about {about}."
    measure = f"{MEASURES[one.scale].short} {whole(one.measure, 2)}, chance {one.chance:g}"
    return Finding(words, one, family.title(one.audit, one.attribute), measure)


def _sentence(one: Verdict) -> str:
    """The run's own words, or the same over seeds."""
    told = str(one.entries[0]["verdict"].get("sentence") or "")
    if len(one.entries) == 1 and told:
        return told
    return sentence(one.attribute, one.entries, one.leaning, one.measure, one.grants, one.scale)


def _more_useful(a: Arm, b: Arm) -> Versus:
    return _versus(difference(a.useful(a.metric), b.useful(b.metric)), "more useful", "less useful")


def _leaks_less(a: Arm, b: Arm, audit: str, attribute: str) -> Versus:
    one, other = verdict(a, audit, attribute), verdict(b, audit, attribute)
    if one is None or other is None or one.scale != other.scale:
        return Versus("not measured in both", "", "", "none")
    if what := not_alike(other, one):
        return Versus(f"not compared: {what}", "", "", "none")
    return _versus(leaks_less(one, other), "leaks less", "leaks more")


def _versus(found: Measure | None, better: str, worse: str) -> Versus:
    """Say what a paired difference shows: nothing, unless its interval excludes zero."""
    if found is None:
        return Versus("not compared", "no seed in common,", "or no replicates kept", "none")
    by = f"by {number(abs(found.value))}"
    if found.low > 0:
        return Versus(better, by, f"{number(found.low)}–{number(found.high)}", "good")
    if found.high < 0:
        return Versus(worse, by, f"{number(-found.high)}–{number(-found.low)}", "bad")
    return Versus(
        "no difference shown", number(found.value), f"{number(found.low)} to {number(found.high)}", "none"
    )
