"""The control: the attacker of a verdict, tried on people on whom nothing was trained.

Main, control and blind are those of Giomi et al., A Unified Framework for Quantifying Privacy Risk in
Synthetic Data, PoPETs 2023: what an attack finds on people who were trained on, on people who were not, and
what a guess reaches that sees no vector. What it finds on the control it finds of anybody like them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from veilrec.attack import Seen, Task
from veilrec.errors import BadInput
from veilrec.lab.anyone.outsider import Outsider, labels_of
from veilrec.lab.match_ids import Audience
from veilrec.lab.trials import Goal, goals_of, trial_of
from veilrec.lab.verdict import told
from veilrec.metrics import inference
from veilrec.metrics.measures import Measure
from veilrec.metrics.resampling import Measured, combine, summary
from veilrec.metrics.words import bracketed, number

__all__ = ["on_control"]

CHANCE = {"auc": 0.5, "spearman": 0.0}
GUESS = {"auc": ("micro_f1", "majority"), "spearman": ("mae", "median")}
SPOKEN = {"auc": "AUC", "spearman": "rank correlation"}


class _Side(NamedTuple):
    """A goal of the main people, and the same attribute of the control's, by the same classes."""

    goal: Goal
    truth: Tensor  # [control]
    there: Tensor  # [control] whether it is known


def on_control(
    outsider: Outsider, main: Audience, control: Audience, found: Mapping[str, Any]
) -> dict[str, Any]:
    """What the attacker of each verdict reaches on the control, by attribute, beside main and blind.

    It learns from the same known users of the main people as before, and from nobody of the control.

    Raises:
        BadInput: Where somebody is on both sides, or vectors are of different widths.
    """
    if both := sorted(set(main.ids) & set(control.ids)):
        fix = "leave out of the control whoever was trained on"
        raise BadInput("--control", f"{len(both):,} users are among those attacked as well", fix)
    if main.vectors.shape[1] != control.vectors.shape[1]:
        what = f"vectors of {control.vectors.shape[1]:,} numbers, where those attacked have"
        raise BadInput("--control", f"{what} {main.vectors.shape[1]:,}", "take both from one model")
    people, _ = outsider.people(main)
    goals = {goal.name: goal for goal in goals_of(people, outsider.threat, torch.ones(len(main.ids)) > 0)}
    sides = {name: _side(goals[name], main, control) for name in found if name in goals}
    told_of = {name: side for name, side in sides.items() if found[name].get("verdict") and _enough(side)}
    return {
        name: _beside(found[name], _tried(outsider, main, control, side, found[name]), side)
        for name, side in told_of.items()
    }


def _side(goal: Goal, main: Audience, control: Audience) -> _Side:
    """The control's truth in the classes of the main people; a class that these do not have is unknown."""
    labels, values = labels_of(control)
    if not goal.classes:
        truth = values.get(goal.name, torch.full((len(control.ids),), torch.nan, dtype=torch.float64))
        return _Side(goal, truth, ~truth.isnan())
    number = {name: place for place, name in enumerate(main.classes[goal.name])}
    places = torch.tensor([*(number.get(name, -1) for name in control.classes.get(goal.name, ())), -1])
    truth = places[labels[goal.name]] if goal.name in labels else torch.full((len(control.ids),), -1)
    return _Side(goal, truth, truth >= 0)


def _enough(side: _Side) -> bool:
    return int(side.there.sum()) > 1 and len(side.truth[side.there].unique()) > 1


def _tried(
    outsider: Outsider, main: Audience, control: Audience, side: _Side, entry: Mapping[str, Any]
) -> dict[str, Measured]:
    """The scores of the verdict's attacker on the control, over the same draws of known users."""
    people, _ = outsider.people(main)
    others, _ = outsider.people(control)
    attack = outsider.named(entry["verdict"]["attacker"])
    seen = Seen.of_vectors(torch.from_numpy(np.concatenate([main.vectors, control.vectors])), main.columns)
    trials = [
        trial_of(side.goal, outsider.threat, people.tags, outsider.seed, repeat)
        for repeat in range(outsider.repeats)
    ]
    unknown = torch.full((len(control.ids),), -1 if side.goal.classes else torch.nan)
    tasks = [_more(trial.task, unknown) for trial in trials]
    weight = others.weights(side.there, outsider.threat.resamples)
    scores = [score[len(main.ids) :][side.there].double() for score in attack.infer_all(seen, tasks)]
    each = [inference.judge(side.truth[side.there], score, weight) for score in scores]
    return {key: combine([one[key] for one in each]) for key in each[0]}


def _more(task: Task, unknown: Tensor) -> Task:
    return task._replace(known=torch.cat([task.known, unknown.to(task.known.dtype)]))


def _beside(entry: Mapping[str, Any], scores: Mapping[str, Measured], side: _Side) -> dict[str, Any]:
    """Main, control and blind, their difference, and a sentence."""
    verdict = entry["verdict"]
    key = verdict["score"]
    guess, kind = GUESS[key]
    attacker = next(one for one in entry["attackers"] if one["name"] == verdict["attacker"])
    again = torch.tensor(verdict["replicates"], dtype=torch.float64)
    shown = min(len(again), len(scores[key].replicates))
    sign = -1 if verdict["leaning"] == "below" else 1
    more = sign * (verdict[key]["value"] - scores[key].value)
    apart = summary(more, sign * (again[:shown] - scores[key].replicates[:shown]))
    return {
        "users": int(side.there.sum()),
        "score": key,
        "main": {key: verdict[key], guess: attacker["scores"][guess]},
        "control": {name: told(scores[name]) for name in (key, guess)},
        "blind": {key: CHANCE[key], guess: entry["floors"][kind][guess]},
        "difference": told(apart),
        "sentence": _sentence(verdict, scores[key], apart, int(side.there.sum())),
    }


def _sentence(verdict: Mapping[str, Any], control: Measured, apart: Measured, users: int) -> str:
    """What the control says of a finding: whether training put it there."""
    who = f"Of {users:,} people on whom nothing was trained"
    key = verdict["score"]
    reached = f"{SPOKEN[key]} {bracketed(Measure(*control[:3]), 2)}"
    if verdict["leaning"] == "none":
        return f"{who} the same attacker reaches {reached}."
    against = f"{reached} against {number(verdict[key]['value'], 2)}"
    leaning = Measure(*apart[:3]).leaning(0.0)
    if leaning == "above":
        return f"{who} it finds less, {against}: what is more comes from training on a person's own data."
    if leaning == "below":
        return f"{who} it finds even more, {against}: the two are not alike, and it is no control."
    return (
        f"{who} it finds as much as far as can be told, {against}: it reads what vectors say of anybody, "
        "so that leaving a person out of training does not hide it."
    )
