"""FedNCF: neural collaborative filtering with the user vector kept on the device.

Papers: Perifanis and Efraimidis, "Federated Neural Collaborative Filtering", Knowledge-Based Systems 2022;
the two shapes of the score after He et al., "Neural Collaborative Filtering", WWW 2017.
Four models go by this name in the literature; they differ in `kind`, `dim`, `head` and scopes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from veilrec.base.limits.bounds import Scales, Width, WidthOrNone
from veilrec.base.params import Params, Part, Scope
from veilrec.base.rows import pick
from veilrec.clients import Batch
from veilrec.model import Device
from veilrec.models.common.layers import Dense, check_head, known_products, perceptron
from veilrec.models.fedmf import FedMF

__all__ = ["FedNCF"]

BLOCK = 4096  # scored pairs at a time: what fits a core's cache


class FedNCF(FedMF):
    """A multi-layer perceptron on [user, item], alone or beside an element-wise product (NeuMF).

    A perceptron that adds user and item, cuts off what is below 0, and doubles the rest:

    >>> from veilrec.model import bind
    >>> weights = {"user": torch.tensor([[1.0]]), "item": torch.tensor([[1.0], [-3.0], [2.0]])}
    >>> weights |= {"mlp1.weight": torch.ones(2, 1), "mlp1.bias": torch.zeros(1)}
    >>> weights |= {"mlp2.weight": torch.full((1, 1), 2.0), "mlp2.bias": torch.zeros(1)}
    >>> bind(FedNCF(n_items=3, dim=1, head=(1,)), weights, FedNCF.scores, Batch.by_hand(3))
    tensor([[4., 0., 6.]])

    Args:
        n_items: Rows of the item table.
        n_seats: Users that one device has room for.
        kind: ``mlp`` scores by the perceptron; ``neumf`` joins its last layer with user ⊙ item.
        dim: Width of the vectors (of the product's, under ``neumf``).
        head: Widths of the perceptron's hidden layers; each layer is a part of its own, ``mlp1`` first.
        tower_dim: Width of the perceptron's own vectors under ``neumf``; 0 for `dim`.
        objective: Binary cross-entropy, or Bayesian personalised ranking.
        user: Whether user vectors stay on the device or are uploaded each round.
        scale: Standard deviation of fresh vectors, one for all or by part: ``{item = 0.1}``. A part that is
            not named has that of ``default``, else 0.01.
        sharing: Whether the perceptron is averaged or each device keeps its own.
        personal: Whether a device scores with items as it trains them itself (see `Recommender.personal`);
            with a private perceptron this is PFedRec on this backbone, as PARD runs it.
    """

    def __init__(
        self,
        n_items: int,
        n_seats: int = 1,
        *,
        kind: Literal["mlp", "neumf"] = "mlp",
        dim: Width = 64,
        head: Sequence[Width] = (64, 32),
        tower_dim: WidthOrNone = 0,
        objective: Literal["bce", "bpr"] = "bce",
        user: Literal["private", "exposed"] = "private",
        scale: Scales = 0.01,
        sharing: Literal["shared", "private"] = "shared",
        personal: bool = False,
    ) -> None:
        check_head(head)
        super().__init__(n_items, n_seats, dim=dim, objective=objective, user=user, scale=scale)
        self.neumf, self.personal = kind == "neumf", personal
        self.users, self.items = ("mlp_user", "mlp_item") if self.neumf else ("user", "item")
        width = (tower_dim or dim) if self.neumf else dim
        scopes = dict(self.parts)
        if self.neumf:
            self.mlp_user = nn.Parameter(torch.empty(n_seats, width))
            self.mlp_item = nn.Parameter(torch.empty(n_items, width))
            scopes |= {"mlp_user": scopes["user"], "mlp_item": scopes["item"]}
        sizes = [2 * width, *head] if self.neumf else [2 * width, *head, 1]
        self.layers = [f"mlp{k + 1}" for k in range(len(sizes) - 1)]
        for name, a, b in zip(self.layers, sizes[:-1], sizes[1:], strict=True):
            setattr(self, name, Dense(a, b))
        if self.neumf:
            self.predict = Dense(dim + head[-1], 1)
        self.output = "predict" if self.neumf else self.layers.pop()
        scoring = Part(Scope(sharing), shared_init=True)
        self.parts = scopes | dict.fromkeys([*self.layers, self.output], scoring)

    def loss(self, device: Device) -> Tensor:
        batch = device.batch
        touched = self._score(batch, batch.user, batch.item)  # [b]
        untouched = self._score(
            batch, batch.user[:, None].expand_as(batch.negative), batch.negative
        )  # [b, q]
        return self.objective(touched, untouched, batch.weight)

    def scores(self, batch: Batch, items: Tensor | None = None) -> Tensor:
        seats = torch.arange(len(self.user), device=self.user.device)[:, None]
        items = torch.arange(len(self.item), device=seats.device)[None] if items is None else items
        items = items.expand(len(seats), -1)
        return self._score(batch, seats.expand_as(items), items)

    def _score(self, batch: Batch, seat: Tensor, item: Tensor) -> Tensor:
        """Seats and items of one shape to scores of that shape."""
        own = self.mlp_user if self.neumf else self.scoring_user(batch)
        x = torch.cat([own[seat], getattr(self, self.items)[item]], -1)
        for name in self.layers:
            x = F.relu(self.get_submodule(name)(x))
        if self.neumf:
            x = torch.cat([self.scoring_user(batch)[seat] * self.item[item], x], -1)
        return self.get_submodule(self.output)(x).squeeze(-1)  # type: ignore[no-any-return]

    def cohort_loss(self, params: Params, devices: Device) -> Tensor:
        batch = devices.batch
        c, b, q = batch.negative.shape
        item = torch.cat([batch.item, batch.negative.reshape(c, b * q)], 1)  # [c, n] with n = b (1 + q)
        if params["user"].shape[1] == 1:  # one user: each item is scored once, however often it was drawn
            score = self._cohort(params, ready=self._ready(params, devices)).gather(1, item)
        else:
            score = self._cohort(params, item, torch.cat([batch.user, batch.user.repeat_interleave(q, 1)], 1))
        return self.objective(score[:, :b], score[:, b:].reshape(c, b, q), batch.weight)

    def cohort_scores(self, params: Params, batch: Batch, items: Tensor | None = None) -> Tensor:
        if self.parts[self.output].scope is Scope.SHARED and not self.personal:
            return self._shared_scores(params, items)
        c, seats = params["user"].shape[:2]
        shared = () if self.personal else {self.items, "item"}
        tables = {n: params[n].expand(c, *params[n].shape) for n in shared}
        each = []
        for k in range(seats):
            own = {n: params[n][:, k : k + 1] for n in {self.users, "user"}}
            each.append(self._cohort({**params, **tables, **own}, None if items is None else items[:, k]))
        return torch.stack(each, 1)

    def _ready(self, params: Params, devices: Device) -> Tensor | None:
        """``[c, l, h]`` the first layer on the items, while all devices have the weights they were sent."""
        half = params[self.users].shape[-1]
        weight = params["mlp1.weight"][:, half:]
        return known_products(devices.sent[self.items], weight, devices.batch.rows)

    def _cohort(
        self,
        params: Params,
        item: Tensor | None = None,
        seat: Tensor | None = None,
        ready: Tensor | None = None,
    ) -> Tensor:
        """``[c, n]`` scores of some rows and seats ``[c, n]``: by default of all rows, for the only seat."""

        def rows(name: str, index: Tensor | None) -> Tensor:
            return params[name] if index is None else pick(params[name], index)

        half, weight = params[self.users].shape[-1], params["mlp1.weight"]
        user = torch.baddbmm(
            params["mlp1.bias"][:, None], params[self.users], weight[:, :half]
        )  # [c, seats, h]
        first = user if seat is None else pick(user, seat)
        rest = [params[f"{name}.{kind}"] for name in self.layers[1:] for kind in ("weight", "bias")]
        out = params[f"{self.output}.weight"].transpose(1, 2)  # [c, 1, h]: of the product first, under NeuMF
        width = self.dim if self.neumf else 0
        score = perceptron(
            rows(self.items, item), first, out[..., width:], weight[:, half:], *rest, ready=ready
        )
        if self.neumf:
            score = score + (rows("user", seat) * out[..., :width] * rows("item", item)).sum(-1)
        return score + params[f"{self.output}.bias"]

    def _shared_scores(self, params: Params, items: Tensor | None) -> Tensor:
        """``[c, seats, n]`` scores under one perceptron for all: its first layer runs once for each item."""
        half, weight = params[self.users].shape[-1], params["mlp1.weight"]
        first = (params[self.users] @ weight[:half] + params["mlp1.bias"]).flatten(0, 1)  # [u, h]
        item, user = params[self.items] @ weight[half:], params["user"].flatten(0, 1)
        n = len(item) if items is None else items.shape[-1]
        chosen = None if items is None else items.flatten(0, 1)  # [u, n]
        scores = []
        for some in torch.arange(len(first), device=item.device).split(max(1, BLOCK // n)):
            rows = slice(None) if chosen is None else chosen[some]
            x = F.relu(first[some][:, None] + item[rows])  # [few, n, h]
            for name in self.layers[1:]:
                x = torch.addmm(params[f"{name}.bias"], x.flatten(0, 1), params[f"{name}.weight"]).relu_()
                x = x.unflatten(0, (len(some), n))
            if self.neumf:
                x = torch.cat([user[some][:, None] * params["item"][rows], x], -1)
            scores.append(x @ params[f"{self.output}.weight"][:, 0])
        return (torch.cat(scores) + params[f"{self.output}.bias"]).reshape(*params["user"].shape[:2], n)
