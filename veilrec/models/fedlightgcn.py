"""FedLightGCN: matrix factorisation whose user is also the mean of the items on the user's own device.

Paper: He et al., "LightGCN: Simplifying and Powering Graph Convolution Network for Recommendation", SIGIR
2020, on the graph that one device has: a star of its user and that user's items, in one layer. APM (Table 6)
and PARD (as "FedGCN") run it federated.

On a star, LightGCN would weigh an item by 1/√|N_u|; here the items' vectors are averaged, as PARD has it, so
that a user with many items is no longer than one with few. Only the user's end of the star is convolved. The
other end would add the user's vector to the items that are trained on and to no other, so that a touched item
could be told without learning anything about it.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from veilrec.clients import Batch
from veilrec.model import Device, Recommender
from veilrec.models.layers import LOSSES, check_widths, shares
from veilrec.params import Params, Part, Scope

__all__ = ["FedLightGCN"]


class FedLightGCN(Recommender):
    """A user is half a vector of its own and half the mean vector of the items touched.

    Args:
        n_items: Rows of the item table.
        n_seats: Users that one device has room for.
        dim: Width of the vectors.
        objective: Binary cross-entropy, or Bayesian personalised ranking.
        user: Whether the user vector stays on the device or is uploaded each round.
    """

    history = -1

    def __init__(
        self,
        n_items: int,
        n_seats: int = 1,
        *,
        dim: int = 64,
        objective: Literal["bce", "bpr"] = "bce",
        user: Literal["private", "exposed"] = "private",
    ) -> None:
        super().__init__()
        check_widths(dim=dim)
        self.parts = {"user": Part(Scope(user), rows="user"), "item": Part(Scope.SHARED, rows="item")}
        self.dim, self.objective = dim, LOSSES[objective]
        self.user = nn.Parameter(torch.empty(n_seats, dim))
        self.item = nn.Parameter(torch.empty(n_items, dim))

    def represent(self, batch: Batch) -> Tensor:
        return (self.user + shares(batch.history, len(self.item), self.item.dtype) @ self.item) / 2

    def loss(self, device: Device) -> Tensor:
        batch = device.batch
        user = self.scoring_user(batch)[batch.user]  # [b, d]
        touched = (user * self.item[batch.item]).sum(-1)  # [b]
        untouched = (user[:, None] * self.item[batch.negative]).sum(-1)  # [b, q]
        return self.objective(touched, untouched, batch.weight)

    def scores(self, batch: Batch, items: Tensor | None = None) -> Tensor:
        user = self.scoring_user(batch)  # [seats, d]
        return user @ self.item.T if items is None else (user[:, None] * self.item[items]).sum(-1)

    def cohort_loss(self, params: Params, devices: Device) -> Tensor:
        batch, item = devices.batch, params["item"]  # [c, l, d]
        user = (params["user"] + shares(batch.history, item.shape[1], item.dtype) @ item) / 2  # [c, seats, d]
        c, b, q = batch.negative.shape
        score = user @ item.mT  # [c, seats, l]: each row once, however often it was drawn
        seat = torch.cat([batch.user, batch.user.repeat_interleave(q, 1)], 1)
        wanted = seat * item.shape[1] + torch.cat([batch.item, batch.negative.reshape(c, b * q)], 1)
        score = score.flatten(1).gather(1, wanted)  # [c, b (1 + q)]
        return self.objective(score[:, :b], score[:, b:].reshape(c, b, q), batch.weight)

    def cohort_scores(self, params: Params, batch: Batch, items: Tensor | None = None) -> Tensor:
        item = params["item"]
        user = (params["user"] + shares(batch.history, len(item), item.dtype) @ item) / 2  # [c, seats, d]
        return user @ item.T if items is None else (user[:, :, None] * item[items]).sum(-1)
