"""The judge: what attackers said about targets becomes scores with intervals, and a verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

import torch
from torch import Tensor

from veilrec.attack import GRANTS, Attack
from veilrec.base.keys import Keys
from veilrec.lab.threat import Threat
from veilrec.lab.trials import Goal, People, Trial
from veilrec.metrics import inference as measures
from veilrec.metrics.measures import Measure
from veilrec.metrics.resampling import Measured, combine, mean, permutation_p, summary
from veilrec.metrics.sentences import sentence

__all__ = ["Answer", "Tried", "attribute", "judged", "main_score", "told"]

SURE = 0.05  # a finding has a permutation p-value below this
FEWEST = 5  # targets of a group that gets a number of its own
DIGITS = 4
FAILED = "The attacker that this goes by says the same of everybody: it has failed, and tells nothing."
PAIRED = ("auc", "balanced_accuracy", "macro_f1", "micro_f1")  # kept for each resample of the users
Answer = tuple[
    Trial, Tensor, float
]  # a trial, the scores for all users, and the score on held-out known users


class Tried(NamedTuple):
    """One attacker on one attribute, over all draws of known and target users."""

    name: str
    attack: Attack
    scores: dict[str, Measured]
    p: float | None
    validation: float
    seconds: float
    notes: dict[str, Any]
    answers: list[Answer]


def main_score(truth: Tensor, scores: Tensor) -> float:
    """Score by which attackers are compared: AUC of classes, rank correlation of values."""
    if truth.is_floating_point():
        return float(measures.spearman(truth, scores[:, 0])[0])
    return float(measures.auc(truth, scores)[0])


def judged(
    name: str,
    attack: Attack,
    notes: dict[str, Any],
    goal: Goal,
    answers: Sequence[Answer],
    people: People,
    threat: Threat,
    seconds: float,
    *,
    tested: bool = True,
) -> Tried:
    """An attacker's answers about the targets, scored; users are resampled within each draw.

    Where it is not `tested` it gets no p-value, which takes longer than all the rest.
    """
    each = []
    for trial, scores, _ in answers:
        target = trial.draw.target
        weight = people.weights(target, threat.resamples)
        each.append(measures.judge(goal.label[target], scores[target], weight))
    merged = {key: combine([one[key] for one in each]) for key in each[0]}
    inner = [outside for _, _, outside in answers if not math.isnan(outside)]
    validation = sum(inner) / len(inner) if inner else math.nan
    oracle = threat.selection == "oracle" or attack.oracle  # whose p-value would mean nothing
    p = None if oracle or not tested else _p(goal, answers, threat)
    return Tried(name, attack, merged, p, validation, seconds, notes, list(answers))


def _p(goal: Goal, answers: Sequence[Answer], threat: Threat) -> float:
    """Permutation p-value; over several draws twice the median, which is valid however they depend."""
    values = []
    for place, (trial, scores, _) in enumerate(answers):
        target, keys = trial.draw.target, Keys.seed(0).fold("permute").fold(place)
        values.append(permutation_p(goal.label[target], scores[target], keys, threat.permutations))
    return values[0] if len(values) == 1 else min(1.0, 2 * median(values))


def attribute(
    goal: Goal, trials: Sequence[Trial], tried: Sequence[Tried], people: People, threat: Threat
) -> dict[str, Any]:
    """Everything about one attribute, as ``result.json`` keeps it."""
    first = trials[0].draw
    worst = _worst(tried)
    found: dict[str, Any] = {
        "kind": "class" if goal.classes else "value",
        **_described(goal),
        "known": int(first.known.sum()),
        "targets": int(first.target.sum()),
        "floors": _floors(goal, trials),
        "attackers": [_attacker(one) for one in tried],
        "verdict": None,
        "groups": [],
    }
    if worst is not None:
        found["verdict"] = _verdict(goal, worst, tried)
        found["verdict"]["sentence"] = _sentence(goal, worst, found, threat)
        found["groups"] = _groups(goal, worst, people, threat) if goal.classes else []
    return found


def _described(goal: Goal) -> dict[str, Any]:
    if goal.classes:
        counts = torch.bincount(goal.label[goal.label >= 0], minlength=goal.classes)
        return {"classes": list(goal.names), "counts": counts.tolist()}
    value = goal.label[~goal.label.isnan()]
    return {"range": [float(value.min()), float(value.max())], "mean": round(float(value.mean()), DIGITS)}


def _floors(goal: Goal, trials: Sequence[Trial]) -> dict[str, dict[str, float]]:
    """The mean over the draws of what guessing without looking reaches."""
    label = goal.label
    each = [measures.floors(label[t.draw.known], label[t.draw.target], goal.classes) for t in trials]
    return {
        name: {key: round(sum(one[name][key] for one in each) / len(each), DIGITS) for key in each[0][name]}
        for name in each[0]
    }


def _attacker(one: Tried) -> dict[str, Any]:
    attack = one.attack
    return {
        "name": one.name,
        "reads": getattr(attack, "reads", ""),
        "parts": list(getattr(attack, "parts", ())),
        "classifier": (getattr(attack, "classifiers", None) or [one.name])[0],
        "family": attack.family,
        "oracle": attack.oracle,
        "scores": {key: told(measured) for key, measured in one.scores.items()},
        "replicates": replicates(one),
        "p": one.p,
        "validation": None if math.isnan(one.validation) else round(one.validation, DIGITS),
        "seconds": round(one.seconds, 3),
        "notes": one.notes,
    }


def told(measured: Measured) -> dict[str, float]:
    """A number with its interval."""
    return {key: round(float(getattr(measured, key)), DIGITS) for key in ("value", "low", "high")}


def replicates(one: Tried) -> dict[str, list[float]]:
    """Scores on each resample of the users, so that two attackers, or two runs, can be compared in pairs."""
    kept = {key: one.scores[key].replicates for key in PAIRED if key in one.scores}
    return {key: [round(float(value), DIGITS) for value in values] for key, values in kept.items()}


def _real(tried: Sequence[Tried]) -> list[Tried]:
    """All but floors, and oracles only where there is nobody else."""
    able = [one for one in tried if one.attack.family != "floor"]
    return [one for one in able if not one.attack.oracle] or able


def _blind(real: Sequence[Tried]) -> bool:
    """Whether no attacker of an audit learns from the known users."""
    return not any(one.attack.learns for one in real)


def _worst(tried: Sequence[Tried]) -> Tried | None:
    """The attacker who was furthest from chance on held-out known users; the targets have no say in it.

    Where none of them learns, the known users are in none of them and are only fewer: the worst is then the
    one who was furthest from chance on the targets.
    """
    real = _real(tried)
    blind = _blind(real)

    def distance(one: Tried) -> float:
        key, chance = ("auc", 0.5) if "auc" in one.scores else ("spearman", 0.0)
        above = (one.scores[key].value if blind and key in one.scores else one.validation) - chance
        return -1.0 if math.isnan(above) else above if one.attack.learns else abs(above)

    return max(real, key=distance, default=None)


def _verdict(goal: Goal, worst: Tried, tried: Sequence[Tried]) -> dict[str, Any]:
    key = "auc" if goal.classes else "spearman"
    measured = worst.scores[key]
    leaning = Measure(*measured[:3]).leaning(0.5 if goal.classes else 0.0)
    # An interval alone would cry wolf once in twenty, and the best of several readers more often.
    real = _real(tried)
    sure = worst.p is None or worst.p * (len(real) if _blind(real) else 1) < SURE
    leaning = leaning if sure else "none"
    families = sorted({one.attack.family for one in tried} - {"floor"})
    return {
        "attacker": worst.name,
        "families": families,
        "score": key,
        key: told(measured),
        "leaning": leaning,
        "replicates": [round(float(value), DIGITS) for value in measured.replicates],
    }


def _sentence(goal: Goal, worst: Tried, found: Mapping[str, Any], threat: Threat) -> str:
    """The finding in plain words, from numbers that are not rounded yet."""
    verdict, scores = found["verdict"], {key: one.plain() for key, one in worst.scores.items()}
    entry = {**found, "attackers": [{**_attacker(worst), "scores": scores}]}
    grants, scale = [GRANTS[grant] for grant in threat.grants], verdict["score"]
    return sentence(goal.name, [entry], verdict["leaning"], Measure(*worst.scores[scale][:3]), grants, scale)


def _groups(goal: Goal, worst: Tried, people: People, threat: Threat) -> list[dict[str, Any]]:
    """Share of right guesses of the worst attacker in each group of users, by each attribute with classes."""
    found = []
    for by, label in people.labels.items():
        names = [*people.classes.get(by, ()), *map(str, range(int(label.max()) + 1))]
        for number in range(int(label.max()) + 1):
            each, users = [], 0
            for trial, scores, _ in worst.answers:
                inside = trial.draw.target & (label.cpu() == number)
                if int(inside.sum()) < FEWEST:
                    continue
                users = users or int(inside.sum())
                weight = people.weights(inside, threat.resamples)
                right = (scores[inside].argmax(1) == goal.label[inside]).double()
                share = float(right.mean())
                each.append(summary(share, mean(right, weight)))
            if each:
                rate = told(combine(each))
                found.append({"by": by, "group": str(names[number]), "users": users, "micro_f1": rate})
    return found
