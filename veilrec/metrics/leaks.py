"""Leaks: what the verdicts of finished runs say that the worst attacker reached, as numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from veilrec.errors import Corrupted
from veilrec.metrics.measures import Measure, together
from veilrec.result import Result

__all__ = [
    "BEFORE",
    "FEWER",
    "RULE",
    "Leak",
    "NamedRun",
    "attacker_of",
    "found_in",
    "leak_of",
    "leaks_by_seed",
    "mute",
    "of_before",
    "only_read",
]

RULE = "furthest from chance, on either side"  # how the attacker is chosen whom a verdict goes by
FEWER = {  # verdicts on fewer users, beside that on all: who is left out
    "without_copies": "of whom a copy is known",
    "without_zeros": "whose vector is all zeros",
}
BEFORE = "verdict of before, which passed over attackers that read an attribute turned round"


class NamedRun(NamedTuple):
    """A finished run and where it lies."""

    name: str
    result: Result


class Leak(NamedTuple):
    """The worst attacker's score on one attribute, turned round where it is surely below chance."""

    measure: Measure
    score: str
    chance: float
    turned: bool

    @property
    def spoken(self) -> str:
        """The score in words."""
        return "AUC" if self.score == "auc" else "rank correlation"


def of_before(audit: Mapping[str, Any]) -> bool:
    """Whether the verdicts of a stored audit were made when only scores above chance counted."""
    return bool(audit.get("attributes")) and audit.get("rule") != RULE


def mute(attacker: Mapping[str, Any]) -> bool:
    """Whether an attacker of a result said the same of everybody, though users differ in some column.

    Its AUC is then one half whoever is drawn: it has failed, which tells nothing of what could be found.
    """
    area = (attacker.get("scores") or attacker).get("auc") or {}  # those of a part lie open
    same = {area.get(key) for key in ("value", "low", "high")} == {0.5}
    return same and (attacker.get("notes") or {}).get("kept") != 0


def attacker_of(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """The attacker whom the verdict on an attribute names; nothing where it is not among them."""
    name = entry["verdict"].get("attacker")
    none: Mapping[str, Any] = {}
    return next((one for one in entry.get("attackers") or () if one.get("name") == name), none)


def only_read(attackers: Iterable[Mapping[str, Any]]) -> bool:
    """Whether all of a stored audit's attackers, floors aside, read gradients: they learn from nobody."""
    return {one.get("family") for one in attackers} - {"floor"} == {"gradient"}


def found_in(run: NamedRun, audit: str, attribute: str) -> Leak | None:
    """Read the worst attacker's score on an attribute from a run; None where nobody tried."""
    entry = run.result.privacy.get(audit, {}).get("attributes", {}).get(attribute) or {}
    verdict = entry.get("verdict")
    if not verdict:
        return None
    try:
        return _turned(verdict)
    except (KeyError, TypeError, ValueError) as cause:
        raise Corrupted(
            f"{run.name}: the verdict on {attribute} cannot be read ({cause!r}); attack it again"
        ) from cause


def _turned(verdict: Mapping[str, Any]) -> Leak:
    score = verdict.get("score", "auc")
    chance, turned = (0.5 if score == "auc" else 0.0), verdict["leaning"] == "below"
    sign = -1.0 if turned else 1.0
    again = np.asarray(verdict["replicates"], dtype=np.float64)
    value = float(verdict[score]["value"])
    upright = chance + sign * (again - chance)
    measure = Measure(chance + sign * (value - chance), replicates=upright, turned=turned)
    return Leak(measure, score, chance, turned)


def leaks_by_seed(runs: Mapping[Any, NamedRun], audit: str, attribute: str) -> dict[Any, Measure]:
    """How far the worst attacker is from chance, added to chance, in each run in which somebody tried."""
    found = {seed: found_in(run, audit, attribute) for seed, run in runs.items()}
    there = {seed: one for seed, one in found.items() if one is not None}
    return {seed: one.measure for seed, one in _on_one_side(there).items()}


def _on_one_side(found: Mapping[Any, Leak]) -> dict[Any, Leak]:
    """Leaks, those that are not surely below chance turned as well where together they lie below it.

    What lies below chance by luck is as far from it as what lies above by as much, and leaks no less.
    """
    rest = {seed: one for seed, one in found.items() if not one.turned}
    mean = fmean(one.measure.value - one.chance for one in rest.values()) if rest else 0.0
    if mean >= 0:
        return dict(found)
    return {
        seed: one if one.turned else one._replace(measure=one.measure.mirrored(one.chance))
        for seed, one in found.items()
    }


def leak_of(runs: Mapping[Any, NamedRun], audit: str, attribute: str) -> Leak | None:
    """The leak of a group, over its seeds; None where a run is missing it."""
    several = {
        seed: one for seed, run in runs.items() if (one := found_in(run, audit, attribute)) is not None
    }
    if len(several) < len(runs):
        return None
    turned = any(one.turned for one in several.values())
    found = list((_on_one_side(several) if turned else several).values())
    return Leak(
        together([one.measure for one in found], found[0].score),
        found[0].score,
        found[0].chance,
        any(one.turned for one in found),
    )
