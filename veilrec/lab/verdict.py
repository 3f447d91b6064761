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
from veilrec.lab.soundness.shuffled import together
from veilrec.lab.threat import Threat
from veilrec.lab.trials import Goal, People, Trial
from veilrec.metrics import inference as measures
from veilrec.metrics.measures import Measure
from veilrec.metrics.resampling import Measured, combine, dealt, mean, summary
from veilrec.metrics.sentences import sentence

__all__ = ["TrialAnswer", "Tried", "attribute", "judged", "main_score", "told"]

SURE = 0.05  # a finding has a permutation p-value below this
FEWEST = 5  # targets of a group that gets a number of its own
DIGITS = 4
CHANCE = {"auc": 0.5, "spearman": 0.0}
FAILED = "The attacker that this goes by says the same of everybody: it has failed, and tells nothing."
PAIRED = ("auc", "balanced_accuracy", "macro_f1", "micro_f1")  # kept for each resample of the users


class TrialAnswer(NamedTuple):
    """What an attacker says in one trial.

    Attributes:
        trial: The draw of known and target users.
        scores: ``[users, classes]`` for everybody.
        outside: The score on known users who were held out; NaN where none were.
        luck: ``[deals]`` how far above chance an oracle's choice is where labels are dealt at random; None
            where nothing was chosen by the targets.
    """

    trial: Trial
    scores: Tensor
    outside: float
    luck: Tensor | None = None


class Tried(NamedTuple):
    """One attacker on one attribute, over all draws of known and target users.

    `luck` ``[deals]`` is how far above chance it is where the labels of the targets are dealt at random; None
    where nobody dealt.
    """

    name: str
    attack: Attack
    scores: dict[str, Measured]
    p: float | None
    luck: Tensor | None
    validation: float
    seconds: float
    notes: dict[str, Any]
    answers: list[TrialAnswer]


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
    answers: Sequence[TrialAnswer],
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
    for answer in answers:
        target = answer.trial.draw.target
        weight = people.weights(target, threat.resamples)
        each.append(measures.judge(goal.label[target], answer.scores[target], weight))
    merged = {key: combine([one[key] for one in each]) for key in each[0]}
    inner = [answer.outside for answer in answers if not math.isnan(answer.outside)]
    validation = sum(inner) / len(inner) if inner else math.nan
    p, luck = _permuted(goal, answers, threat) if tested else (None, None)
    if threat.selection == "oracle" or attack.oracle:
        p = None  # it would mean nothing
    return Tried(name, attack, merged, p, luck, validation, seconds, notes, list(answers))


def _permuted(goal: Goal, answers: Sequence[TrialAnswer], threat: Threat) -> tuple[float, Tensor]:
    """The permutation p-value, and what the same permutations give the attacker by luck.

    Over several draws p is twice the median, which is valid however they depend. All attackers meet the same
    permutations, so that the luckiest of them can be told.
    """
    found, luck = [], []
    for place, answer in enumerate(answers):
        target, keys = answer.trial.draw.target, Keys.seed(0).fold("permute").fold(place)
        one = dealt(goal.label[target], answer.scores[target], keys, threat.permutations)
        found.append(one.p)
        luck.append(one.luck if answer.luck is None else answer.luck)
    p = found[0] if len(found) == 1 else min(1.0, 2 * median(found))
    return p, together([answer.trial.draw for answer in answers], luck)


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

    Below chance counts as above it: whoever is wrong more often than chance has learned the answer, turned
    round. So it is of maps that make classes exactly alike over all users, where those who are attacked make
    up for those who are known. Where no attacker learns, the known users are in none of them and are only
    fewer: the worst is then the one who was furthest from chance on the targets.
    """
    real = _real(tried)
    blind = _blind(real)

    def distance(one: Tried) -> float:
        key = _scale(one)
        there = one.scores[key].value if blind and key in one.scores else one.validation
        return -1.0 if math.isnan(there) else abs(there - CHANCE[key])

    return max(real, key=distance, default=None)


def _scale(one: Tried) -> str:
    return "auc" if "auc" in one.scores else "spearman"


def _verdict(goal: Goal, worst: Tried, tried: Sequence[Tried]) -> dict[str, Any]:
    key = "auc" if goal.classes else "spearman"
    measured = worst.scores[key]
    leaning = Measure(*measured[:3]).leaning(CHANCE[key])
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
        "shuffled": _shuffled(worst, real, CHANCE[key]),
        "replicates": [round(float(value), DIGITS) for value in measured.replicates],
    }


def _shuffled(worst: Tried, real: Sequence[Tried], chance: float) -> dict[str, float] | None:
    """The floor of shuffled labels: how far from chance the verdict's attacker is by luck, added to chance.

    Where the attacker was chosen by the targets, it is the luckiest of all in each deal.
    """
    several = real if _blind(real) else [worst]
    luck = [one.luck.abs() for one in several if one.luck is not None]
    if not luck or not len(luck[0]):
        return None
    most = torch.stack([one[: min(map(len, luck))] for one in luck]).amax(0)
    high = float(most.quantile(1 - SURE))
    return {"value": round(chance + float(most.mean()), DIGITS), "high": round(chance + high, DIGITS)}


def _sentence(goal: Goal, worst: Tried, found: Mapping[str, Any], threat: Threat) -> str:
    """The finding in plain words, from numbers that are not rounded yet."""
    verdict, scores = found["verdict"], {key: one.plain() for key, one in worst.scores.items()}
    others = [one for one in found["attackers"] if one["name"] != worst.name]
    entry = {**found, "attackers": [{**_attacker(worst), "scores": scores}, *others]}
    grants, scale = [GRANTS[grant] for grant in threat.grants], verdict["score"]
    return sentence(goal.name, [entry], verdict["leaning"], Measure(*worst.scores[scale][:3]), grants, scale)


def _groups(goal: Goal, worst: Tried, people: People, threat: Threat) -> list[dict[str, Any]]:
    """Share of right guesses of the worst attacker in each group of users, by each attribute with classes."""
    found = []
    for by, label in people.labels.items():
        names = [*people.classes.get(by, ()), *map(str, range(int(label.max()) + 1))]
        for number in range(int(label.max()) + 1):
            each, users = [], 0
            for answer in worst.answers:
                inside = answer.trial.draw.target & (label.cpu() == number)
                if int(inside.sum()) < FEWEST:
                    continue
                users = users or int(inside.sum())
                weight = people.weights(inside, threat.resamples)
                right = (answer.scores[inside].argmax(1) == goal.label[inside]).double()
                share = float(right.mean())
                each.append(summary(share, mean(right, weight)))
            if each:
                rate = told(combine(each))
                group = {"by": by, "group": str(names[number]), "users": users, "micro_f1": rate}
                found.append(group | (_sure(goal, number, worst, people, threat) if by == goal.name else {}))
    return found


def _sure(goal: Goal, number: int, worst: Tried, people: People, threat: Threat) -> dict[str, Any]:
    """The share of a class that is found while at most one in a hundred of the others is taken for it."""
    each = []
    for answer in worst.answers:
        target = answer.trial.draw.target
        truth, scores = (goal.label[target] == number).long(), answer.scores[target][:, number]
        weight = people.weights(target, threat.resamples)
        alone, again = (measures.tpr_at(truth, scores, 0.01, rows) for rows in (None, weight))
        each.append(summary(float(alone[0]), again))
    return {"tpr_at_1": told(combine(each))}
