"""The lab: attacks under one protocol, judged by what they find out about users who did not tell."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from veilrec.attack import GRANTS, Attack, Public, Seen
from veilrec.attacks.attribute import AttributeInference
from veilrec.attacks.common.readings import covered, parts_of
from veilrec.base.params import part_of
from veilrec.engine.workers import workers
from veilrec.errors import BadInput
from veilrec.lab import verdict
from veilrec.lab.components import components
from veilrec.lab.threat import Threat
from veilrec.lab.trials import Goal, People, Trial, goals_of, trial_of
from veilrec.lab.verdict import Tried

__all__ = ["Audit", "People", "audit", "fitting"]

Progress = Callable[[str, int, int], None]
ALONE = AttributeInference("updates", classifiers=("logistic",))  # quick, because there are many parts
PERCEPTRON = "mlp"  # how the names of a perceptron's layers begin: where several are uploaded, also together


@dataclass(frozen=True)
class Audit:
    """Attacks and the protocol they are run by, under a name.

    Attributes:
        name, threat, attacks: What it is called, the protocol, and who attacks.
        picks: Whether attacks that cannot look at a federation are left out; else they are an error.
        alone: Who attacks each part of the model alone, where the threat asks for that.
    """

    name: str
    threat: Threat
    attacks: Mapping[str, Attack]
    picks: bool = False
    alone: AttributeInference = ALONE


def fitting(one: Audit, known: Public) -> dict[str, Attack]:
    """The attacks of an audit that can look at such a federation.

    Raises:
        BadInput: Where none can, or where one cannot that somebody asked for by name.
    """
    reasons = {name: attack.refuses(known, one.threat.grants) for name, attack in one.attacks.items()}
    for name, reason in reasons.items():
        if reason and (not one.picks or all(reasons.values())):
            what, _, fix = reason.partition("; ")
            raise BadInput(f"attack {name} of {one.name}", what, fix or "choose other attacks")
    return {name: attack for name, attack in one.attacks.items() if not reasons[name]}


def audit(
    seen: Seen,
    people: People,
    threat: Threat,
    attacks: Mapping[str, Attack],
    seed: int = 0,
    progress: Progress | None = None,
    alone: AttributeInference = ALONE,
) -> dict[str, Any]:
    """Everything that the attacks find out, as ``result.json`` keeps it; `alone` attacks part by part.

    Raises:
        BadInput: Where an attribute is unknown, too few users have a label, or an attack answers badly.
    """
    began, tell = time.perf_counter(), progress or (lambda *told: None)
    goals = goals_of(people, threat, covered(seen))
    trials = [
        trial_of(goal, threat, people.tags, seed, repeat)
        for goal in goals
        for repeat in range(threat.repeats)
    ]
    several = {name: one for entry, attack in attacks.items() for name, one in _unfold(entry, attack)}
    tried: dict[str, list[Tried]] = {goal.name: [] for goal in goals}
    for place, (name, attack) in enumerate(several.items()):
        tell(name, place, len(several))
        for goal, one in _try(seen, threat, people, trials, name, attack, choosing=len(several) > 1):
            tried[goal.name].append(one)
    parts = _by_part(seen, threat, people, trials, alone, tell) if threat.by_part else {}
    return {
        "threat": {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(threat).items()},
        "seed": seed,
        "grants": [GRANTS[grant] for grant in threat.grants],
        "oracle": threat.selection == "oracle" or any(attack.oracle for attack in several.values()),
        "attributes": _verdicts(goals, trials, tried, parts, people, threat),
        "membership": None,
        "seconds": round(time.perf_counter() - began, 3),
    }


def _verdicts(
    goals: Sequence[Goal],
    trials: Sequence[Trial],
    tried: Mapping[str, Sequence[Tried]],
    parts: Mapping[str, list[dict[str, Any]]],
    people: People,
    threat: Threat,
) -> dict[str, Any]:
    """The verdict on each attribute, with what its parts reveal alone."""
    return {
        goal.name: {
            **verdict.attribute(
                goal, [t for t in trials if t.goal is goal], tried[goal.name], people, threat
            ),
            "parts": parts.get(goal.name, []),
        }
        for goal in goals
        if tried[goal.name] or threat.attributes  # where all are attacked, leave out what nobody can answer
    }


def _unfold(entry: str, attack: Attack) -> Iterator[tuple[str, Attack]]:
    for name, one in attack.unfold().items():
        yield name or entry, one


def _try(
    seen: Seen,
    threat: Threat,
    people: People,
    trials: Sequence[Trial],
    name: str,
    attack: Attack,
    *,
    choosing: bool,
    tested: bool = True,
) -> Iterator[tuple[Goal, Tried]]:
    """One attacker on all trials at once: what it says about the targets, and about known users held out."""
    mine = [trial for trial in trials if attack.answers(seen, trial.task)]
    if not mine:
        return
    began = time.perf_counter()
    scores = _scores(seen, threat, mine, attack, choosing=choosing)
    each = (time.perf_counter() - began) / len(mine)
    inside = iter(scores[len(mine) :])
    grouped: dict[str, list[Any]] = {}
    for trial, score in zip(mine, scores[: len(mine)], strict=True):
        shape = (len(trial.task.known), max(1, trial.goal.classes))
        held = [_checked(name, next(inside), shape) for _ in trial.inner] if choosing else []
        outside = _outside(trial, held) if held else float("nan")
        grouped.setdefault(trial.goal.name, []).append((trial, _checked(name, score, shape), outside))
    for runs in grouped.values():
        goal, seconds, notes = runs[0][0].goal, each * len(runs), {**attack.notes(seen)}
        with workers(1):  # many small sums: two threads would spend their time waiting for each other
            if parts := components(seen, attack, [trial for trial, *_ in runs], people, threat):
                notes["components"] = parts
            one = verdict.judged(name, attack, notes, goal, runs, people, threat, seconds, tested=tested)
        yield goal, one


def _scores(
    seen: Seen, threat: Threat, trials: Sequence[Trial], attack: Attack, *, choosing: bool
) -> list[Tensor]:
    """An attacker's answers to all trials, then those to their inner tasks where one attacker is chosen."""
    inner = [task for trial in trials for task, _ in trial.inner] if choosing else []
    if threat.selection == "last":
        return attack.infer_all(seen, [trial.task for trial in trials] + inner)
    scores = [_chosen(seen, threat, trial, attack) for trial in trials]
    return scores + (attack.infer_all(seen, inner) if inner else [])


def _outside(trial: Trial, held: Sequence[Tensor]) -> float:
    """The AUC (or rank correlation) on known users, each judged by who did not learn from that user.

    The mean over the parts: scores of different fits do not compare, and pooled they would rank a class the
    lower, the more of it was held out.
    """
    label = trial.goal.label
    each = [
        verdict.main_score(label[mask], score[mask])
        for score, (_, mask) in zip(held, trial.inner, strict=True)
    ]
    return sum(each) / len(each)


def _chosen(seen: Seen, threat: Threat, trial: Trial, attack: Attack) -> Tensor:
    """The stage of an attacker that is best on held-out known users, or, with an oracle, on the targets."""
    stages = attack.stages(seen, trial.task)
    if len(stages) == 1:
        return stages[0]
    if threat.selection == "oracle":
        target = trial.draw.target
        marks = [_mark(trial.goal.label[target], stage[target]) for stage in stages]
    else:
        marks = [0.0] * len(stages)
        for task, held in trial.inner:
            inner = attack.stages(seen, task)
            for k in range(len(stages)):
                marks[k] += _mark(trial.goal.label[held], inner[min(k, len(inner) - 1)][held])
    return stages[int(torch.tensor(marks).argmax())]


def _mark(truth: Tensor, scores: Tensor) -> float:
    """Score by which a stage is chosen: AUC of two classes, accuracy of more (as PARD), ranks of values."""
    if scores.shape[1] > 2:
        return float((scores.argmax(1) == truth).double().mean())
    return float(verdict.main_score(truth, scores))


def _by_part(
    seen: Seen,
    threat: Threat,
    people: People,
    trials: Sequence[Trial],
    alone: AttributeInference,
    tell: Progress,
) -> dict[str, list[dict[str, Any]]]:
    """Each uploaded part attacked alone, by one attacker."""
    if seen.public is None or seen.public.seats.shape[1] > 1:
        return {}
    found: dict[str, list[dict[str, Any]]] = {}
    some = [trial for trial in trials if trial.goal.classes]
    looks = _looks(seen, alone)
    for place, (name, attack) in enumerate(looks.items()):
        tell(name, place, len(looks))
        for goal, one in _try(seen, threat, people, some, name, attack, choosing=False, tested=False):
            scores = {key: verdict.told(one.scores[key]) for key in verdict.PAIRED}
            told = {"part": name, "classifier": alone.classifiers[0], **scores}
            told["replicates"] = verdict.replicates(one)
            found.setdefault(goal.name, []).append(told)
    return found


def _looks(seen: Seen, alone: AttributeInference) -> dict[str, Attack]:
    """Attacks on single parts: each as it is, of a table also the mean of the rows picked, and all layers."""
    assert seen.public is not None
    tables = {part_of(name) for name, spec in seen.public.schema.items() if spec.table is not None}
    looks: dict[str, Attack] = {}
    for part in parts_of(seen):
        looks[part] = replace(alone, parts=(part,))
        if part in tables:
            looks[f"{part}, rows picked"] = replace(alone, reads="parameters", parts=(part,))
    model = seen.public.model.parts
    layers = tuple(p for p in parts_of(seen) if p.startswith(PERCEPTRON) and model[p].rows is None)
    if len(layers) > 1:
        looks[PERCEPTRON] = replace(alone, parts=layers)
    return looks


def _checked(name: str, scores: Tensor, shape: tuple[int, int]) -> Tensor:
    if tuple(scores.shape) != shape or not bool(torch.isfinite(scores).all()):
        what = f"{name} answers with {list(scores.shape)}, or with values that are not finite"
        raise BadInput("attack", what, f"answer with finite scores of shape {list(shape)}")
    return scores.double()
