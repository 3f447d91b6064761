"""FedNCF: neural collaborative filtering with the user vector kept on the device.

Papers: Perifanis and Efraimidis, "Federated Neural Collaborative Filtering", Knowledge-Based Systems 2022;
the two shapes of the score after He et al., "Neural Collaborative Filtering", WWW 2017.
Four models go by this name in the literature: `kind`, `dim`, `head` and the scopes tell them apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from veilrec.clients import Batch
from veilrec.errors import BadInput
from veilrec.model import Device, Recommender
from veilrec.models.layers import LOSSES, Dense, dense, pick, tower
from veilrec.params import Params, Part, Scope

__all__ = ["FedNCF"]

BLOCK = 4096  # scored pairs at a time: what fits a core's cache


class FedNCF(Recommender):
    """A multi-layer perceptron on [user, item], alone or beside an element-wise product (NeuMF).

    Args:
        n_items: Rows of the item table.
        n_seats: Users that one device has room for.
        kind: ``mlp`` scores by the perceptron; ``neumf`` joins its last layer with user ⊙ item.
        dim: Width of the vectors (of the product's, under ``neumf``).
        head: Widths of the perceptron's hidden layers; each layer is a part of its own, ``mlp1`` first.
        tower_dim: Width of the perceptron's own vectors under ``neumf``; 0 for `dim`.
        objective: Binary cross-entropy, or Bayesian personalised ranking.
        user: Whether user vectors stay on the device or are uploaded each round.
        sharing: Whether the perceptron is averaged or each device keeps its own.
    """

    def __init__(
        self,
        n_items: int,
        n_seats: int = 1,
        *,
        kind: Literal["mlp", "neumf"] = "mlp",
        dim: int = 64,
        head: Sequence[int] = (64, 32),
        tower_dim: int = 0,
        objective: Literal["bce", "bpr"] = "bce",
        user: Literal["private", "exposed"] = "private",
        sharing: Literal["shared", "private"] = "shared",
    ) -> None:
        super().__init__()
        if not head:
            raise BadInput("model.head", "FedNCF needs at least one hidden layer", "try [64, 32]; or use FedMF")
        self.dim, self.objective, self.neumf = dim, LOSSES[objective], kind == "neumf"
        self.users, self.items = ("mlp_user", "mlp_item") if self.neumf else ("user", "item")
        width = (tower_dim or dim) if self.neumf else dim
        scopes = {"user": Part(Scope(user), rows="user"), "item": Part(Scope.SHARED, rows="item")}
        self.user = nn.Parameter(torch.empty(n_seats, dim))
        self.item = nn.Parameter(torch.empty(n_items, dim))
        if self.neumf:
            self.mlp_user = nn.Parameter(torch.empty(n_seats, width))
            self.mlp_item = nn.Parameter(torch.empty(n_items, width))
            scopes |= {"mlp_user": scopes["user"], "mlp_item": scopes["item"]}
        sizes = [2 * width, *head] if self.neumf else [2 * width, *head, 1]
        self.layers = [f"mlp{k + 1}" for k in range(len(sizes) - 1)]
        for name, a, b in zip(self.layers, sizes[:-1], sizes[1:], strict=True):
            setattr(self, name, Dense(a, b))
        heads = list(self.layers)
        if self.neumf:
            self.predict = Dense(dim + head[-1], 1)
            heads.append("predict")
        self.parts = scopes | dict.fromkeys(heads, Part(Scope(sharing)))

    def loss(self, device: Device) -> Tensor:
        batch = device.batch
        touched = self._score(batch, batch.user, batch.item)  # [b]
        untouched = self._score(batch, batch.user[:, None].expand_as(batch.negative), batch.negative)  # [b, q]
        return self.objective(touched, untouched, batch.weight)

    def scores(self, batch: Batch, items: Tensor | None = None) -> Tensor:
        seats = torch.arange(len(self.user), device=self.user.device)[:, None]
        items = torch.arange(len(self.item), device=seats.device)[None] if items is None else items
        items = items.expand(len(seats), -1)
        return self._score(batch, seats.expand_as(items), items)

    def represent(self, batch: Batch) -> Tensor:
        return self.user

    def _score(self, batch: Batch, seat: Tensor, item: Tensor) -> Tensor:
        """Seats and items of one shape to scores of that shape."""
        own = self.mlp_user if self.neumf else self.scoring_user(batch)
        x = torch.cat([own[seat], getattr(self, self.items)[item]], -1)
        for name in self.layers[:-1]:
            x = F.relu(self.get_submodule(name)(x))
        x = self.get_submodule(self.layers[-1])(x)
        if self.neumf:
            product = self.scoring_user(batch)[seat] * self.item[item]
            x = self.predict(torch.cat([product, F.relu(x)], -1))
        return x.squeeze(-1)

    def cohort_loss(self, params: Params, devices: Device) -> Tensor:
        batch = devices.batch
        c, b, q = batch.negative.shape
        item = torch.cat([batch.item, batch.negative.reshape(c, b * q)], 1)  # [c, n] with n = b (1 + q)
        seat = None if params["user"].shape[1] == 1 else torch.cat([batch.user, batch.user.repeat_interleave(q, 1)], 1)
        x = self._first(params, seat, item)
        score = self._rest(params, x, seat, lambda table: pick(table, item))
        return self.objective(score[:, :b], score[:, b:].reshape(c, b, q), batch.weight)

    def _first(self, params: Params, seat: Tensor | None, item: Tensor) -> Tensor:
        """``[c, n, h]`` the first layer: the user's half once per user, the item's half once per row if that is less."""
        table, own = params[self.items], params[self.users]
        weight = params["mlp1.weight"]
        half = own.shape[-1]
        user = own @ weight[:, :half] + params["mlp1.bias"][:, None]  # [c, seats, h]
        if table.shape[1] <= item.shape[1]:
            x = pick(table @ weight[:, half:], item)
        else:
            x = pick(table, item) @ weight[:, half:]
        return x + (user if seat is None else pick(user, seat))

    def _rest(self, params: Params, x: Tensor, seat: Tensor | None, rows: object) -> Tensor:
        """From the first layer's sum to the scores, ``[…, n]``."""
        if len(self.layers) > 1:
            x = tower(params, self.layers[1:], F.relu(x))
        if self.neumf:
            own = params["user"] if seat is None else pick(params["user"], seat)
            product = own * rows(params["item"])  # type: ignore[operator]
            x = dense(params, "predict", torch.cat([product, F.relu(x)], -1))
        return x.squeeze(-1)
