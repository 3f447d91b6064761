"""Trials: which users an attacker knows, and which it is after; the truth stays with the judge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor

from veilrec.attack import Task
from veilrec.base.keys import Keys
from veilrec.clients import Clients
from veilrec.errors import BadInput, nearest
from veilrec.interactions import Interactions, id_hashes, lots
from veilrec.lab.soundness.columns import places_of
from veilrec.lab.threat import CONSENTING, OTHERS, KnownDraw, Threat
from veilrec.metrics.resampling import weights

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
        consents: By attribute, ``[users]`` True for those who share it openly; none where nobody was asked.
        asks: ``[users]`` True for those who asked for an erasure; None where nobody did.
        places: ``[users]`` the users' ids as numbers (`places_of`); None where nobody knows them.
    """

    labels: Mapping[str, Tensor]
    tags: Tensor
    classes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    values: Mapping[str, Tensor] = field(default_factory=dict)
    lots: Tensor | None = None
    consents: Mapping[str, Tensor] = field(default_factory=dict)
    asks: Tensor | None = None
    places: Tensor | None = None
    _drawn: dict[int, Tensor] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def of(cls, data: Interactions) -> People:
        """The users of a log."""
        own = lots(data.user_ids, data.user, data.item)
        tags, places = id_hashes(data.user_ids), places_of(data.user_ids)
        return cls(data.attributes, tags, data.classes, data.values, own, places=places)

    def sharing(self, clients: Clients) -> People:
        """The same users, with who shares what as their clients have it."""
        place = clients.place_of(torch.arange(len(self.tags)))
        return replace(self, consents={name: given[place].cpu() for name, given in clients.consents.items()})

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
    consents: Tensor | None = None  # [users] whose label is known where that is given; None for nobody

    @property
    def classes(self) -> int:
        """0 for a continuous attribute."""
        return len(self.names)


class Trial(NamedTuple):
    """One draw of known and target users for one goal."""

    goal: Goal
    draw: KnownDraw
    task: Task
    inner: list[tuple[Task, Tensor]]  # without a part of the known users; the mask of that part


def goals_of(people: People, threat: Threat, there: Tensor) -> list[Goal]:
    """List what the threat is after, among the users of whom anything was seen: `there [users]`.

    Where those are known who consent, every attribute is every one with classes: no other can be shared.

    Raises:
        BadInput: Where an attribute is unknown, or nothing can be learned from it.
    """
    known = [*people.labels, *people.values]
    for name in threat.attributes:
        if name not in known:
            raise BadInput("threat.attributes", f'the data has no attribute "{name}"', nearest(name, known))
    goals = []
    for name in threat.attributes or (known if threat.share is not None else people.labels):
        if name in people.labels:
            label = torch.where(there, people.labels[name].cpu(), -1)
            count = max(len(people.classes.get(name, ())), int(label.max()) + 1)
            names = [*people.classes.get(name, ()), *map(str, range(count))][:count]
        else:
            label, names = torch.where(there, people.values[name].cpu().double(), torch.nan), []
        given = people.consents.get(name) if threat.known != OTHERS else _others(people)
        goal = Goal(name, label, names, given)
        _check(name, label, threat)
        if threat.known == CONSENTING:
            _check_consents(goal)
        goals.append(goal)
    return goals


def _check(name: str, label: Tensor, threat: Threat) -> None:
    """Refuse an attribute from which nothing can be learned."""
    told = label[~label.isnan()] if label.is_floating_point() else label[label >= 0]
    share = 1.0 if threat.share is None else threat.share
    if len(told) * share < threat.folds or len(told.unique()) < 2:
        what = f"{len(told)} users with {len(told.unique())} different values of {name}"
        raise BadInput(
            "threat.attributes", f"{what} cannot be attacked", "choose other attributes or more users"
        )


def _others(people: People) -> Tensor:
    """Those who did not ask for an erasure."""
    if people.asks is None or not bool(people.asks.any()) or bool(people.asks.all()):
        who = "everybody" if people.asks is not None and bool(people.asks.any()) else "nobody"
        fix = 'give a share of the users as known, and not "others"'
        raise BadInput("threat.known", f"{who} asked for an erasure", fix)
    return ~people.asks


def _check_consents(goal: Goal) -> None:
    """Refuse those who consent as the known users where there are none, or where there is nobody else."""
    if not goal.classes:
        what = f"{goal.name} is a number, and only classes can be shared openly"
        raise BadInput("threat.attributes", what, "name attributes with classes")
    there = goal.label >= 0
    known = there & goal.consents if goal.consents is not None else torch.zeros_like(there)
    if not bool(known.any()) or bool(known[there].all()):
        few = not bool(known.any())
        who, then = ("nobody", "no label is known") if few else ("everybody", "nobody is left to attack")
        what = f"{who} shares {goal.name}, so that {then}"
        fix = f'give a {"larger" if few else "smaller"} share, or an attack without "{CONSENTING}"'
        raise BadInput("data.consent", what, fix)


def trial_of(goal: Goal, threat: Threat, tags: Tensor, seed: int, repeat: int) -> Trial:
    """One draw of known and target users, the same for every attack; draws of a share all differ."""
    keys = Keys.seed(seed).fold("attack").fold(goal.name).fold(repeat)
    draw, own = threat.draw(goal.label, tags, keys, goal.consents), seed * 1000 + repeat
    _check_draw(goal, draw, threat)
    task = Task(draw.hide(goal.label), goal.classes, own, goal.name)
    inner = [
        (Task(known, goal.classes, own, goal.name), held)
        for known, held in draw.folds(goal.label, tags, keys, threat.folds)
    ]
    return Trial(goal, draw, task, inner)


def _check_draw(goal: Goal, draw: KnownDraw, threat: Threat) -> None:
    """Refuse a draw from which nothing can be learned, or in which nobody is left to attack."""
    known, target = goal.label[draw.known], goal.label[draw.target]
    kinds, targets = len(known.unique()), len(target)
    alike = threat.share is None and len(target.unique()) < 2  # in every draw: chance would be all there is
    if len(known) < threat.folds or kinds < 2 or targets < FEWEST or alike:
        what = f"{len(known)} users with {kinds} values of {goal.name} would be known, {targets} attacked"
        fix = "choose another share, other attributes, or stratified draws"
        where = "data.consent" if threat.known == CONSENTING else "threat.known"
        if threat.share is None:
            what += " who are all alike" if alike and targets > 1 else ""
            fix = f'give another share, other attributes, or an attack without "{threat.known}"'
        raise BadInput(where, what, fix)
