"""Trials: which users an attacker knows, and which it is after; the truth stays with the judge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from veilrec.attack import Task
from veilrec.errors import BadInput, nearest
from veilrec.interactions import Interactions, id_hashes, lots
from veilrec.keys import Keys
from veilrec.metrics.resampling import weights
from veilrec.threat import Draw, Threat

__all__ = ["Goal", "People", "Trial", "goals_of", "trial_of"]

FEWEST = 2  # targets without whom there is nothing to measure


@dataclass(frozen=True)
class People:
    """The truth about the users: only the judge sees it.

    Attributes:
        labels: By attribute, ``[users]`` classes, -1 unknown.
        classes: By attribute, the names of its classes.
        values: Continuous attributes, ``[users]`` float64, NaN unknown.
        tags: ``[users]`` hashes of the users' ids: known users are drawn by them.
        lots: ``[users]`` what users are resampled by (`interactions.lots`); `tags` if nothing is published.
    """

    labels: Mapping[str, Tensor]
    tags: Tensor
    classes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    values: Mapping[str, Tensor] = field(default_factory=dict)
    lots: Tensor | None = None
    _drawn: dict[int, Tensor] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def of(cls, data: Interactions) -> People:
        """The users of a log."""
        own = lots(data.user_ids, data.user, data.item)
        return cls(data.attributes, id_hashes(data.user_ids), data.classes, data.values, own)

    def weights(self, users: Tensor, resamples: int) -> Tensor:
        """``[resamples, u]`` how often each resample counts some of the users: a mask, or their numbers."""
        if resamples not in self._drawn:  # a user's do not depend on the others: drawn once for all audits
            self._drawn[resamples] = weights(self.tags if self.lots is None else self.lots, resamples).T
        return self._drawn[resamples][users].T


class Goal(NamedTuple):
    """One attribute of the users that something was seen of."""

    name: str
    label: Tensor  # [users]
    names: Sequence[str]  # of the classes; empty for a continuous one

    @property
    def classes(self) -> int:
        """0 for a continuous attribute."""
        return len(self.names)


class Trial(NamedTuple):
    """One draw of known and target users for one goal."""

    goal: Goal
    draw: Draw
    task: Task
    inner: list[tuple[Task, Tensor]]  # without a part of the known users; the mask of that part


def goals_of(people: People, threat: Threat, there: Tensor) -> list[Goal]:
    """What the threat is after, among the users of whom anything was seen: `there [users]`.

    Raises:
        BadInput: Where an attribute is unknown, or nothing can be learned from it.
    """
    known = [*people.labels, *people.values]
    for name in threat.attributes:
        if name not in known:
            raise BadInput("threat.attributes", f'the data has no attribute "{name}"', nearest(name, known))
    goals = []
    for name in threat.attributes or known:
        if name in people.labels:
            label = torch.where(there, people.labels[name].cpu(), -1)
            count = max(len(people.classes.get(name, ())), int(label.max()) + 1)
            names = [*people.classes.get(name, ()), *map(str, range(count))][:count]
        else:
            label, names = torch.where(there, people.values[name].cpu().double(), torch.nan), []
        _check(name, label, threat)
        goals.append(Goal(name, label, names))
    return goals


def _check(name: str, label: Tensor, threat: Threat) -> None:
    """Refuse an attribute from which nothing can be learned."""
    told = label[~label.isnan()] if label.is_floating_point() else label[label >= 0]
    if len(told) * threat.known < threat.folds or len(told.unique()) < 2:
        what = f"{len(told)} users with {len(told.unique())} different values of {name}"
        raise BadInput(
            "threat.attributes", f"{what} cannot be attacked", "choose other attributes or more users"
        )


def trial_of(goal: Goal, threat: Threat, tags: Tensor, seed: int, repeat: int) -> Trial:
    """One draw of known and target users; every draw of a seed differs, and is the same for every attack."""
    keys = Keys.seed(seed).fold("attack").fold(goal.name).fold(repeat)
    draw, own = threat.draw(goal.label, tags, keys), seed * 1000 + repeat
    _check_draw(goal, draw, threat)
    task = Task(draw.hide(goal.label), goal.classes, own, goal.name)
    inner = [
        (Task(known, goal.classes, own, goal.name), held)
        for known, held in draw.folds(goal.label, tags, keys, threat.folds)
    ]
    return Trial(goal, draw, task, inner)


def _check_draw(goal: Goal, draw: Draw, threat: Threat) -> None:
    """Refuse a draw from which nothing can be learned, or in which nobody is left to attack."""
    known, targets = goal.label[draw.known], int(draw.target.sum())
    if len(known) < threat.folds or len(known.unique()) < 2 or targets < FEWEST:
        kinds = len(known.unique())
        what = f"{len(known)} users with {kinds} values of {goal.name} would be known, {targets} attacked"
        raise BadInput("threat.known", what, "choose another share, other attributes, or stratified draws")
