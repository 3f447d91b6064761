"""FedVAE: a variational autoencoder of a user's row of interactions, all of whose weights are shared.

Papers: Polato, "Federated Variational Autoencoder for Collaborative Filtering", IJCNN 2021; the model after
Liang et al., "Variational Autoencoders for Collaborative Filtering", WWW 2018 (MultVAE).
"""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from torch import Tensor

from veilrec.base.keys import Keys, uniform_of
from veilrec.base.limits.bounds import Amount, Bounds, ShareBelowOne, Width
from veilrec.base.params import Part, Scope
from veilrec.clients import Batch
from veilrec.model import Device, Recommender
from veilrec.models.common.layers import Dense, bags, whole_rows

__all__ = ["FedVAE"]


class FedVAE(Recommender):
    """A row of interactions through a narrow code and back; the user is the row, and holds nothing else.

    Every device moves every weight, so that a round is cheap where it is one gradient for all: let the plan
    have one epoch and a batch as long as the longest log, and the protocol send gradients. Negatives are
    not read: every item that is not in the row is one.

    Of a user who touched items 0 and 1, the code and the score of each item, with fresh weights:

    >>> from veilrec.model import bind
    >>> model, row = FedVAE(n_items=3, hidden=4, dim=2), Batch.by_hand(3, history=[0, 1])
    >>> weights = {name: model.initial(name, Keys.seed(0).fold(name)) for name in model.names()}
    >>> bind(model, weights, FedVAE.represent, row).round(decimals=2)
    tensor([[-0.0600,  0.5300]])
    >>> bind(model, weights, FedVAE.scores, row).round(decimals=2)
    tensor([[ 0.0300, -0.0100, -0.6600]])

    Args:
        n_items: Length of a row.
        n_seats: Users that one device has room for.
        hidden: Width of the layer between items and code, on both sides.
        dim: Width of the code.
        dropout: Share of a row that is hidden from the encoder in training.
        beta: Weight of KL(code ‖ N(0, I)) in the loss.
        anneal: Rounds over which that weight grows from 0; 0 for none.
        per: The loss is a mean over users (``user``), with MultVAE's sum over each row, or over items as well
            (``item``), so that a user with a long row counts as much as one with a short one.
    """

    history = -1
    dense = True

    def __init__(
        self,
        n_items: int,
        n_seats: int = 1,
        *,
        hidden: Width = 600,
        dim: Width = 200,
        dropout: ShareBelowOne = 0.5,
        beta: Amount = 0.2,
        anneal: Annotated[int, Bounds(0, 1_000_000_000)] = 0,
        per: Literal["user", "item"] = "user",
    ) -> None:
        super().__init__()
        self.n_items, self.n_seats, self.dim = n_items, n_seats, dim
        self.dropout, self.beta, self.anneal, self.per = dropout, beta, anneal, per
        self.encoder, self.latent = Dense(n_items, hidden), Dense(hidden, 2 * dim)
        self.decoder, self.output = Dense(dim, hidden), Dense(hidden, n_items)
        self.parts = dict.fromkeys(("encoder", "latent", "decoder", "output"), Part(Scope.SHARED))

    def loss(self, device: Device) -> Tensor:
        """Minus the log-likelihood of the row plus β times the divergence; a mean over the device's users."""
        item, there = _touched(device.batch)  # [seats, t]
        row, keys = whole_rows(item, there, self.n_items), device.keys.fold("vae")  # [seats, items]
        mean, spread = self._code(item, self._dropped(item, there / _length(row), keys.fold("dropout")))
        noise = keys.fold("code").normal(*mean.shape, dtype=mean.dtype)
        log = self._decode(mean + (spread / 2).exp() * noise).log_softmax(-1)
        divergence = -0.5 * (1 + spread - mean.square() - spread.exp()).sum(-1)  # [seats]
        items, anybody = row.sum(-1), row.amax(-1)  # [seats] how many, and whether any
        each = self._weight(device.round) * divergence - (row * log).sum(-1)
        if self.per == "item":
            each = each / items.clamp(min=1)
        return (each * anybody).sum() / anybody.sum().clamp(min=1)

    def scores(self, batch: Batch, items: Tensor | None = None) -> Tensor:
        logits = self._decode(self.represent(batch))
        return logits if items is None else logits.gather(-1, items.expand(len(logits), -1))

    def represent(self, batch: Batch) -> Tensor:
        """``[seats, dim]`` the mean of the code."""
        item, there = _touched(batch)
        return self._code(item, there / _length(whole_rows(item, there, self.n_items)))[0]

    def _dropped(self, item: Tensor, value: Tensor, keys: Keys) -> Tensor:
        """The values ``[seats, t]`` of a row's items after dropout, each item with a draw of its own."""
        if not self.dropout:
            return value
        seat = torch.arange(len(item), device=item.device)[:, None]
        drawn = uniform_of(keys.at(seat * self.n_items + item), value.dtype)
        return value * (drawn >= self.dropout) / (1 - self.dropout)

    def _code(self, item: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log-variance of the code, ``[seats, dim]`` each, of a row by what is not zero in it."""
        hidden = torch.tanh(bags(self.encoder.weight, item, value) + self.encoder.bias)
        mean, spread = self.latent(hidden).split(self.dim, -1)
        return mean, spread

    def _decode(self, code: Tensor) -> Tensor:
        """``[seats, items]`` logits."""
        return self.output(torch.tanh(self.decoder(code)))  # type: ignore[no-any-return]

    def _weight(self, round: Tensor) -> Tensor | float:
        return self.beta * (round / self.anneal).clamp(max=1) if self.anneal else self.beta


def _touched(batch: Batch) -> tuple[Tensor, Tensor]:
    """``[seats, t]`` the items of each user, and 1 where there is one."""
    item = batch.rows[batch.history.clamp(min=0)].clamp(min=0)
    return item, (batch.history >= 0).to(batch.weight.dtype)


def _length(row: Tensor) -> Tensor:
    """``[seats, 1]`` the divisor that gives a row length 1; an empty row stays empty."""
    return row.square().sum(-1, keepdim=True).sqrt().clamp(min=1)
