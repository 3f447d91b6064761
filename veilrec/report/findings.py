"""Findings: what a family of runs shows, in sentences and two tables, worst first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from veilrec.metrics.arms import Arm, Family, FindingTerms
from veilrec.metrics.leaks import FEWER
from veilrec.metrics.measures import SURE, Measure
from veilrec.metrics.sentences import About, both_ways, sentence, sight_of
from veilrec.metrics.statements import Statement, statements_of
from veilrec.metrics.words import at_rest, bracketed
from veilrec.report.verdicts import MEASURES, Verdict, not_alike, verdict, verdicts, worst

__all__ = [
    "MARKS",
    "Finding",
    "by_chance",
    "claims",
    "doubts",
    "findings",
    "rows_apart",
    "strip",
    "strip_of",
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
    def terms(self) -> FindingTerms:
        """The protocol under which it holds."""
        return self.verdict.terms


def findings(family: Family) -> list[Finding]:
    """Every verdict as a sentence: leaks first, the worst of them on top, collapsed models at the end."""
    found = sorted(verdicts(family), key=_badness, reverse=True)
    return [_finding(family, one) for one in found]


def doubts(family: Family) -> list[str]:
    """What would make numbers mean something else, in the audits' own input or before; each sentence once."""
    several = len(family.arms) > 1
    return list(
        dict.fromkeys(
            f"{arm.label}, {told}" if several else told
            for arm in family.arms
            for result in arm.results
            for told in [
                *_unsettled(result.traffic),
                *(f"{audit}: {one}" for audit, found in result.privacy.items() for one in _doubts(found)),
            ]
        )
    )


def _unsettled(traffic: Mapping[str, Any]) -> list[str]:
    """Erasers that ended before they came to rest."""
    return [at_rest(line) for line in traffic.get("erasing") or () if not line["settled"]]


def _doubts(audit: Mapping[str, Any]) -> Iterator[str]:
    yield from (str(one.get("sentence")) for one in audit.get("soundness") or ())
    yield from _apart(audit)


def _apart(audit: Mapping[str, Any]) -> Iterator[str]:
    """The verdicts without those of whom a copy is known, or nothing but zeros."""
    for name, entry in (audit.get("attributes") or {}).items():
        for fewer, who in FEWER.items():
            apart = entry.get(fewer) or {}
            if told := (apart.get("verdict") or {}).get("sentence"):
                yield f"{name} without {apart['left_out']:g} of those attacked, {who}: {told}"


def by_chance(family: Family) -> str:
    """Say how many verdicts there are, and how many of them chance alone would raise where nothing leaks."""
    found = verdicts(family)
    tested = [one for one in found if one.measure.p is not None]
    if not found:
        return ""
    there = "There is 1 verdict here" if len(found) == 1 else f"There are {len(found)} verdicts here"
    rest = len(found) - len(tested)
    untested = f", and {rest} without a p-value perhaps more often" if rest else ""
    return (
        f"{there}. If nothing leaked, chance alone would raise {SURE * len(tested):.2g} of {len(tested)} on "
        f"average{untested}. Each stands for itself: none is hidden because there are others."
    )


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


def claims(family: Family) -> dict[str, list[Statement]]:
    """State by audit what pairs of arms show, as `veilrec compare` does, those that show something first.

    Nothing is said of arms that collapsed, nor where arms were not attacked alike.
    """
    arms = [arm for arm in family.arms if arm.utility and not arm.collapsed]
    alike = [audit for audit in family.audits if len(arms) > 1 and not rows_apart(family, audit)]
    found = statements_of(arms, family.metric, alike) if alike else {}
    return {audit: sorted(found.get(audit, ()), key=lambda one: not one.shown) for audit in family.audits}


def strip(one: Verdict) -> dict[str, float] | None:
    """The places of a verdict on a line."""
    return strip_of(one.measure, one.chance, one.leaning)


def strip_of(one: Measure, chance: float, leaning: str) -> dict[str, float] | None:
    """Places on a line from a little below chance to 1; from 1 below it where a leak lies below."""
    if not one.sure:
        return None
    least = 2 * chance - 1 if leaning == "below" else chance - 2 * EDGE
    span = 1 - least
    places = {"low": one.low, "value": one.value, "high": one.high, "chance": chance}
    return {name: round(min(100.0, max(0.0, 100 * (at - least) / span)), 1) for name, at in places.items()}


def _badness(one: Verdict) -> tuple[bool, bool, float]:
    return not one.arm.collapsed, one.leaning != "none", (one.leak.value - one.chance) / (1 - one.chance)


def _finding(family: Family, one: Verdict) -> Finding:
    words = _sentence(one)
    if one.arm.collapsed:
        about = "the defence" if one.arm.defended else "what a model that has learned would leak"
        words += f" The model is below the popularity floor, so this says nothing about {about}."
    luck = "" if one.shuffled is None else f", shuffled labels {one.shuffled:.2f}"
    measure = f"{MEASURES[one.scale].short} {bracketed(one.measure, 2)}, chance {one.chance:g}{luck}"
    return Finding(words, one, family.title(one.audit, one.attribute), measure)


def _sentence(one: Verdict) -> str:
    """The run's own words, or the same over seeds."""
    told = str(one.entries[0]["verdict"].get("sentence") or "")
    if len(one.entries) == 1 and told:
        return told
    if one.turned:
        sight = About(one.attribute, sight_of(one.entries), one.grants, one.scale, one.measure)
        return both_ways(sight, one.turned, len(one.entries))
    return sentence(one.attribute, one.entries, one.leaning, one.measure, one.grants, one.scale)
