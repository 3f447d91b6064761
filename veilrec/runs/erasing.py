"""Erasing: what erasers do to a finished state, and where the secrets of it lie meanwhile."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from veilrec.base.draws import Draws
from veilrec.base.keys import Keys
from veilrec.base.params import Params
from veilrec.engine.fleet import Fleet
from veilrec.eraser import AttributeEraser, Eraser, Request, VectorEraser
from veilrec.errors import BadInput
from veilrec.interactions import Interactions, id_hashes
from veilrec.protocol import State
from veilrec.rounds import Federation

__all__ = ["applied", "forgotten", "request_of", "user_vectors"]

BLOCK = 256  # devices that are changed at a time


def applied(
    federation: Federation, state: State, eraser: Eraser, data: Interactions, keys: Keys, kept: Path
) -> State:
    """A finished state after an eraser; what devices hold is changed where it lies.

    Secret draws lie in the file `kept`, for its owner only, from before the first vector changes: if this is
    done again, after a crash, nothing is drawn anew.

    Raises:
        BadInput: Where nothing calls for such an eraser.
    """
    if isinstance(eraser, VectorEraser):
        return federation.erase(state, eraser, keys)
    if not isinstance(eraser, AttributeEraser):
        what = f"{type(eraser).__name__} is no eraser that a run can apply"
        raise BadInput("eraser", what, "derive it from VectorEraser or AttributeEraser")
    fleet = federation.fleet
    users, vectors = user_vectors(fleet, eraser.weights(fleet.model))
    request = request_of(data, eraser, users)
    draws = Draws.at(kept, vectors) if eraser.secret else Draws(keys)
    forgotten(fleet, eraser, users, eraser.forget(vectors, request, draws), eraser.moved(request))
    return state


def request_of(data: Interactions, eraser: AttributeEraser, users: Tensor | None = None) -> Request:
    """A request for all users of a log, or some: the eraser's attributes, or all that have classes.

    Raises:
        BadInput: Where there are none, or none of that name.
    """
    if not data.attributes:
        raise BadInput("eraser.attributes", f"{data.name} has no attribute with classes", "choose other data")
    who = torch.arange(data.n_users) if users is None else users
    counts = {name: len(names) for name, names in data.classes.items()}
    labels = {name: label[who] for name, label in data.attributes.items()}
    return Request(labels, counts, tags=id_hashes(data.user_ids)[who]).only(eraser.attributes)


def user_vectors(fleet: Fleet, weights: list[str]) -> tuple[Tensor, Tensor]:
    """``[n]`` the users whose devices ever took part, and ``[n, width]`` the vector of each.

    They come by the number of the device, wherever it lives and whenever it began.
    """
    users, rows = [], []
    for some in fleet.devices.clients().sort().values.split(BLOCK):
        seats = fleet.clients.seats[some]
        held = fleet.devices.get(some, weights)
        flat = torch.cat([held[name].reshape(*seats.shape, -1) for name in weights], -1)
        users.append(seats[seats >= 0].cpu())
        rows.append(flat[seats >= 0].cpu())
    return torch.cat(users), torch.cat(rows)


def forgotten(fleet: Fleet, eraser: AttributeEraser, users: Tensor, vectors: Tensor, moved: Tensor) -> None:
    """Give devices the vectors after an eraser, and forget how those that changed were stepped before."""
    weights, place = eraser.weights(fleet.model), torch.full((int(users.max()) + 1,), -1)
    place[users] = torch.arange(len(users))
    for some in fleet.devices.clients().split(BLOCK):
        held, seats = fleet.devices.get(some), fleet.clients.seats[some].cpu()
        taken = seats >= 0
        row = place[seats.clamp(min=0)]
        changed = taken & moved[row]
        _put(held, weights, vectors[row], changed)
        for count in [held[f"t/{name}"] for name in weights if f"t/{name}" in held]:
            count[(changed == taken).all(1).to(count.device)] = 0
        fleet.devices.put(some, held)


def _put(held: Params, weights: list[str], vectors: Tensor, changed: Tensor) -> None:
    """Replace the rows that changed ``[c, seats]``, and set the moments of their optimiser to zero."""
    begin = 0
    for name in weights:
        weight = held[name]
        width = weight[0, 0].numel()
        fresh = vectors[..., begin : begin + width].reshape(weight.shape).to(weight)
        there = changed.to(weight.device)
        weight[there] = fresh[there]
        for kind in "mv":
            if f"{kind}/{name}" in held:
                held[f"{kind}/{name}"][there] = 0
        begin += width
