"""FedMF: matrix factorisation with the user vector kept on the device.

Paper: Chai et al., "Secure Federated Matrix Factorization", IEEE Intelligent Systems 2021.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from veilrec.base.limits.bounds import Scales, Width
from veilrec.base.params import Params, Part, Scope
from veilrec.base.rows import pick
from veilrec.clients import Batch
from veilrec.model import Device, Recommender
from veilrec.models.common.layers import LOSSES, rows_of

__all__ = ["FedMF"]


class FedMF(Recommender):
    """A user is a vector, an item is a vector, a score is their product.

    >>> from veilrec.model import bind
    >>> user, item = torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> bind(FedMF(n_items=3, dim=2), {"user": user, "item": item}, FedMF.scores, Batch.by_hand(3))
    tensor([[1., 2., 3.]])

    Args:
        n_items: Rows of the item table.
        n_seats: Users that one device has room for.
        dim: Width of the vectors.
        objective: Binary cross-entropy, or Bayesian personalised ranking.
        user: Whether the user vector stays on the device or is uploaded each round.
        scale: Standard deviation of fresh vectors, one for all or by part: ``{item = 0.1}``. A part that is
            not named has that of ``default``, else 0.01.
    """

    def __init__(
        self,
        n_items: int,
        n_seats: int = 1,
        *,
        dim: Width = 64,
        objective: Literal["bce", "bpr"] = "bce",
        user: Literal["private", "exposed"] = "private",
        scale: Scales = 0.01,
    ) -> None:
        super().__init__()
        self.scale = scale
        self.parts = {"user": Part(Scope(user), rows="user"), "item": Part(Scope.SHARED, rows="item")}
        self.dim = dim
        self.objective = LOSSES[objective]
        self.user = nn.Parameter(torch.empty(n_seats, dim))
        self.item = nn.Parameter(torch.empty(n_items, dim))

    def loss(self, device: Device) -> Tensor:
        batch = device.batch
        user = self.scoring_user(batch)[batch.user]  # [b, d]
        touched = (user * self.item[batch.item]).sum(-1)  # [b]
        untouched = (user[:, None] * self.item[batch.negative]).sum(-1)  # [b, q]
        return self.objective(touched, untouched, batch.weight)

    def cohort_loss(self, params: Params, devices: Device) -> Tensor:
        batch = devices.batch
        user = pick(params["user"], batch.user)  # [c, b, d]
        c, b, q = batch.negative.shape
        touched = (user * pick(params["item"], batch.item)).sum(-1)
        negative = pick(params["item"], batch.negative.reshape(c, b * q)).unflatten(1, (b, q))
        untouched = (user[:, :, None] * negative).sum(-1)
        return self.objective(touched, untouched, batch.weight)

    def scores(self, batch: Batch, items: Tensor | None = None) -> Tensor:
        user = self.scoring_user(batch)  # [seats, d]
        return user @ self.item.T if items is None else (user[:, None] * self.item[items]).sum(-1)

    def cohort_scores(self, params: Params, batch: Batch, items: Tensor | None = None) -> Tensor:
        user, item = params["user"], params["item"]
        return user @ item.mT if items is None else (user[:, :, None] * rows_of(item, items)).sum(-1)

    def represent(self, batch: Batch) -> Tensor:
        return self.user
