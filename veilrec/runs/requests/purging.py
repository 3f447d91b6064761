"""Purging: what a run holds beside its vectors that would go on telling, and how it goes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from veilrec.base.params import Params, Scope, part_of
from veilrec.interactions import Interactions
from veilrec.protocol import State
from veilrec.rounds import Federation
from veilrec.runs.folder import CHECKPOINT, SPOOL, TRANSCRIPT
from veilrec.runs.integrity.changes import Change
from veilrec.runs.integrity.checked import CHECKED
from veilrec.runs.integrity.described import DEVICES

__all__ = ["purge", "without_classes", "without_helpers", "without_posts"]

BLOCK = 256  # devices that are changed at a time

PLACES = {  # what is kept by which name, and where it lies
    "checkpoint": (CHECKPOINT, f"{DEVICES}*"),
    "transcript": (TRANSCRIPT, SPOOL),
    "reports": ("*.html",),
}
NEVER_KEPT = (CHECKED,)  # sums over labels: whoever tries all classes finds the one that fits


def purge(new: Change, keeps: Collection[str]) -> list[str]:
    """Drop what the folder of a run holds of the vectors of before; returns the names, a file or a folder."""
    found = list(_there(new.before.folder, keeps))
    for name in found:
        new.drop(name)
    return [name for name in found if name not in NEVER_KEPT]


def _there(folder: Path, keeps: Collection[str]) -> Iterator[str]:
    patterns = [one for name, places in PLACES.items() if name not in keeps for one in places]
    for pattern in (*patterns, *NEVER_KEPT):
        yield from sorted(path.name for path in folder.glob(pattern))


def without_classes(data: Interactions, attributes: Sequence[str], users: Tensor) -> Interactions:
    """A log that no longer knows the classes of some users ``[users]``, their amounts or features of them.

    >>> from veilrec.datasets.synthetic import synthetic
    >>> log = synthetic(users=3, items=8)
    >>> without_classes(log, ["gender"], torch.tensor([True, False, True])).attributes["gender"]
    tensor([-1,  0, -1])
    """
    labels, values = dict(data.attributes), dict(data.values)
    for name in attributes:
        if name in labels:
            labels[name] = torch.where(users, -1, labels[name])
        if name in values:
            values[name] = torch.where(users, torch.nan, values[name])
    features = data.features
    told = [
        place for place, name in enumerate(data.feature_names) if name.partition("=")[0] in set(attributes)
    ]
    if features is not None and told:
        features = features.clone()
        features[users.nonzero(), torch.tensor(told)] = 0
    return replace(data, attributes=labels, values=values, features=features)


def without_helpers(federation: Federation, users: Tensor) -> None:
    """Give the devices of some users ``[users]`` helpers and moments as they began, which learned from them.

    Those of a silo learned from many users, and stay.
    """
    fleet, seats = federation.fleet, federation.clients.seats
    private = fleet.model.names(Scope.PRIVATE)
    names = {name for name in private if fleet.model.parts[part_of(name)].helper}
    if seats.shape[1] > 1:
        return
    asking = users.to(seats.device)[seats[:, 0].clamp(min=0)]
    for some in fleet.devices.clients().split(BLOCK):
        mine = some[asking[some]]
        held, first = fleet.devices.get(mine), fleet.fresh(mine)
        fresh = {name: first[name] for name in held if _learned(name, names)}
        fleet.devices.put(mine, {**held, **fresh})


def _learned(name: str, helpers: Collection[str]) -> bool:
    """Whether what a device keeps under a name is a helper, or of the optimiser."""
    kind, _, weight = name.rpartition("/")
    return weight in helpers or kind in ("m", "v", "t")


def without_posts(federation: Federation, state: State, users: Tensor) -> State:
    """A state without what some users ``[users]`` have posted: vectors, and classes, of theirs."""
    posts = state.posts
    if not len(posts.owner):
        return state
    owner = federation.clients.seats.flatten()[posts.owner.to(federation.clients.seats.device)].cpu()
    stays = ~users[owner].to(posts.owner.device)
    values: Params = {name: value[stays] for name, value in posts.values.items()}
    return replace(state, posts=type(posts)(posts.owner[stays], values))
