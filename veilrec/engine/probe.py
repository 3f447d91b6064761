"""The probe: every client takes part once more, on the selected state, so that an attacker has seen everyone.

Nothing is aggregated and no device keeps what it learned; neither the byte counter nor the ledger is told.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import partial

import torch
from torch import Tensor
from torch.func import vmap

from veilrec.attack import Granted, Public, Seen
from veilrec.clients import Batch, Clients
from veilrec.engine import serving
from veilrec.engine.fleet import Fleet
from veilrec.engine.fused import weights_of
from veilrec.engine.workers import workers
from veilrec.metrics.ranking import top
from veilrec.model import Recommender, bind
from veilrec.protocol import State
from veilrec.rounds import Federation
from veilrec.wire.transcript import Transcript
from veilrec.wire.uploads import Exchange, Letter

__all__ = ["lists", "probe", "public", "see", "tables", "user_vectors", "withheld"]

BLOCK = 256  # clients whose vectors are computed at once
SHOWN = 50  # items of a list that an attacker looks at


def probe(
    federation: Federation, state: State, parts: Collection[str] | None = None, again: int = 0
) -> Iterator[Exchange]:
    """One upload of every client that has events, chunk by chunk; draws come from keys of their own.

    With `parts`, only these need be in it; with `again`, it is another one from the same state.
    """
    letter = federation.letter(state, federation.fleet.roster.able)
    return federation.fleet.probe(letter, weights_of(federation.model, parts), again)


def public(federation: Federation) -> Public:
    """The public side of a federation: all that everybody knows of it."""
    plan, protocol, model = federation.plan, federation.protocol, federation.model
    plain = plan.optimiser == "sgd" and not protocol.sends_gradients
    return Public(
        model=model,
        schema=federation.fleet.schema(),
        gradients=protocol.sends_gradients,
        rate=None if not plain or isinstance(plan.lr, Mapping) else plan.lr,
        seats=federation.clients.seats.cpu(),
        n_users=federation.clients.log.n_users,
        features=tuple(federation.clients.log.feature_names),
        device=str(federation.keys.value.device),
        plain=plain,
        draws=plan.negatives * plan.epochs,
    )


def see(
    federation: Federation, state: State, grants: Collection[str] = (), kept: Transcript | None = None
) -> Seen:
    """Give an attacker its view of a federation in a state: probe, rounds kept, and what is granted."""
    log = federation.clients.log
    granted = Granted(
        interactions=(log.user.cpu(), log.item.cpu()) if "interactions" in grants else None,
        user_vectors=user_vectors(federation, state) if "user_vectors" in grants else None,
        withheld=withheld(federation, state) if "withheld" in grants else None,
        tables=partial(tables, federation, state) if "tables" in grants else None,
        lists=lists(federation, state) if "lists" in grants else None,
    )
    return Seen(public(federation), partial(probe, federation, state), granted, kept)


def user_vectors(federation: Federation, state: State) -> Tensor:
    """``[users, dim]`` what stands for each user in a state, whether it is ever uploaded or not."""
    clients, fleet = federation.clients, federation.fleet
    found = torch.zeros(clients.log.n_users, fleet.model.dim, dtype=fleet.plan.dtype)
    for cohort in _cohorts(fleet):
        vectors, seats = (
            _represent(fleet, federation.letter(state, cohort), cohort).cpu(),
            clients.seats[cohort].cpu(),
        )
        found[seats[seats >= 0]] = vectors[seats >= 0]
    return found


def withheld(federation: Federation, state: State) -> Tensor:
    """``[users, d]`` what devices keep of each user, side by side, as the state has it; else no columns.

    Item tables of a device's own are not among it: what stands for a user is made of them.
    """
    names, clients = public(federation).withheld, federation.clients
    users, rows = [], []
    fleet = federation.fleet
    for cohort in _cohorts(fleet) if names else ():
        own, seats = fleet.devices.get(cohort, names), clients.seats[cohort].cpu()
        users.append(seats[seats >= 0])
        rows.append(torch.cat([own[name].reshape(*seats.shape, -1).cpu() for name in names], 2)[seats >= 0])
    found = torch.zeros(clients.log.n_users, rows[0].shape[1] if rows else 0, dtype=federation.plan.dtype)
    return found.index_copy(0, torch.cat(users), torch.cat(rows)) if rows else found


def tables(federation: Federation, state: State, users: Tensor) -> Tensor:
    """``[n, items, d]`` the item tables that devices of some users keep, side by side; 0 for other rows."""
    clients, names = federation.clients, public(federation).tables
    client, seat = (place.cpu() for place in clients.place_of(users))
    order, found, fleet = [], [], federation.fleet
    for some in client.unique().split(max(1, BLOCK // clients.n_seats)):  # a silo's users share its tables
        mine = torch.isin(client, some).nonzero().squeeze(1)
        own = fleet.whole(some.to(federation.keys.value.device), names)
        at = torch.searchsorted(some, client[mine])
        picked = [table[at, :, seat[mine]] if table.dim() == 4 else table[at] for table in own.values()]
        order.append(mine)
        found.append(torch.cat([table.flatten(2) for table in picked], 2))
    return torch.cat(found)[torch.cat(order).argsort()]


def lists(federation: Federation, state: State, length: int = SHOWN) -> Tensor:
    """``[users, length]`` the items that users are shown in a state, best first: none that they touched."""
    clients, fleet = federation.clients, federation.fleet
    found = torch.full((clients.log.n_users, length), -1)
    with workers(1) as pool:
        score = serving.scorer(fleet, federation.at(state), pool)
        for cohort in _cohorts(fleet):
            seats = clients.seats[cohort].cpu()
            shown = top(score(cohort, None).flatten(0, 1).double(), *_known(clients, cohort), length)
            found[seats[seats >= 0]] = shown.cpu()[seats.flatten() >= 0]
    return found


def _known(clients: Clients, cohort: Tensor) -> tuple[Tensor, Tensor]:
    """All that some users touched, held out or not: ``[e]`` position · seats + seat, and ``[e]`` items."""
    row, item = clients.touched(cohort)
    for held in (clients.validation, clients.test):
        own = held[cohort].reshape(-1)
        there = (own >= 0).nonzero().squeeze(1)
        row, item = torch.cat([row, there]), torch.cat([item, own[there]])
    return row, item


def _cohorts(fleet: Fleet) -> Iterator[Tensor]:
    """All clients, as many at a time as are computed at once."""
    everyone = torch.arange(len(fleet.clients), device=fleet.clients.seats.device)
    block = max(1, BLOCK // fleet.clients.n_seats)
    yield from everyone.split(min(block, serving.at_once(fleet) or block))


def _represent(fleet: Fleet, sent: Letter, cohort: Tensor) -> Tensor:
    """``[c, seats, dim]`` by the model's own word, with the whole item table at hand."""
    model, batch = fleet.model, fleet.everything(cohort)
    params, where = serving.weights(fleet, sent, cohort)

    def alone(params: dict[str, Tensor], batch: Batch) -> Tensor:
        return bind(model, params, _stands_for, batch)  # type: ignore[no-any-return]

    return vmap(alone, in_dims=(where, Batch.axes(rows=None)))(params, batch)


def _stands_for(model: Recommender, batch: Batch) -> Tensor:
    return model.represent(batch)
