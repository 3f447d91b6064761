"""PFedRec: no user vector; each device has a score function of its own, and items as it sees them itself.

Paper: Zhang et al., "Dual Personalization on Federated Recommendation", IJCAI 2023 (PFedRec).

The paper steps the score function first and then, in a second pass over the batch, the items with a rate of
their own. Here both step at once, with `plan.lr` by part (``lr = { item = …, default = … }``): the two differ
by the product of both rates, and cost one pass instead of two.

The second personalisation is the item table. A device scores with the table that it has trained, not with the
mean of all (`personal`). The paper scores with what was trained in the round that ends, on the items as they
were before it; here a device trains once more on the items as they are now, as it would in the next round, so
that no device's table is kept. Its negatives are untouched in training, so that a held-out item may be among
them and be pushed down; the authors' code never draws one, which reveals to the device its test items.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from veilrec.base.keys import Keys
from veilrec.base.limits.bounds import Scales, Width
from veilrec.base.params import Params, Part, Scope
from veilrec.clients import Batch
from veilrec.model import Device, Recommender
from veilrec.models.common.layers import asked, bce, rows_of

__all__ = ["PFedRec"]


class ScoreFunction(nn.Module):
    """A linear score function for each seat."""

    def __init__(self, n_seats: int, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_seats, dim))
        self.bias = nn.Parameter(torch.empty(n_seats))

    def initial(self, last: str, keys: Keys) -> Tensor:
        """Uniform up to one over the root of the width, as linear layers begin in the authors' code.

        One draw for all seats: which users share a device shall not decide how alike they begin.
        """
        bound, shape = 1 / math.sqrt(self.weight.shape[-1]), self.get_parameter(last).shape
        one = (2 * keys.uniform(1, *shape[1:]) - 1) * bound
        return one.expand(*keys.value.shape, *shape).contiguous()


class PFedRec(Recommender):
    """An item is a vector that all share, a score is a private linear function of it.

    That function is all that belongs to a user, so its weights stand for the user.

    >>> from veilrec.model import bind
    >>> weights = {"score.weight": torch.tensor([[1.0, -1.0]]), "score.bias": torch.tensor([0.5])}
    >>> weights |= {"item": torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])}
    >>> bind(PFedRec(n_items=3, dim=2), weights, PFedRec.scores, Batch.by_hand(3))
    tensor([[ 1.5000, -0.5000,  0.5000]])

    Args:
        n_items: Rows of the item table.
        n_seats: Users that one device has room for; each has a score function.
        dim: Width of the vectors.
        scale: Standard deviation of fresh item vectors.
        personal: Whether a device scores with items as it trains them itself, as the paper has it, or with
            those that it is sent.
    """

    def __init__(
        self,
        n_items: int,
        n_seats: int = 1,
        *,
        dim: Width = 32,
        scale: Scales = 0.01,
        personal: bool = True,
    ) -> None:
        super().__init__()
        self.scale = scale
        score = Part(Scope.PRIVATE, rows="user", shared_init=True)
        self.parts = {"score": score, "item": Part(Scope.SHARED, rows="item")}
        self.dim, self.personal = dim, personal
        self.score = ScoreFunction(n_seats, dim)
        self.item = nn.Parameter(torch.empty(n_items, dim))

    def represent(self, batch: Batch) -> Tensor:
        return self.score.weight

    def loss(self, device: Device) -> Tensor:
        batch = device.batch
        weight, bias = self.scoring_user(batch)[batch.user], self.score.bias[batch.user]  # [b, d] and [b]
        touched = (weight * self.item[batch.item]).sum(-1) + bias  # [b]
        untouched = (weight[:, None] * self.item[batch.negative]).sum(-1) + bias[:, None]  # [b, q]
        return bce(touched, untouched, batch.weight)

    def scores(self, batch: Batch, items: Tensor | None = None) -> Tensor:
        weight = self.scoring_user(batch)  # [seats, d]
        score = weight @ self.item.T if items is None else (weight[:, None] * self.item[items]).sum(-1)
        return score + self.score.bias[:, None]

    def cohort_loss(self, params: Params, devices: Device) -> Tensor:
        score = params["score.weight"] @ params["item"].mT + params["score.bias"][..., None]  # [c, seats, l]
        return bce(*asked(score, devices.batch), devices.batch.weight)

    def cohort_scores(self, params: Params, batch: Batch, items: Tensor | None = None) -> Tensor:
        weight, item = params["score.weight"], params["item"]
        score = weight @ item.mT if items is None else (weight[:, :, None] * rows_of(item, items)).sum(-1)
        return score + params["score.bias"][..., None]
