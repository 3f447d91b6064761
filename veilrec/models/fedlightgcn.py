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

import torch
from torch import Tensor

from veilrec.clients import Batch
from veilrec.model import Device
from veilrec.models.fedmf import FedMF
from veilrec.models.layers import shares
from veilrec.params import Params

__all__ = ["FedLightGCN"]


class FedLightGCN(FedMF):
    """A user is half a vector of its own and half the mean vector of the items touched.

    Args:
        n_items: Rows of the item table.
        n_seats: Users that one device has room for.
        dim: Width of the vectors.
        objective: Binary cross-entropy, or Bayesian personalised ranking.
        user: Whether the user vector stays on the device or is uploaded each round.
    """

    history = -1

    def represent(self, batch: Batch) -> Tensor:
        return convolved(self.user, self.item, batch.history)

    def cohort_loss(self, params: Params, devices: Device) -> Tensor:
        batch, item = devices.batch, params["item"]  # [c, l, d]
        score = convolved(params["user"], item, batch.history) @ item.mT  # [c, seats, l]: each row once
        c, b, q = batch.negative.shape
        seat = torch.cat([batch.user, batch.user.repeat_interleave(q, 1)], 1)
        wanted = seat * item.shape[1] + torch.cat([batch.item, batch.negative.reshape(c, b * q)], 1)
        score = score.flatten(1).gather(1, wanted)  # [c, b (1 + q)]
        return self.objective(score[:, :b], score[:, b:].reshape(c, b, q), batch.weight)

    def cohort_scores(self, params: Params, batch: Batch, items: Tensor | None = None) -> Tensor:
        user = convolved(params["user"], params["item"], batch.history)
        return super().cohort_scores({**params, "user": user}, batch, items)


def convolved(user: Tensor, item: Tensor, history: Tensor) -> Tensor:
    """Users ``[…, seats, d]``, each averaged with the mean item of its history ``[…, seats, t]``."""
    return (user + shares(history, item.shape[-2], item.dtype) @ item) / 2
