"""Ordered: a small sequential recommender, whose examples are ordered histories of bounded length.

Paper: none; it stands for sequential recommenders to come. Its item table is each device's own and begins
with keyed rows: over rows of zero, a history would say nothing.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from veilrec.base.params import Part, Scope
from veilrec.clients import Batch
from veilrec.examples import Draw, Examples
from veilrec.model import Device, Recommender

__all__ = ["Ordered"]


class Ordered(Recommender):
    """The next item goes by a mixed mean of those before it.

    Args:
        n_items: Rows of the item table.
        n_seats: Users that one device has room for.
        dim: Width of the vectors.
        length: How many of a user's latest items are read.
        mixing: Whether the matrix that mixes is averaged or each device's own.
    """

    def __init__(
        self,
        n_items: int,
        n_seats: int = 1,
        *,
        dim: int = 4,
        length: int = 6,
        mixing: Literal["shared", "private"] = "shared",
    ) -> None:
        super().__init__()
        self.dim = dim
        self.history, self.n_seats, self.scale = length, n_seats, 0.5
        self.parts = {
            "item": Part(Scope.PRIVATE, rows="item", keyed_rows=True),
            "mix": Part(Scope(mixing), shared_init=True),
        }
        self.item = nn.Parameter(torch.empty(n_items, dim))
        self.mix = nn.Parameter(torch.empty(dim, dim))

    def examples(self, draw: Draw) -> Examples:
        return draw.sequences(self.history)

    def loss(self, device: Device) -> Tensor:
        batch = device.batch
        weight = batch.weight[:, None]
        item = self.item[batch.item] * weight  # [seats · t, d]
        seats = item.unflatten(0, (self.n_seats, -1))
        before = (seats.cumsum(1) - seats).flatten(0, 1)  # of the same user alone
        count = weight.unflatten(0, (self.n_seats, -1)).cumsum(1).flatten(0, 1)
        state = (before / count.clamp(min=1)) @ self.mix
        touched = (state * item).sum(-1)
        untouched = (state[:, None] * self.item[batch.negative]).sum(-1)
        each = F.softplus(-touched) + F.softplus(untouched).sum(-1)
        return (batch.weight * each).sum() / batch.weight.sum().clamp(min=1)

    def scores(self, batch: Batch, items: Tensor | None = None) -> Tensor:
        user = self.represent(batch)
        return user @ self.item.T if items is None else (user[:, None] * self.item[items]).sum(-1)

    def represent(self, batch: Batch) -> Tensor:
        there = (batch.history >= 0)[..., None]  # [seats, t, 1]
        item = torch.where(there, self.item[batch.history.clamp(min=0)], 0.0)
        return item.sum(1) / there.sum(1).clamp(min=1) @ self.mix
