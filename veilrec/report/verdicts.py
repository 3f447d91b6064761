"""Verdicts: what the attacks of an arm found out, over all its seeds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, NamedTuple

from veilrec.metrics.alike import unlike
from veilrec.metrics.arms import Arm, Family, FindingTerms, terms
from veilrec.metrics.leaks import attacker_of
from veilrec.metrics.measures import Measure, average, combined_p, gathered, pool, read

__all__ = [
    "MEASURES",
    "SCALES",
    "Attacker",
    "ScoreName",
    "Verdict",
    "attackers",
    "floors",
    "measures",
    "membership",
    "not_alike",
    "parts",
    "verdict",
    "verdicts",
    "worst",
]


class ScoreName(NamedTuple):
    """A measure of attacks: its names, long to short, and what chance gives, if that is one number."""

    words: str
    name: str
    short: str
    chance: float | None = None


MEASURES = {
    "auc": ScoreName("AUC: of two users of different classes, how often ranked right", "AUC", "AUC", 0.5),
    "micro_f1": ScoreName("how often the guess is right (micro-F1)", "how often right", "right"),
    "balanced_accuracy": ScoreName(
        "how often right, every class weighing the same (balanced accuracy)", "balanced accuracy", "balanced"
    ),
    "macro_f1": ScoreName("macro-F1", "macro-F1", "macro-F1"),
    "tpr_at_1": ScoreName(
        "share found at 1 % false alarms (true positive rate)",
        "found at 1 % false alarms",
        "TPR at 1 %",
        0.01,
    ),
    "spearman": ScoreName(
        "Spearman's rank correlation ρ of guess and truth", "rank correlation", "Spearman's ρ", 0.0
    ),
    "r2": ScoreName("R² of the guess", "R²", "R²", 0.0),
    "mae": ScoreName("mean distance of guess and truth", "mean distance", "distance"),
}
SCALES = ("auc", "spearman", "r2")  # what a verdict may be given in, first found


@dataclass(frozen=True)
class Verdict:
    """The worst attacker of several families on one attribute.

    Attributes:
        arm, audit, attribute: Of what.
        scale: The measure: ``auc``, or ``spearman`` or ``r2`` for a continuous attribute.
        by_seed: The measure by seed, with replicates where the run kept them.
        measure: The same over all seeds.
        leaning: ``above``, ``below`` or ``none``: the interval against chance, and p where one is given.
        attackers: Who it was, and in how many seeds.
        entries: What each run says about the attribute, in the order of the seeds.
        turned: In how many seeds it is read turned round while others read it upright; those are turned here.
        shuffled: What the same attackers reach where labels are shuffled, mean over the seeds.
    """

    arm: Arm
    audit: str
    attribute: str
    scale: str
    by_seed: Mapping[Any, Measure]
    measure: Measure
    leaning: str
    attackers: Mapping[str, int]
    entries: Sequence[Mapping[str, Any]]
    turned: int = 0
    shuffled: float | None = None

    @property
    def chance(self) -> float:
        """The score of guessing on this scale."""
        return MEASURES[self.scale].chance or 0.0

    @property
    def leak(self) -> Measure:
        """The distance from chance, above or below, added to chance."""
        return self.measure.folded(self.chance)

    @property
    def classes(self) -> bool:
        """Whether the attribute has classes."""
        return self.scale == "auc"

    @property
    def grants(self) -> list[str]:
        """Everything granted to the attacker beyond what it saw, in any seed."""
        return self.terms.grants

    @property
    def terms(self) -> FindingTerms:
        """The protocol under which it holds."""
        return terms(self.arm, self.audit)


class Attacker(NamedTuple):
    """One attacker over all seeds of an arm."""

    name: str
    family: str
    oracle: bool
    scores: Mapping[str, Measure]
    p: float | None


def verdict(arm: Arm, audit: str, attribute: str) -> Verdict | None:
    """The verdict of an arm's runs on an attribute; None where they have none."""
    entries = {seed: entry for seed, entry in _entries(arm, audit, attribute).items() if entry.get("verdict")}
    given = {seed: entry["verdict"] for seed, entry in entries.items()}
    scale = next((name for name in SCALES if any(one.get(name) for one in given.values())), None)
    by_seed, turned = _upright(_scores(given, scale), given, scale) if scale else ({}, 0)
    if scale is None or not by_seed:
        return None
    told = [entries[seed] for seed in by_seed]
    measure = replace(pool(list(by_seed.values()), scale), p=combined_p(_of_attackers(told, "p")))
    leaning = measure.leaning(MEASURES[scale].chance or 0.0)
    if not measure.sure:
        leaning = str(next(iter(given.values())).get("leaning", "none"))
    names = Counter(str(given[seed].get("attacker", "")) for seed in by_seed)
    shuffled = average(_shuffled(given[seed]) for seed in by_seed)
    return Verdict(arm, audit, attribute, scale, by_seed, measure, leaning, names, told, turned, shuffled)


def _scores(given: Mapping[Any, Mapping[str, Any]], scale: str) -> dict[Any, Measure]:
    """The measures of verdicts by seed, where they have them."""
    found = {seed: read(one.get(scale), one.get("replicates") or ()) for seed, one in given.items()}
    return {seed: measure for seed, measure in found.items() if measure}


def _shuffled(given: Mapping[str, Any]) -> float | None:
    """What a verdict says that its attacker reaches where labels are shuffled."""
    found = read((given.get("shuffled") or {}).get("value"))
    return found.value if found else None


def _upright(
    found: Mapping[Any, Measure], given: Mapping[Any, Mapping[str, Any]], scale: str
) -> tuple[dict[Any, Measure], int]:
    """The measures by seed; where seeds differ in direction those below chance are turned, and how many."""
    leanings = {seed: str(given[seed].get("leaning")) for seed in found}
    if not {"above", "below"} <= set(leanings.values()):
        return dict(found), 0
    chance = MEASURES[scale].chance or 0.0
    upright = {seed: m.mirrored(chance) if leanings[seed] == "below" else m for seed, m in found.items()}
    return upright, list(leanings.values()).count("below")


def _of_attackers(entries: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    """A number of each verdict's attacker, where it is given."""
    found = (read(attacker_of(entry).get(name)) for entry in entries)
    return [one.value for one in found if one]


def verdicts(family: Family) -> list[Verdict]:
    """Every verdict of every arm."""
    found = (
        verdict(arm, audit, attribute)
        for audit in family.audits
        for attribute in family.attributes(audit)
        for arm in family.arms
    )
    return [one for one in found if one]


def worst(arm: Arm, audit: str, attributes: Sequence[str]) -> Verdict | None:
    """The attribute with classes that leaks most."""
    found = [verdict(arm, audit, attribute) for attribute in attributes]
    return max((one for one in found if one and one.classes), key=lambda one: one.leak.value, default=None)


def not_alike(first: Verdict, second: Verdict) -> str:
    """Name what keeps two verdicts from being compared, by the rule of `veilrec compare`; or nothing."""
    one, other = first.arm.seeds, second.arm.seeds
    pairs = [(one[seed], other[seed]) for seed in one if seed in other] or [
        (first.arm.first, second.arm.first)
    ]
    there = [pair for pair in pairs if all(first.audit in result.privacy for result in pair)]
    told = (unlike(*pair, first.audit, first.attribute) for pair in there)
    return next((what for what in told if what), "")


def attackers(arm: Arm, audit: str, attribute: str) -> dict[str, Attacker]:
    """Every attacker by name."""
    found = gathered(
        (str(attacker["name"]), attacker)
        for entry in _entries(arm, audit, attribute).values()
        for attacker in entry.get("attackers") or ()
    )
    return {name: _attacker(name, seeds) for name, seeds in found.items()}


def measures(family: Family, audit: str, attribute: str) -> list[str]:
    """The measures that any attacker on the attribute was given."""
    found = (
        name
        for arm in family.arms
        for one in attackers(arm, audit, attribute).values()
        for name in one.scores
    )
    there = set(found)
    return [name for name in MEASURES if name in there]


def floors(family: Family, audit: str, attribute: str, measure: str) -> dict[str, float]:
    """Scores of guessing without looking, by kind of guess."""
    found = gathered(
        (str(kind), one.value)
        for arm in family.arms
        for entry in _entries(arm, audit, attribute).values()
        for kind, values in (entry.get("floors") or {}).items()
        if (one := read(values.get(measure)))
    )
    return {kind: fmean(values) for kind, values in found.items()}


def parts(arm: Arm, audit: str, attribute: str) -> dict[str, Measure]:
    """The AUC, or what stands for it, from each part of the model alone."""
    found = gathered(
        ((str(part["part"]), scale), measure)
        for entry in _entries(arm, audit, attribute).values()
        for part in entry.get("parts") or ()
        if (scale := next((scale for scale in SCALES if read(part.get(scale))), ""))
        and (measure := read(part[scale]))
    )
    return {name: pool(seeds, scale) for (name, scale), seeds in found.items()}


def membership(arm: Arm, audit: str) -> dict[str, Measure]:
    """AUC of telling which items a user touched, by each way, turned round in seeds below chance."""
    found = gathered(
        (str(name), measure.upright(0.5))
        for result in arm.results
        for name, entry in (result.privacy.get(audit, {}).get("membership") or {}).items()
        if isinstance(entry, Mapping) and (measure := read(entry))
    )
    return {
        name: replace(pool(seeds, "auc"), turned=any(one.turned for one in seeds))
        for name, seeds in found.items()
    }


def _entries(arm: Arm, audit: str, attribute: str) -> dict[Any, Mapping[str, Any]]:
    found = {
        seed: (result.privacy.get(audit, {}).get("attributes") or {}).get(attribute)
        for seed, result in arm.seeds.items()
    }
    return {seed: entry for seed, entry in found.items() if entry}


def _attacker(name: str, seeds: Sequence[Mapping[str, Any]]) -> Attacker:
    scores = {
        measure: [found for one in seeds if (found := read((one.get("scores") or {}).get(measure)))]
        for measure in MEASURES
    }
    p = combined_p([found.value for one in seeds if (found := read(one.get("p")))])
    return Attacker(
        name,
        str(seeds[0].get("family", "")),
        any(bool(one.get("oracle")) for one in seeds),
        {measure: replace(pool(found, measure), p=p) for measure, found in scores.items() if found},
        p,
    )
