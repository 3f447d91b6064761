"""FedLightGCN: matrix factorisation whose user is also the mean of the items on the user's own device.

Paper: He et al., "LightGCN: Simplifying and Powering Graph Convolution Network for Recommendation", SIGIR
2020, on the graph that one device has: a star of its user and that user's items, in one layer. APM (Table 6)
runs it federated, with a product; PARD does as "FedGCN", with a perceptron on [user, item].

On a star, LightGCN would weigh an item by 1/√|N_u|; here the items' vectors are averaged, as PARD has it, so
that a user with many items is no longer than one with few. Only the user's end of the star is convolved. The
other end would add the user's vector to the items that are trained on and to no other, so that a touched item
could be recognised without learning anything about it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Literal

from torch import Tensor

from veilrec.base.limits.bounds import Scales, Width
from veilrec.base.params import Params
from veilrec.base.rows import shares
from veilrec.clients import Batch
from veilrec.model import Device
from veilrec.models.common.layers import asked
from veilrec.models.fedmf import FedMF
from veilrec.models.fedncf import FedNCF

__all__ = ["FedLightGCN"]


class FedLightGCN(FedNCF):
    """A user is half a vector of its own and half the mean vector of the items touched.

    A user whose own vector is [1, 0], and who touched items 0 and 1:

    >>> import torch
    >>> from veilrec.model import bind
    >>> weights = {"user": torch.tensor([[1.0, 0.0]])}
    >>> weights |= {"item": torch.tensor([[0.0, 2.0], [0.0, 4.0], [1.0, 1.0]])}
    >>> model, batch = FedLightGCN(n_items=3, dim=2), Batch.by_hand(3, history=[0, 1])
    >>> bind(model, weights, FedLightGCN.represent, batch).tolist()
    [[0.5, 1.5]]
    >>> bind(model, weights, FedLightGCN.scores, batch).tolist()
    [[3.0, 6.0, 2.0]]

    Args:
        n_items: Rows of the item table.
        n_seats: Users that one device has room for.
        dim: Width of the vectors.
        head: Widths of the hidden layers of a perceptron on [user, item], as in `FedNCF`; empty for none: the
            score is the product of the two.
        objective: Binary cross-entropy, or Bayesian personalised ranking.
        user: Whether the user vector stays on the device or is uploaded each round.
        scale: Standard deviation of fresh vectors, one for all or by part: ``{item = 0.1}``. A part that is
            not named has that of ``default``, else 0.01.
        sharing: Whether the perceptron is averaged or each device keeps its own.
        personal: Whether a device scores with items as it trains them itself (see `Recommender.personal`).
    """

    history = -1

    def __init__(
        self,
        n_items: int,
        n_seats: int = 1,
        *,
        dim: Width = 64,
        head: Sequence[Width] = (),
        objective: Literal["bce", "bpr"] = "bce",
        user: Literal["private", "exposed"] = "private",
        scale: Scales = 0.01,
        sharing: Literal["shared", "private"] = "shared",
        personal: bool = False,
    ) -> None:
        build = partial(FedNCF.__init__, head=head, sharing=sharing) if head else FedMF.__init__
        self.layers: list[str] = []
        build(self, n_items, n_seats, dim=dim, objective=objective, user=user, scale=scale)
        self.personal = personal

    def represent(self, batch: Batch) -> Tensor:
        return convolved(self.user, self.item, batch.history)

    def loss(self, device: Device) -> Tensor:
        return super().loss(device) if self.layers else FedMF.loss(self, device)

    def scores(self, batch: Batch, items: Tensor | None = None) -> Tensor:
        return super().scores(batch, items) if self.layers else FedMF.scores(self, batch, items)

    def cohort_loss(self, params: Params, devices: Device) -> Tensor:
        batch, item = devices.batch, params["item"]  # [c, l, d]
        user = convolved(params["user"], item, batch.history)  # [c, seats, d]
        if self.layers:
            return super().cohort_loss({**params, "user": user}, devices)
        return self.objective(*asked(user @ item.mT, batch), batch.weight)  # each row is scored once

    def cohort_scores(self, params: Params, batch: Batch, items: Tensor | None = None) -> Tensor:
        mixed = {**params, "user": convolved(params["user"], params["item"], batch.history)}
        if self.layers:
            return super().cohort_scores(mixed, batch, items)
        return FedMF.cohort_scores(self, mixed, batch, items)


def convolved(user: Tensor, item: Tensor, history: Tensor) -> Tensor:
    """Users ``[…, seats, d]``, each averaged with the mean item of its history ``[…, seats, t]``."""
    return (user + shares(history, item.shape[-2], item.dtype) @ item) / 2
