"""Serving: the scores that users are shown in a state, everywhere alike.

Most devices score with the weights they are sent and hold. Those of a `personal` model train once more first.
Nothing of that is uploaded or kept: neither the byte counter nor the ledger is told, as for the probe. It
depends on the state and the keys alone, so that validation, test and recommendations agree. Where the
protocol makes queries, devices ask, and the server scores: `asker` is what a device does for that, simulated
or real. How often they do the ledger is told: by looks in a simulation, on a device by each question.
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
from veilrec.engine.devices import private_rows
from veilrec.engine.evaluation import Score
from veilrec.engine.respond import Chunk, drawn, learned
from veilrec.engine.workers import Workers
from veilrec.model import Device, Recommender, bind, overrides
from veilrec.protocol import Counterpart, Protocol
from veilrec.wire import codec
from veilrec.wire.uploads import Letter

if TYPE_CHECKING:
    from veilrec.engine.fleet import Fleet

__all__ = ["asker", "at_once", "scorer"]

HELD = 1 << 24  # values of whole item tables held at once, where each client has trained its own
WIDE = 1 << 21  # where they are only made whole: 8 MB stay where they were, more is fetched and cleared anew
View = Callable[[Tensor], Params]  # clients [c] → all weights that they score with, client axis first
Ask = Callable[[Tensor], Message]  # clients [c] → what they ask with, client axis first


def scorer(fleet: Fleet, server: Counterpart, pool: Workers, which: str = "test") -> Score:
    """Clients ``[c]`` and items ``[c, seats, n]`` (None for all) to scores ``[c, seats, n]``.

    `which` items are judged by them: for the ``test``, what a model reads may end with the validation item.
    """
    score, few = _scorer(fleet, server, pool, which), at_once(fleet)

    def some_at_a_time(cohort: Tensor, items: Tensor | None) -> Tensor:
        parts = cohort.split(few)
        chosen = [None] * len(parts) if items is None else items.split(few)
        return torch.cat([score(*part) for part in zip(parts, chosen, strict=True)])

    return some_at_a_time if few else score


def at_once(fleet: Fleet) -> int:
    """The number of clients whose whole item tables are held at once; 0 where none has a table."""
    model = fleet.model
    own = fleet.task().tables if model.personal else private_rows.names_of(model)
    each = sum(model.get_parameter(name).numel() for name in own)
    return max(1, (HELD if model.personal else WIDE) // each) if each else 0


def _scorer(fleet: Fleet, server: Counterpart, pool: Workers, which: str) -> Score:
    """The scores of few enough clients, by what they were sent or by weights of each device's own."""
    if overrides(fleet.protocol, Protocol, "query"):
        ask = asker(fleet, server, pool, which=which)
        return lambda cohort, items: server.scores(ask(cohort), items)
    model, batched = fleet.model, overrides(fleet.model, Recommender, "cohort_scores")
    view = _view(fleet, server, pool) if model.personal else None

    def score(cohort: Tensor, items: Tensor | None) -> Tensor:
        sent, batch = server.send(fleet.clients.number[cohort]), fleet.everything(cohort, which)
        params, where = weights(fleet, sent, cohort, view)
        if batched:
            return model.cohort_scores(params, batch, items)
        mine = pool.own(model)

        def alone(params: Params, batch: Batch, items: Tensor | None) -> Tensor:
            return bind(mine, params, type(mine).scores, batch, items)  # type: ignore[no-any-return]

        axes = (where, Batch.axes(rows=None), None if items is None else 0)
        return vmap(alone, in_dims=axes)(params, batch, items)

    return score


def asker(
    fleet: Fleet, server: Counterpart, pool: Workers, secret: Keys | None = None, which: str = "test"
) -> Ask:
    """Clients ``[c]`` to what they ask the server with: under `secret` keys, or the same at every look."""
    view = _view(fleet, server, pool) if fleet.model.personal else None
    keys = (secret or Keys.seed(0, fleet.keys.value.device)).fold("score")

    def ask(cohort: Tensor) -> Message:
        sent, batch = server.send(fleet.clients.number[cohort]), fleet.everything(cohort, which)
        params, where = weights(fleet, sent, cohort, view)
        device, axes = _device(batch, sent, keys.fold(fleet.clients.tags[cohort]))
        mine = pool.own(fleet.model)

        def alone(params: Params, device: Device) -> Message:
            return bind(mine, params, lambda m: fleet.protocol.query(m, device))  # type: ignore[no-any-return]

        query: Message = vmap(alone, in_dims=(where, axes))(params, device)
        schema = fleet.protocol.query_schema(fleet.model, fleet.plan.dtype)
        codec.check(query, schema, lead=(len(cohort),), sender="query")
        return query

    return ask


def weights(
    fleet: Fleet, sent: Letter, cohort: Tensor, view: View | None = None
) -> tuple[Params, dict[str, int | None]]:
    """The weights that scores read on some devices, and where each has the client axis: None for all alike.

    Networks of a defence that stay on a device may be large, and scores never read them. With a `view`, of a
    personal model, everything is the device's own.
    """
    parts = {name: fleet.model.parts[part_of(name)] for name in fleet.model.names()}
    common = {name for name, part in parts.items() if part.scope is Scope.SHARED and view is None}
    read = [name for name, part in parts.items() if view or name in common or not part.helper]
    own = view(cohort) if view else fleet.whole(cohort, [name for name in read if name not in common])
    params = {name: sent.all[name] if name in common else own[name] for name in read}
    return params, {name: None if name in common else 0 for name in read}


def _device(batch: Batch, sent: Letter, keys: Keys) -> tuple[Device, Device]:
    """Devices that want scores, and where they have the client axis."""
    number = torch.tensor([sent.round, 0], device=keys.value.device)
    device = Device(batch, {**sent.all, **sent.each}, sent.posts, keys, number[0], number[1])
    each = dict.fromkeys(sent.all) | dict.fromkeys(sent.each, 0)
    axes = Device(Batch.axes(rows=None), each, None, 0, None, None)  # type: ignore[arg-type]
    return device, axes


def _view(fleet: Fleet, server: Counterpart, pool: Workers) -> View:
    """Map some clients ``[c]`` to all their weights after training once more, client axis first."""
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
