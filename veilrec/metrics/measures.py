"""Numbers of a run with the doubt about them: over the users, and over the seeds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from veilrec.errors import Corrupted
from veilrec.result import Result

__all__ = [
    "Found",
    "Leak",
    "Measure",
    "Run",
    "epsilon_of",
    "found_in",
    "interval",
    "leak_of",
    "mute",
    "only_read",
    "usefulness",
]

STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160)
NORMAL = 1.96


class Measure(NamedTuple):
    """A mean over seeds; the ends of its 95 % interval are None where nothing was resampled."""

    value: float
    low: float | None = None
    high: float | None = None


class Run(NamedTuple):
    """A finished run and where it lies."""

    name: str
    result: Result


class Leak(NamedTuple):
    """What the worst attacker reaches on one attribute, turned round where it is surely below chance."""

    measure: Measure
    score: str
    chance: float
    turned: bool


class Found(NamedTuple):
    """A verdict as numbers, turned round where it is surely below chance."""

    value: float
    replicates: NDArray[np.float64]
    score: str
    chance: float
    turned: bool


def mute(attacker: Mapping[str, Any]) -> bool:
    """Whether an attacker of a result said the same of everybody, though users differ in some column.

    Its AUC is then one half whoever is drawn: it has failed, which tells nothing of what could be found.
    """
    area = (attacker.get("scores") or attacker).get("auc") or {}  # those of a part lie open
    same = {area.get(key) for key in ("value", "low", "high")} == {0.5}
    return same and (attacker.get("notes") or {}).get("kept") != 0


def interval(values: Sequence[float], replicates: Sequence[Sequence[float]]) -> Measure:
    """The mean of one value a seed, with the doubt about users and the doubt about seeds.

    Args:
        values: One a seed.
        replicates: ``[seeds][resamples]`` of the same resamples of users; the shortest decides how many.
    """
    mean = float(np.mean(values))
    shortest = min(len(one) for one in replicates)
    if not shortest:
        return Measure(mean)
    over_users = np.mean([np.asarray(one[:shortest], dtype=np.float64) for one in replicates], axis=0)
    low, high = np.percentile(over_users, [2.5, 97.5]).tolist()
    luck = 0.0
    if (seeds := len(values)) > 1:
        luck = _student(seeds - 1) * float(np.std(values, ddof=1)) / math.sqrt(seeds)
    return Measure(
        mean, mean - math.hypot(max(0.0, mean - low), luck), mean + math.hypot(max(0.0, high - mean), luck)
    )


def _student(freedom: int) -> float:
    return STUDENT[freedom - 1] if freedom <= len(STUDENT) else NORMAL + 2.7 / freedom


def usefulness(result: Result, metric: str) -> Sequence[float]:
    """The replicates of a metric, or none."""
    return result.utility_replicates.get(metric) or ()


def epsilon_of(result: Result) -> float | None:
    """The composed ε of the user who gave most, where anything is guaranteed."""
    if not result.ledger.get("guarantee"):
        return None
    found = ((result.ledger.get("composed") or {}).get("epsilon") or {}).get("max")
    return None if found is None else float(found)


def found_in(run: Run, audit: str, attribute: str) -> Found | None:
    """What the worst attacker of a run reached on an attribute; None where nobody tried."""
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


def _turned(verdict: Mapping[str, Any]) -> Found:
    score = verdict.get("score", "auc")
    chance, turned = (0.5 if score == "auc" else 0.0), verdict["leaning"] == "below"
    sign = -1.0 if turned else 1.0
    replicates = np.asarray(verdict["replicates"], dtype=np.float64)
    value = float(verdict[score]["value"])
    return Found(
        chance + sign * (value - chance), chance + sign * (replicates - chance), score, chance, turned
    )


def leak_of(runs: Mapping[int, Run], audit: str, attribute: str) -> Leak | None:
    """The same over the seeds of a group; None where a run is missing it."""
    found = [one for run in runs.values() if (one := found_in(run, audit, attribute)) is not None]
    if len(found) < len(runs):
        return None
    measure = interval([one.value for one in found], [one.replicates.tolist() for one in found])
    return Leak(measure, found[0].score, found[0].chance, any(one.turned for one in found))


def only_read(attackers: Iterable[Mapping[str, Any]]) -> bool:
    """Whether all of a stored audit's attackers, floors aside, read gradients: they learn from nobody."""
    return {one.get("family") for one in attackers} - {"floor"} == {"gradient"}
