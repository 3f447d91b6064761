"""Serving: the scores that users are shown in a state, everywhere alike.

Most devices score with the weights they are sent and hold. Those of a `personal` model train once more first.
Nothing of that is uploaded or kept: neither the byte counter nor the ledger is told, as for the probe. The
pass depends on the state and the keys alone, so that validation, test and recommendations agree. Where the
protocol makes queries, devices ask, and the server scores: `asker` is what a device does for that, simulated
or real.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.func import vmap

from veilrec.base.keys import Keys
from veilrec.base.params import Message, Params, Scope, part_of
from veilrec.base.rows import filled
from veilrec.clients import Batch
from veilrec.engine import private_rows
from veilrec.engine.evaluation import Score
from veilrec.engine.respond import Chunk, drawn, learned
from veilrec.engine.workers import Workers
from veilrec.model import Device, Recommender, bind, overrides
from veilrec.protocol import Counterpart, Protocol
from veilrec.wire import codec
from veilrec.wire.uploads import Letter

if TYPE_CHECKING:
    from veilrec.engine.fleet import InProcess

__all__ = ["asker", "at_once", "scorer"]

HELD = 1 << 24  # values of whole item tables held at once, where each client has its own
View = Callable[[Tensor], Params]  # clients [c] → all weights that they score with, client axis first
Ask = Callable[[Tensor], Message]  # clients [c] → what they ask with, client axis first


def scorer(fleet: InProcess, server: Counterpart, pool: Workers) -> Score:
    """Clients ``[c]`` and items ``[c, seats, n]`` (None for all) to scores ``[c, seats, n]``."""
    score, few = _scorer(fleet, server, pool), at_once(fleet)

    def some_at_a_time(cohort: Tensor, items: Tensor | None) -> Tensor:
        parts = cohort.split(few)
        chosen = [None] * len(parts) if items is None else items.split(few)
        return torch.cat([score(*part) for part in zip(parts, chosen, strict=True)])

    return some_at_a_time if few else score


def at_once(fleet: InProcess) -> int:
    """How many clients' whole item tables are held at once; 0 where no client has a table of its own."""
    model = fleet.model
    own = fleet.task().tables if model.personal else private_rows.names_of(model)
    each = sum(model.get_parameter(name).numel() for name in own)
    return max(1, HELD // each) if each else 0


def _scorer(fleet: InProcess, server: Counterpart, pool: Workers) -> Score:
    """The scores of few enough clients, by what they were sent or by weights of each device's own."""
    if overrides(fleet.protocol, Protocol, "query"):
        ask = asker(fleet, server, pool)
        return lambda cohort, items: server.scores(ask(cohort), items)
    model, here = fleet.model, _here(fleet, server, pool)
    batched = overrides(model, Recommender, "cohort_scores")

    def score(cohort: Tensor, items: Tensor | None) -> Tensor:
        params, batch, _ = here(cohort)
        if batched:
            return model.cohort_scores(params, batch, items)
        mine = pool.own(model)

        def alone(params: Params, batch: Batch, items: Tensor | None) -> Tensor:
            return bind(mine, params, type(mine).scores, batch, items)  # type: ignore[no-any-return]

        axes = (_places(model), Batch.axes(rows=None), None if items is None else 0)
        return vmap(alone, in_dims=axes)(params, batch, items)

    return score


def asker(fleet: InProcess, server: Counterpart, pool: Workers, secret: Keys | None = None) -> Ask:
    """Clients ``[c]`` to what they ask the server with: under `secret` keys, or the same at every look."""
    here, common = _here(fleet, server, pool), Keys.seed(0, fleet.keys.value.device)
    keys = (secret or common).fold("score")

    def ask(cohort: Tensor) -> Message:
        params, batch, sent = here(cohort)
        device, axes = _device(batch, sent, keys.fold(fleet.clients.tags[cohort]))
        mine = pool.own(fleet.model)

        def alone(params: Params, device: Device) -> Message:
            return bind(mine, params, lambda m: fleet.protocol.query(m, device))  # type: ignore[no-any-return]

        query: Message = vmap(alone, in_dims=(_places(fleet.model), axes))(params, device)
        codec.check(query, fleet.query_schema, lead=(len(cohort),), sender="query")
        return query

    return ask


def _here(
    fleet: InProcess, server: Counterpart, pool: Workers
) -> Callable[[Tensor], tuple[Params, Batch, Letter]]:
    """Clients ``[c]`` to the weights that they score with, what is known of them, and their letter."""
    view = _view(fleet, server, pool) if fleet.model.personal else None
    shared = _shared(fleet.model)

    def here(cohort: Tensor) -> tuple[Params, Batch, Letter]:
        sent, batch = server.send(fleet.clients.number[cohort]), fleet.everything(cohort)
        own = view(cohort) if view else fleet.whole(cohort, [n for n, alike in shared.items() if not alike])
        params = {name: sent.all[name] if alike else own[name] for name, alike in shared.items()}
        return params, batch, sent

    return here


def _places(model: Recommender) -> dict[str, int | None]:
    """Where each weight that scores read has the client axis."""
    return {name: None if alike else 0 for name, alike in _shared(model).items()}


def _shared(model: Recommender) -> dict[str, bool]:
    """Each weight that scores read, and whether it comes with the letter, the same for everybody.

    Networks of a defence that stay on a device may be large, and scores never read them. Of a personal model
    everything is the device's own.
    """
    parts = {name: model.parts[part_of(name)] for name in model.names()}
    if model.personal:
        return dict.fromkeys(parts, False)
    return {n: p.scope is Scope.SHARED for n, p in parts.items() if p.scope is Scope.SHARED or not p.helper}


def _device(batch: Batch, sent: Letter, keys: Keys) -> tuple[Device, Device]:
    """Devices that want scores, and where they have the client axis."""
    number = torch.tensor([sent.round, 0], device=keys.value.device)
    device = Device(batch, {**sent.all, **sent.each}, sent.posts, keys, number[0], number[1])
    each = dict.fromkeys(sent.all) | dict.fromkeys(sent.each, 0)
    axes = Device(Batch.axes(rows=None), each, None, 0, None, None, None)  # type: ignore[arg-type]
    return device, axes


def _view(fleet: InProcess, server: Counterpart, pool: Workers) -> View:
    """Some clients ``[c]`` to all their weights after one more local pass, client axis first."""
    apart = fleet.keys.fold("personal")

    def train(cohort: Tensor) -> Params:
        sizes = torch.tensor([fleet.clients.sizes[k] for k in cohort.tolist()], device=cohort.device)
        order = sizes.argsort(descending=True, stable=True)  # the largest first, as examples want it
        some, back = cohort[order], order.argsort()
        sent, kept = server.send(fleet.clients.number[some]), fleet.devices.get(some)
        keys, first = apart.fold(sent.round).fold(fleet.clients.tags[some]), fleet.first_keys(some)
        task, chunk = fleet.task(pool.own(fleet.model)), Chunk(fleet.clients, some, sent, kept, keys, first)
        examples, learnt = learned(task, chunk, drawn(task, chunk))
        trained = learnt.params
        for name in task.tables:
            if name in sent.all:
                base = sent.all[name].expand(len(some), *sent.all[name].shape)
            else:
                base = private_rows.widened(fleet.model, kept, name, first)
            trained[name] = filled(base, examples.known.rows, trained[name])
        return {name: weight.detach()[back] for name, weight in trained.items()}

    return train
