"""FedRAP: an item table that all devices share, plus a table of residuals on each device.

Paper: Li et al., "Federated Recommendation with Additive Personalization", ICLR 2024 (FedRAP); FedAU² (AAAI
2026) protects it in a variant of its own.

A score is an affine function of C_i + D_ui: C is one item table that all share, D_u is a table of residuals
of the user's own. Two terms are added to the cross-entropy: μ · mean |C|, which keeps what is shared sparse,
and −λ · MSE(D, C), which makes the two tables differ; both are means over the examples of a batch and over
the columns. The paper grows both weights over the rounds; its code computes that growth and never uses it, so
they are constant here. The second term has no bound: its effect depends on rates and rounds.

Under ``original`` the affine function is each user's own, and begins alike everywhere. FedAU² shares it and
leaves the second term out. Then nothing that is learned of one item reaches another one of the same user: an
item that is neither touched nor drawn is scored as for everybody, and one that was drawn as untouched is
remembered as such. If held-out items were never drawn, that alone would distinguish them from all others;
here they are drawn like any other. Under either variant residuals that learn as fast as the rest learn the
log by heart: give them a lower rate (``lr = { residual = …, default = … }``).

The residual begins with zeros and is kept for rows that were touched (`Part`).
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn

from veilrec.base.keys import Keys
from veilrec.base.limits.bounds import Scales, Width, WidthOrNone
from veilrec.base.params import Params, Part, Scope
from veilrec.clients import Batch
from veilrec.model import Device, Recommender
from veilrec.models.common.layers import asked, bce
from veilrec.models.pfedrec import ScoreFunction

__all__ = ["FedRAP"]

SPARSITY = 0.1  # μ, as both papers' code has it
APART = {"fedau2": 0.0, "original": 0.1}  # λ


class FedRAP(Recommender):
    """An item is a vector that all share plus one of the user's own; a score is an affine function of both.

    A user is the residual, each row summed over its width, as FedAU² has it: a number for each item.

    Items 0 and 1 are the same for everybody; this user's residual tells them apart:

    >>> from veilrec.model import bind
    >>> weights = {"item": torch.tensor([[1.0], [1.0], [2.0]])}
    >>> weights |= {"residual": torch.tensor([0.5, 0.0, 0.0]).reshape(3, 1, 1)}  # [items, seats, dim]
    >>> weights |= {"score.weight": torch.tensor([[2.0]]), "score.bias": torch.tensor([1.0])}
    >>> model = FedRAP(n_items=3, dim=1)
    >>> bind(model, weights, FedRAP.scores, Batch.by_hand(3))
    tensor([[4., 3., 5.]])
    >>> bind(model, weights, FedRAP.represent, Batch.by_hand(3))
    tensor([[0.5000, 0.0000, 0.0000]])

    Args:
        n_items: Rows of both tables.
        n_seats: Users that one device has room for; each has residuals of its own.
        dim: Width of the vectors.
        variant: Whether all share one score function (``fedau2``) or each user has one (``original``).
        project: Width of the vector that stands for a user: residuals added up with fixed random signs; 0 for
            one number an item.
        scale: Standard deviation of fresh shared vectors.
    """

    def __init__(
        self,
        n_items: int,
        n_seats: int = 1,
        *,
        dim: Width = 32,
        variant: Literal["fedau2", "original"] = "fedau2",
        project: WidthOrNone = 0,
        scale: Scales = 0.01,
    ) -> None:
        super().__init__()
        self.scale = scale
        self.apart = APART[variant]
        alone = variant == "original"
        score = Part(Scope.PRIVATE, rows="user", shared_init=True) if alone else Part(Scope.SHARED)
        item, residual = Part(Scope.SHARED, rows="item"), Part(Scope.PRIVATE, rows="item")
        self.parts = {"item": item, "residual": residual, "score": score}
        self.item = nn.Parameter(torch.empty(n_items, dim))
        self.residual = nn.Parameter(torch.empty(n_items, n_seats, dim))
        self.score = ScoreFunction(n_seats if alone else 1, dim)
        self.n_items, self.n_seats, self.dim = n_items, n_seats, project or n_items
        self.signs = _signs(n_items, project) if project else None

    def represent(self, batch: Batch) -> Tensor:
        """``[seats, dim]``: of the local rows as they are now, and of all others as they were kept."""
        here = self._summed(batch.rows, self.residual)
        return here + batch.rest if batch.rest.shape[-1] else here

    def summary_of_absent_rows(self, row: Tensor, kept: Params) -> Tensor:
        return self._summed(row, kept["residual"])

    def _summed(self, row: Tensor, residual: Tensor) -> Tensor:
        """``[seats, dim]`` a user's vector as far as rows ``[r]`` of residuals ``[r, seats, d]`` make it."""
        place = row.clamp(min=0)
        each = residual.sum(-1) * (row >= 0)[:, None]  # [r, seats]
        if self.signs is None:
            wide = each.new_zeros(self.n_items, self.n_seats)
            return wide.scatter_add(0, place[:, None].expand(-1, self.n_seats), each).mT
        if self.signs.device != each.device or self.signs.dtype != each.dtype:
            self.signs = self.signs.to(each.device, each.dtype)  # once: a run has one of each
        return each.mT @ self.signs[place]

    def loss(self, device: Device) -> Tensor:
        batch = device.batch
        index = torch.cat([batch.item[:, None], batch.negative], 1)  # [b, 1 + q]
        user = batch.user[:, None].expand_as(index)
        shared, own = self.item[index], self.residual[index, user]  # [b, 1 + q, d]
        weight, bias = self._affine(self.score.weight, self.score.bias)
        score = ((shared + own) * weight[user]).sum(-1) + bias[user]
        terms = SPARSITY * shared.abs().mean(-1) - self.apart * (own - shared).square().mean(-1)
        mean = (batch.weight * terms.mean(1)).sum() / batch.weight.sum().clamp(min=1)
        return bce(score[:, 0], score[:, 1:], batch.weight) + mean

    def scores(self, batch: Batch, items: Tensor | None = None) -> Tensor:
        weight, bias = self._affine(self.score.weight, self.score.bias)  # [seats, d]
        own = (self.residual * weight).sum(-1).mT  # [seats, items]
        score = own + weight @ self.item.mT + bias[:, None]
        return score if items is None else score.gather(1, items)

    def cohort_loss(self, params: Params, devices: Device) -> Tensor:
        batch, item, residual = devices.batch, params["item"], params["residual"]  # [c, l, d], [c, l, s, d]
        loss = bce(*asked(self._scored(params), batch), batch.weight)
        share = self._shares(batch, item.shape[1])  # [c, l, s]
        loss = loss + SPARSITY * (share.sum(2) * item.abs().mean(-1)).sum(1)
        if self.apart:
            far = (residual - item[:, :, None]).square().mean(-1)
            loss = loss - self.apart * (share * far).sum((1, 2))
        return loss

    def cohort_scores(self, params: Params, batch: Batch, items: Tensor | None = None) -> Tensor:
        score = self._scored(params)
        return score if items is None else score.gather(2, items)

    def _scored(self, params: Params) -> Tensor:
        """``[c, seats, l]`` the score of every row; shared weights may lack the client axis."""
        item, residual = params["item"], params["residual"]
        weight, bias = self._affine(params["score.weight"], params["score.bias"], len(residual))
        if self.n_seats == 1:
            own = weight @ residual.flatten(2).mT
        else:
            own = torch.einsum("clsd,csd->csl", residual, weight)
        return own + weight @ item.mT + bias[..., None]

    def _affine(self, weight: Tensor, bias: Tensor, *clients: int) -> tuple[Tensor, Tensor]:
        """The score function of every seat, ``[…, seats, d]`` and ``[…, seats]``, whether shared or not."""
        seats = (*clients, self.n_seats)
        return weight.expand(*seats, weight.shape[-1]), bias.expand(*seats)

    def _shares(self, batch: Batch, length: int) -> Tensor:
        """``[c, l, seats]`` the weight of each row, for each user, in the mean over a batch's examples."""
        c, b, q = batch.negative.shape
        each = batch.weight / batch.weight.sum(1, keepdim=True).clamp(min=1) / (1 + q)
        index = torch.cat([batch.item, batch.negative.reshape(c, b * q)], 1) * self.n_seats
        index = index + torch.cat([batch.user, batch.user.repeat_interleave(q, 1)], 1)
        every = torch.cat([each, each.repeat_interleave(q, 1)], 1)
        empty = every.new_zeros(c, length * self.n_seats)
        return empty.scatter_add(1, index, every).reshape(c, length, self.n_seats)


def _signs(n_items: int, width: int) -> Tensor:
    """``[items, width]`` random signs over √width, the same everywhere: lengths are kept in the mean."""
    words = Keys.seed(0).fold("fedrap").words(n_items, width)
    return (words & 1).mul(2).sub(1).float() / math.sqrt(width)
