"""Sequences: what recommenders share that read a user's items in order and say which comes next."""

from __future__ import annotations

from abc import abstractmethod
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from veilrec.base.keys import Keys
from veilrec.base.params import Part, Scope
from veilrec.clients import Batch
from veilrec.examples import Draw, Examples
from veilrec.model import Device, Recommender

__all__: list[str] = []  # no entry of the catalogue

SMALL = 1e-6  # what is added to a variance before its root


class Norm(nn.Module):
    """Layer normalisation over the last axis; it begins without effect on scale and place."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width))
        self.bias = nn.Parameter(torch.empty(width))

    def initial(self, name: str, keys: Keys) -> Tensor:
        """Ones for the scale, zeros for the place."""
        zeros = keys.uniform(len(self.weight)) * 0
        return zeros + 1 if name == "weight" else zeros

    def forward(self, x: Tensor) -> Tensor:
        """``[…, width]`` with mean 0 and variance 1, scaled and moved."""
        apart = x - x.mean(-1, keepdim=True)
        spread = (apart.square().mean(-1, keepdim=True) + SMALL).sqrt()
        return apart / spread * self.weight + self.bias


class SequenceModel(Recommender):
    """A recommender whose score is the product of an item with the state that a user's sequence has reached.

    The loss is binary cross-entropy at each position: of the next item, and of items not touched. A subclass
    makes states of items, and names its networks as parts.
    """

    ordered = True
    item: nn.Parameter

    def _hold(
        self,
        n_items: int,
        n_seats: int,
        dim: int,
        length: int,
        items: Literal["shared", "private"],
        networks: Part,
        *names: str,
    ) -> None:
        """Keep what every sequential model has: the item table, and how much of a sequence is read."""
        self.n_seats, self.dim, self.history = n_seats, dim, length
        own = Part(Scope.PRIVATE, rows="item", keyed_rows=True)
        table = own if items == "private" else Part(Scope.SHARED, rows="item")
        self.parts = {"item": table, **dict.fromkeys(names, networks)}
        self.item = nn.Parameter(torch.empty(n_items, dim))

    @abstractmethod
    def states(self, item: Tensor, there: Tensor) -> Tensor:
        """``[s, t, dim]`` states after each item ``[s, t, dim]``; where none is ``there [s, t]``, any."""

    def examples(self, draw: Draw) -> Examples:
        return draw.sequences(self.history)

    def loss(self, device: Device) -> Tensor:
        batch, seats = device.batch, (self.n_seats, -1)
        item, weight = batch.item.unflatten(0, seats), batch.weight.unflatten(0, seats)
        negative = batch.negative.unflatten(0, seats)[:, 1:]
        state = self._read(item[:, :-1], weight[:, :-1] > 0)
        touched = (state * self.item[item[:, 1:]]).sum(-1)
        untouched = (state[:, :, None] * self.item[negative]).sum(-1)
        counted = weight[:, 1:] * weight[:, :-1]
        each = F.softplus(-touched) + F.softplus(untouched).sum(-1)
        loss: Tensor = (counted * each).sum() / counted.sum().clamp(min=1)
        return loss

    def _read(self, item: Tensor, there: Tensor) -> Tensor:
        """``[s, t, dim]`` states, from rows of the item table."""
        return self.states(self.item[item] * there[..., None], there)

    def represent(self, batch: Batch) -> Tensor:
        return self._read(batch.history.clamp(min=0), batch.history >= 0)[:, -1]

    def scores(self, batch: Batch, items: Tensor | None = None) -> Tensor:
        user = self.scoring_user(batch)
        if items is None:
            return user @ self.item.T
        return (user[:, None] * self.item[items]).sum(-1)
