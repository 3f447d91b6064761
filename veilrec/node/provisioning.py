"""Provisioning: the store of one simulated phone, cut out of a federation."""

from __future__ import annotations

from pathlib import Path

import torch

from veilrec.base.defaults import own_defaults
from veilrec.base.locks import WAIT, locked
from veilrec.base.params import Params
from veilrec.clients import Clients
from veilrec.errors import BadInput, Corrupted
from veilrec.node.contents import LONGEST, ROUND, RUN, WEIGHTS
from veilrec.node.store import CARD, OWN, Card, NodeStore, begin
from veilrec.rounds import Federation

__all__ = ["known", "provision"]


@own_defaults()
def provision(
    federation: Federation, client: int, recipe: str, folder: Path, *, run: str | None = None
) -> None:
    """Write the store of one simulated phone: its own events, labels, weights and settings, nobody else's.

    Nothing in it is drawn or blurred by a defence: the events are those before `Defence.prepare`, and what a
    defence keeps on a device is left out where nothing has moved it. The first `answer` sees to both. With
    `run` the device answers the run of that name alone; else the first letter that it answers decides.

    Raises:
        BadInput: Where the client is a silo, or where a device lies that has answered: what it has spent
            would be forgotten.
    """
    clients = federation.fleet.given
    if clients.n_seats > 1:
        raise BadInput("data.silos", "a silo is more than one person's device", "set it to 0")
    log, user = clients.log, int(clients.seats[client, 0])
    own = _weights(federation, client) | known(clients, client)
    own |= {f"value/{name}": value[user] for name, value in log.values.items()}
    columns = {"rating": log.rating, "time": log.time}
    own |= {name: column[log.user == user] for name, column in columns.items() if column is not None}
    own |= {} if run is None else {RUN: _name(run)}
    card = Card(
        user=clients.name(client),
        items=log.n_items,
        people=clients.seats.numel(),
        rounds=federation.last,
        features=list(log.feature_names),
        classes={name: list(log.classes.get(name, ())) for name in log.attributes},
    )
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder, WAIT):
        _check_free(folder)
        begin(folder, card, recipe, own)


def _name(run: str) -> torch.Tensor:
    """The name of a run as a store holds it."""
    told = list(run.encode())
    if len(told) > LONGEST:
        raise BadInput("run", f"a name of {len(told):,} bytes", f"choose one of at most {LONGEST:,}")
    return torch.tensor(told, dtype=torch.uint8)


def known(clients: Clients, client: int) -> Params:
    """The data of a phone's user that training reads."""
    log, user = clients.log, int(clients.seats[client, 0])
    data = {"item": log.item[log.user == user]}
    data |= {f"attribute/{name}": label[user] for name, label in log.attributes.items()}
    data |= {f"consent/{name}": given[client, 0] for name, given in clients.consents.items()}
    return data if log.features is None else {**data, "features": log.features[user]}


def _weights(federation: Federation, client: int) -> Params:
    """The weights that a device holds, less parts of a defence still as drawn: it draws them itself."""
    fleet = federation.fleet
    devices, helpers = fleet.devices, fleet.task().helpers
    alone = torch.tensor([client], device=devices.device)
    now = devices.get(alone)
    first = fleet.fresh(alone) if bool((devices.clients() == client).any()) else now
    kept = [name for name in now if name not in helpers or not torch.equal(now[name], first[name])]
    return {WEIGHTS + name: now[name][0] for name in kept}


def _check_free(folder: Path) -> None:
    """Refuse a folder with a device that has answered, or may have: only its ledger knows what that cost."""
    if not (folder / CARD).exists() or not (folder / OWN).exists():
        return  # nothing, or what a crash has left of an earlier try
    try:
        answered = ROUND in NodeStore.open(folder).own
    except (BadInput, Corrupted):
        answered = True
    if answered:
        what = "holds a device that may have answered, and its ledger would be lost"
        raise BadInput(folder, what, "name another folder, or remove this one")
