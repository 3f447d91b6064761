"""FedGCN: a user is what the device knows of its user and the mean of the items it touched; all is shared.

Paper: Zhang, Yuan and Yin, "Comprehensive Privacy Analysis on Federated Recommender System against Attribute
Inference Attacks", TKDE 2024 (APM), §3.1, where it is called FedRec.
Eq. (4) → `Tower.features`, `item`; Eqs. (5) and (6) → `Tower`; Eq. (7) → `mlp1`, `mlp2`; Eq. (8) → `loss`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from veilrec.base.keys import Keys
from veilrec.base.limits.bounds import Width
from veilrec.base.params import Params, Part, Scope, part_of
from veilrec.base.rows import pick, shares
from veilrec.clients import Batch
from veilrec.model import Device, Recommender
from veilrec.models.common.layers import LOSSES, Dense, check_head, known_products, perceptron

__all__ = ["FedGCN"]

BLOCK = 4096  # scored pairs at a time: what fits a core's cache


class Tower(nn.Module):
    """The user component Θ^U = {E_U, W1, W2, b}."""

    def __init__(self, dim: int, n_features: int) -> None:
        super().__init__()
        if n_features:
            self.features = nn.Parameter(torch.empty(dim, n_features))  # E_U
        self.neighbours = nn.Parameter(torch.empty(dim, dim))  # W1
        self.joint = Dense(dim, dim)  # W2 and b

    def forward(self, features: Tensor, mean: Tensor) -> Tensor:
        """``[…, f]`` features and ``[…, dim]`` the mean vector of the items to z*_u, ``[…, dim]``."""
        own = features @ self.features.T if hasattr(self, "features") else 0.0
        return F.relu(
            self.joint(own + mean @ self.neighbours.T)
        )  # Eq. (6); the mean of W1 z_v is W1 the mean


class FedGCN(Recommender):
    """One graph convolution over the user's own items, then a perceptron on [user, item].

    There is no vector that belongs to a user: whatever a device holds beside its data, the server has sent.

    The neighbourhood of a user who touched items 0 and 1 is the mean of their vectors, here under identity
    matrices:

    >>> from veilrec.model import bind
    >>> model = FedGCN(n_items=3, dim=2)
    >>> weights = {"item": torch.tensor([[2.0, 0.0], [0.0, 2.0], [9.0, 9.0]])}
    >>> weights |= {"user.neighbours": torch.eye(2), "user.joint.weight": torch.eye(2)}
    >>> weights |= {"user.joint.bias": torch.zeros(2)}
    >>> bind(model, weights, FedGCN.represent, Batch.by_hand(3, history=[0, 1])).tolist()
    [[1.0, 1.0]]

    Args:
        n_items: Rows of the item table.
        n_seats: Users that one device has room for.
        n_features: Columns of what a device knows of its user; 0 for nothing.
        dim: Width of the vectors.
        head: Widths of the perceptron's hidden layers; each layer is a part of its own, ``mlp1`` first.
        objective: Binary cross-entropy, or Bayesian personalised ranking.
        start: Fresh weights ``small`` and after Glorot and Bengio, or all N(0, 1), as the paper has them.
    """

    history = -1
    scale = 0.1  # a user begins as a mean of items: of tiny ones nothing would be left

    def __init__(
        self,
        n_items: int,
        n_seats: int = 1,
        *,
        n_features: int = 0,
        dim: Width = 64,
        head: Sequence[Width] = (64,),
        objective: Literal["bce", "bpr"] = "bce",
        start: Literal["small", "normal"] = "small",
    ) -> None:
        super().__init__()
        check_head(head)
        self.dim, self.objective, self.normal, self.n_seats = (
            dim,
            LOSSES[objective],
            start == "normal",
            n_seats,
        )
        self.user = Tower(dim, n_features)
        self.item = nn.Parameter(torch.empty(n_items, dim))  # z_v: the features of an item are random anyway
        sizes = [2 * dim, *head, 1]
        self.layers = [f"mlp{k + 1}" for k in range(len(sizes) - 1)]
        for name, a, b in zip(self.layers, sizes[:-1], sizes[1:], strict=True):
            setattr(self, name, Dense(a, b))
        shared = Part(Scope.SHARED)
        self.parts = {
            "user": shared,
            "item": Part(Scope.SHARED, rows="item"),
            **dict.fromkeys(self.layers, shared),
        }

    def initial(self, name: str, keys: Keys) -> Tensor:
        own = part_of(name) in ("user", "item", *self.layers)  # and not what a defence has attached
        if self.normal and own:
            return keys.normal(*self.get_parameter(name).shape)
        return super().initial(name, keys)

    def represent(self, batch: Batch) -> Tensor:
        mean = shares(batch.history, len(self.item), self.item.dtype) @ self.item  # Eq. (5), [seats, dim]
        return self.user(batch.features, mean)  # type: ignore[no-any-return]

    def loss(self, device: Device) -> Tensor:
        batch = device.batch
        user = self.scoring_user(batch)
        touched = self._score(user[batch.user], batch.item)  # [b]
        untouched = self._score(user[batch.user][:, None].expand(*batch.negative.shape, -1), batch.negative)
        return self.objective(touched, untouched, batch.weight)

    def scores(self, batch: Batch, items: Tensor | None = None) -> Tensor:
        user = self.scoring_user(batch)[:, None]  # [seats, 1, d]
        items = torch.arange(len(self.item), device=user.device)[None] if items is None else items
        items = items.expand(len(user), -1)
        return self._score(user.expand(*items.shape, -1), items)

    def _score(self, user: Tensor, item: Tensor) -> Tensor:
        """Users ``[…, d]`` and items ``[…]`` to scores ``[…]``."""
        x = torch.cat([user, self.item[item]], -1)  # Eq. (7)
        for name in self.layers[:-1]:
            x = F.relu(self.get_submodule(name)(x))
        return self.get_submodule(self.layers[-1])(x).squeeze(-1)  # type: ignore[no-any-return]

    def cohort_loss(self, params: Params, devices: Device) -> Tensor:
        batch, item = devices.batch, params["item"]
        c, b, q = batch.negative.shape
        mean = shares(batch.history, item.shape[1], item.dtype) @ item  # [c, seats, d]
        user = self._users(params, batch.features, mean)
        wanted = torch.cat([batch.item, batch.negative.reshape(c, b * q)], 1)  # [c, n] with n = b (1 + q)
        weight = params["mlp1.weight"]
        first = torch.baddbmm(params["mlp1.bias"][:, None], user, weight[:, : self.dim])  # [c, seats, h]
        rest = [params[f"{name}.{kind}"] for name in self.layers[1:-1] for kind in ("weight", "bias")]
        out = params[f"{self.layers[-1]}.weight"].transpose(1, 2)  # [c, 1, h]
        rows, ready = item, None
        if user.shape[1] == 1:  # one user: each item is scored once, however often it was drawn
            ready = known_products(devices.sent["item"], weight[:, self.dim :], batch.rows)
        else:
            rows = pick(item, wanted)
            first = pick(first, torch.cat([batch.user, batch.user.repeat_interleave(q, 1)], 1))
        score = perceptron(rows, first, out, weight[:, self.dim :], *rest, ready=ready)
        score = score + params[f"{self.layers[-1]}.bias"]
        score = score.gather(1, wanted) if user.shape[1] == 1 else score
        return self.objective(score[:, :b], score[:, b:].reshape(c, b, q), batch.weight)

    def _users(self, params: Params, features: Tensor, mean: Tensor) -> Tensor:
        """``[c, seats, d]`` a cohort's users, as `Tower` makes them; weights may lack the client axis."""
        joined = mean @ params["user.neighbours"].mT
        if "user.features" in params:
            joined = joined + features @ params["user.features"].mT
        return F.relu(joined @ params["user.joint.weight"] + params["user.joint.bias"][..., None, :])

    def cohort_scores(self, params: Params, batch: Batch, items: Tensor | None = None) -> Tensor:
        mean = shares(batch.history, len(params["item"]), params["item"].dtype) @ params["item"]
        user = self._users(params, batch.features, mean).flatten(0, 1)  # [u, d]
        first = user @ params["mlp1.weight"][: self.dim] + params["mlp1.bias"]
        item = params["item"] @ params["mlp1.weight"][self.dim :]  # once for each item
        n = len(item) if items is None else items.shape[-1]
        chosen = None if items is None else items.flatten(0, 1)  # [u, n]
        scores = []
        for some in torch.arange(len(first), device=item.device).split(max(1, BLOCK // n)):
            x = F.relu(first[some][:, None] + (item if chosen is None else item[chosen[some]]))
            for name in self.layers[1:-1]:
                x = F.relu(x @ params[f"{name}.weight"] + params[f"{name}.bias"])
            scores.append(x @ params[f"{self.layers[-1]}.weight"][:, 0])
        return (torch.cat(scores) + params[f"{self.layers[-1]}.bias"]).reshape(*batch.history.shape[:2], n)
