"""Serving: the scores that users are shown in a state, everywhere alike.

Most devices score with the weights they are sent and hold. Those of a `personal` model train once more first.
Nothing of that is uploaded or kept: neither the byte counter nor the ledger is told, as for the probe. The
pass depends on the state and the keys alone, so that validation, test and recommendations agree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from veilrec.base.params import Params
from veilrec.base.rows import filled
from veilrec.engine import evaluation, local, private_rows
from veilrec.engine.evaluation import Score, View
from veilrec.engine.workers import Workers
from veilrec.examples import Portion
from veilrec.protocol import State

if TYPE_CHECKING:
    from veilrec.rounds import Federation

__all__ = ["scorer"]

HELD = 1 << 24  # values of whole item tables held at once, where each client has its own


def scorer(federation: Federation, state: State, pool: Workers) -> Score:
    """Clients ``[c]`` and items ``[c, seats, n]`` (None for all) to scores ``[c, seats, n]``."""
    fed, personal = federation, federation.model.personal
    view = _view(fed, state, pool) if personal else None
    score = evaluation.scorer(fed.model, fed.protocol, state, fed.clients, fed.plan.dtype, pool, view)
    few = at_once(fed)

    def some_at_a_time(cohort: Tensor, items: Tensor | None) -> Tensor:
        parts = cohort.split(few)
        chosen = [None] * len(parts) if items is None else items.split(few)
        return torch.cat([score(*part) for part in zip(parts, chosen, strict=True)])

    return some_at_a_time if few else score


def at_once(federation: Federation) -> int:
    """How many clients' whole item tables are held at once; 0 where no client has a table of its own."""
    model = federation.model
    own = federation.task().tables if model.personal else private_rows.names_of(model)
    each = sum(model.get_parameter(name).numel() for name in own)
    return max(1, HELD // each) if each else 0


def _view(federation: Federation, state: State, pool: Workers) -> View:
    """Some clients ``[c]`` to all their weights after one more local pass, client axis first."""
    clients, plan = federation.clients, federation.plan
    apart = federation.keys.fold("personal").fold(state.round)

    def train(cohort: Tensor) -> Params:
        sizes = torch.tensor([clients.sizes[k] for k in cohort.tolist()], device=cohort.device)
        order = sizes.argsort(descending=True, stable=True)  # the largest first, as a portion wants it
        chunk, back = cohort[order], order.argsort()
        keys = apart.fold(clients.tags[chunk])
        settings = {"epochs": plan.epochs, "negatives": plan.negatives, "history": federation.model.history}
        portion = Portion.draw(clients, chunk, keys, **settings, dtype=plan.dtype)
        sent, kept = federation.protocol.send(state, chunk, federation.keys), state.devices.get(chunk)
        portion, own = private_rows.opened(federation.model, portion, kept)
        task = federation.task(pool.own(federation.model))
        situation = local.Situation(sent, state.posts.values, keys, state.round)
        trained = local.train(task, portion, situation, own).params
        for name in task.tables:
            if name in sent.all:
                base = sent.all[name].expand(len(chunk), *sent.all[name].shape)
            else:
                base = private_rows.widened(kept, name, len(federation.model.get_parameter(name)))
            trained[name] = filled(base, portion.known.rows, trained[name])
        return {name: weight.detach()[back] for name, weight in trained.items()}

    return train
