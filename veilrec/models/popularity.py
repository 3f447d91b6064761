"""Popularity: the same list for everyone, by how many devices touched an item. The floor of every table.

Paper: none; the baseline that Cremonesi, Koren and Turrin, "Performance of Recommender Algorithms on Top-N
Recommendation Tasks", RecSys 2010, found hard to beat.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from veilrec.base.params import Part, Scope
from veilrec.clients import Batch
from veilrec.model import Device, Recommender

__all__ = ["Popularity"]


class Popularity(Recommender):
    """A score per item that grows by the same step for each touch: after one round of SGD, the counts.

    >>> from veilrec.model import bind
    >>> touches = {"item": torch.tensor([5.0, 1.0, 3.0])}
    >>> bind(Popularity(n_items=3), touches, Popularity.scores, Batch.by_hand(3))
    tensor([[5., 1., 3.]])

    Args:
        n_items: Length of the list.
        n_seats: Users that one device has room for.
    """

    scale = 0.0

    def __init__(self, n_items: int, n_seats: int = 1) -> None:
        super().__init__()
        self.parts = {"item": Part(Scope.SHARED, rows="item")}
        self.dim = 1
        self.n_seats = n_seats
        self.item = nn.Parameter(torch.empty(n_items))

    def loss(self, device: Device) -> Tensor:
        # A sum, not a mean: a device that touched more items counts each of them fully.
        return -(device.batch.weight * self.item[device.batch.item]).sum()

    def scores(self, batch: Batch, items: Tensor | None = None) -> Tensor:
        return self.item.expand(self.n_seats, -1) if items is None else self.item[items]

    def represent(self, batch: Batch) -> Tensor:
        return self.item.new_zeros(self.n_seats, 1)
