"""Topics: what an attacker may find out, one at a time and worst first, with every arm's number under it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from veilrec.metrics.arms import Arm, Family, terms
from veilrec.metrics.leaks import attacker_of
from veilrec.metrics.measures import Measure
from veilrec.metrics.words import bracketed
from veilrec.report.findings import Finding, findings, strip, strip_of
from veilrec.report.verdicts import membership

__all__ = ["HISTORY", "ArmLine", "Topic", "severity", "topics", "touching"]

HISTORY = "which items a person touched"
STEPS = ((0.5, "high"), (0.2, "medium"), (0.0, "low"))  # shares of the way from chance to certainty
WAYS = {
    "rows": "by the rows that were sent or moved",
    "norms": "by how far each row moved",
    "direction": "by where each row moved",
}


class ArmLine(NamedTuple):
    """One arm under a topic: its number, drawn and in words, and the sentence that tells it."""

    arm: Arm
    measure: str
    strip: Mapping[str, float] | None
    leaning: str
    sentence: str
    terms: str


class Topic(NamedTuple):
    """One thing that may be found out.

    Attributes:
        title: What it is, in words.
        audit: The protocol by which it was tried.
        severity: ``high``, ``medium``, ``low`` or ``none``, of the worst arm that has learned.
        lines: Every arm, the worst first.
        same: A sentence where arms have the same digits; else "".
        advice: What to try next, in words, and the command for it; "" where there is none.
    """

    title: str
    audit: str
    severity: str
    lines: Sequence[ArmLine]
    same: str
    advice: tuple[str, str]


def topics(family: Family) -> list[Topic]:
    """Everything that was tried, worst first; what only a collapsed model leaks comes last."""
    found: list[tuple[float, Topic]] = []
    told = findings(family)
    for audit in family.audits:
        for attribute in family.attributes(audit):
            mine = [one for one in told if (one.verdict.audit, one.verdict.attribute) == (audit, attribute)]
            if mine:
                found.append(_of_attribute(family, mine))
        if any(lines := list(_touched(family, audit))):
            found.append(_of_history(family, audit, lines))
    return [topic for _, topic in sorted(found, key=lambda pair: -pair[0])]


def severity(leak: Measure, chance: float, leaning: str) -> str:
    """How bad a leak is, by the way from chance to certainty."""
    if leaning == "none":
        return "none"
    return next(word for least, word in STEPS if _depth(leak, chance) >= least)


def touching(arm: Arm, audit: str) -> tuple[str, Measure] | None:
    """The way by which one upload tells best which items a person touched, and how well."""
    ways = membership(arm, audit)
    return max(ways.items(), key=lambda way: way[1].folded(0.5).value, default=None)


def _of_attribute(family: Family, mine: Sequence[Finding]) -> tuple[float, Topic]:
    lines = [
        ArmLine(f.arm, f.measure, strip(f.verdict), f.verdict.leaning, f.sentence, str(f.terms)) for f in mine
    ]
    worst = mine[0].verdict
    word = "none" if worst.arm.collapsed else severity(worst.leak, worst.chance, worst.leaning)
    depth = -1.0 if word == "none" else _depth(worst.leak, worst.chance)
    leaks = [(one.arm, one.verdict.leak) for one in mine]
    advice = _filled(STRONGER, worst.arm) if word == "none" else _advice(leaks)
    title = family.title(worst.audit, worst.attribute)
    return depth, Topic(title, worst.audit, word, lines, "".join(_same(mine)), advice)


def _of_history(family: Family, audit: str, found: Sequence[tuple[Arm, str, Measure]]) -> tuple[float, Topic]:
    lines = [_history_line(family, audit, *one) for one in found]
    arm, _, most = found[0]
    word = "none" if arm.collapsed else severity(most.folded(0.5), 0.5, most.leaning(0.5))
    words, command = _advice([(arm, one.folded(0.5)) for arm, _, one in found])
    advice = (f"{SUMS} {words}", command) if word != "none" else ("", "")
    title = family.title(audit, HISTORY)
    return (-1.0 if word == "none" else _depth(most.folded(0.5), 0.5)), Topic(
        title, audit, word, lines, "", advice
    )


def _touched(family: Family, audit: str) -> Iterator[tuple[Arm, str, Measure]]:
    """Arms with the way that tells most, the worst first."""
    there = [(arm, *way) for arm in family.arms if (way := touching(arm, audit))]
    yield from sorted(there, key=lambda one: (bool(one[0].collapsed), -one[2].folded(0.5).value))


def _history_line(family: Family, audit: str, arm: Arm, way: str, most: Measure) -> ArmLine:
    leaning, share = most.leaning(0.5), 100 * most.folded(0.5).value
    often = "nearly always" if share >= 99.5 else f"{share:.0f} times of 100"
    said = (
        f"From one upload of a person an item that they touched is told {often} from one that they did not "
        f"(chance: 50 of 100), {WAYS.get(way, way)}, by somebody who knows nothing about anybody."
    )
    if leaning == "none":
        said = "From one upload of a person nobody tells the items that they touched from others."
    told = f"AUC {bracketed(most, 2)}, chance 0.5"
    return ArmLine(
        arm, told, strip_of(most, 0.5, leaning), leaning, said, str(terms(arm, audit)).split(";")[0]
    )


def _depth(leak: Measure, chance: float) -> float:
    return round((leak.value - chance) / (1 - chance), 9)


def _same(mine: Sequence[Finding]) -> Iterator[str]:
    """Arms whose verdicts agree to the last digit on every resample of the users: no error, and why."""
    for k, one in enumerate(mine):
        for other in mine[k + 1 :]:
            first, second = one.verdict.measure, other.verdict.measure
            if first.replicates.size and np.array_equal(first.replicates, second.replicates):
                yield (
                    f"{one.arm.label} and {other.arm.label} have the same digits, which is no mistake: "
                    f"{_why(one)}, and ranks everybody alike. "
                )


def _why(one: Finding) -> str:
    reads = {str(attacker_of(entry).get("reads")) for entry in one.verdict.entries}
    if reads == {"profile"}:
        return "the attacker reads each person's history off the upload, which is the same in both"
    return "the attacker sees the same in both"


STRONGER = (
    "Not found is not hidden: let another protocol try, with other attackers.",
    "veilrec attack {run} --preset pard",
)
NOISE = (
    "Put noise on all that is uploaded, begin with little, and compare: leakage and usefulness both go down.",
    "veilrec run {run}/recipe.toml --set defence.0.name=Laplace --set defence.0.what={sends} "
    "--set defence.0.rows=all --set defence.0.clip=0.002 --set defence.0.scale=0.001 --out runs/noise",
)
SUMS = (
    "The server sees each upload by itself: which rows moved in it, and where to. Let nothing but the sum "
    'over a cohort leave (plan.forwards = "all" in a recipe without attacks); or put noise on all rows.'
)
MORE = ("The defence leaves it: see what others protect.", "veilrec list defences")
AGAIN = (
    "{best} leaves least of it here. See whether that holds for another seed.",
    "veilrec run {run}/recipe.toml --seed {seed} --out runs/again",
)


def _advice(lines: Sequence[tuple[Arm, Measure]]) -> tuple[str, str]:
    """What to try next about a leak, of which arms are given with the worst first."""
    worst, most = lines[0]
    able = [(arm, leak) for arm, leak in lines if arm.defended and not arm.collapsed]
    best, least = min(able, key=lambda one: one[1].value, default=(worst, most))
    if least.high < most.low:
        seed = max((seed for seed in best.seeds if isinstance(seed, int)), default=0) + 1
        return _filled(AGAIN, best, best=best.label, seed=seed)
    return _filled(MORE if able else NOISE, worst)


def _filled(advice: tuple[str, str], arm: Arm, **more: object) -> tuple[str, str]:
    run = next(iter(arm.runs.values())).name
    sends = (arm.first.settings.get("protocol") or {}).get("sends", "weights")
    told = {"run": shlex.quote(run), "sends": shlex.quote(str(sends)), **more}
    return advice[0].format(**more), advice[1].format(**told)
