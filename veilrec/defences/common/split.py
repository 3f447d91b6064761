"""A recommender whose user has two vectors: one that leaves the device, and one that stays.

Paper: Zhao et al., "Privacy-Aware Representation Decoupling in Federated Recommendation against Attribute
Inference Attacks" (PARD; Fig. 5).
Eqs. (8) and (9) → `user`, `item`; Eq. (22) → `user_re`; Eq. (35) → `scoring_user`, `predictor`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import vmap

from veilrec.base.keys import Keys
from veilrec.base.params import Params, Part, Scope
from veilrec.base.rows import pick
from veilrec.clients import Batch
from veilrec.errors import BadInput
from veilrec.model import Device, Recommender

__all__ = ["SidePerceptron", "SplitRecommender", "perceive"]

BLOCK = 1 << 16  # scored pairs at a time
OWN = {"user", "item", "user_re", "predictor"}


class SideLayer(nn.Module):
    """Linear layers side by side, ``[*side, in, out]``; laid out for ``x @ weight``."""

    def __init__(self, side: tuple[int, ...], width: int, height: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(*side, width, height))
        self.bias = nn.Parameter(torch.empty(*side, height))

    def initial(self, last: str, keys: Keys) -> Tensor:
        """Uniform after Glorot and Bengio, and no bias; however many lie side by side."""
        if last == "bias":
            return keys.uniform(*self.bias.shape) * 0
        bound = math.sqrt(6 / (self.weight.shape[-2] + self.weight.shape[-1]))
        return (2 * keys.uniform(*self.weight.shape) - 1) * bound


class SidePerceptron(nn.Module):
    """Perceptrons of one shape side by side (or one alone), as weights by the numbers of their layers."""

    def __init__(self, widths: Sequence[int], side: tuple[int, ...] = ()) -> None:
        super().__init__()
        for k, (width, height) in enumerate(pairwise(widths)):
            self.add_module(str(k), SideLayer(side, width, height))


def perceive(
    x: Tensor,
    weights: Mapping[str, Tensor],
    part: str,
    slope: float = 0.0,
    drop: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """Layers with a leaky ReLU between: ``x [… , n, in]`` and weights ``[…, in, out]`` to ``[…, n, out]``.

    Whatever axes lie in front (a cohort's, those of perceptrons side by side) must broadcast. The last hidden
    layer goes through `drop`, where there are both.
    """
    layers = sum(name.startswith(f"{part}.") for name in weights) // 2
    for k in range(layers):
        x = F.leaky_relu(x, slope) if k else x
        x = drop(x) if drop and 0 < k == layers - 1 else x
        x = x @ weights[f"{part}.{k}.weight"] + weights[f"{part}.{k}.bias"].unsqueeze(-2)
    return x


class SplitRecommender(Recommender):
    """Another model's vectors with a second, private one for each user, and a private perceptron that scores.

    What the other model makes of a user's vector and the items (`represent`) is made of both vectors; its own
    way of scoring is dropped, and with it its `head` and `sharing`. The scopes of both tables are those named
    here, whatever `user` said. Parts that other defences have attached to it stay.

    Args:
        base: A model with one user and one item table of one width.
        join: The predictor reads [user, user_re, item], or [user + user_re, item].
        head: Widths of the predictor's hidden layers.
        average: Whether the server averages `user` and sends the mean back, or only sees it.
    """

    user: nn.Parameter
    item: nn.Parameter
    objective: Callable[..., Tensor]

    def __init__(
        self,
        base: Recommender,
        *,
        join: Literal["concatenate", "add"] = "concatenate",
        head: Sequence[int] = (64, 32),
        average: bool = False,
    ) -> None:
        super().__init__()
        _check(base)
        self.dim, self.join, self.history, self.classes = base.dim, join, -1, base.classes
        self.objective = base.objective  # type: ignore[assignment]
        self.scale = base.scale
        self.mix = type(base).represent
        kept = {name: part for name, part in base.parts.items() if name not in {*_head(base), *OWN}}
        for name in ("user", "item", *kept):
            setattr(self, name, getattr(base, name))
        self.user_re = nn.Parameter(torch.empty_like(self.user))
        both = self.dim * (2 if join == "concatenate" else 1)
        self.predictor = SidePerceptron([both + self.dim, *head, 1])
        self.parts = {
            "user": Part(Scope.SHARED if average else Scope.EXPOSED, rows="user"),
            "item": Part(Scope.SHARED, rows="item"),
            "user_re": Part(Scope.PRIVATE, rows="user"),
            "predictor": Part(Scope.PRIVATE, shared_init=True),
            **kept,
        }

    def represent(self, batch: Batch) -> Tensor:
        return self._mixed(self.user, self.item, batch)

    def scoring_user(self, batch: Batch) -> Tensor:
        """``[seats, 2 · dim]`` both vectors side by side, or their sum ``[seats, dim]``."""
        return self._joined(self.represent(batch), self._mixed(self.user_re, self.item, batch))

    def loss(self, device: Device) -> Tensor:
        batch = device.batch
        user = self.scoring_user(batch)[batch.user]  # [b, …]
        touched = self._score(user, batch.item)  # [b]
        untouched = self._score(user[:, None].expand(*batch.negative.shape, -1), batch.negative)  # [b, q]
        return self.objective(touched, untouched, batch.weight)

    def scores(self, batch: Batch, items: Tensor | None = None) -> Tensor:
        user = self.scoring_user(batch)[:, None]  # [seats, 1, …]
        items = torch.arange(len(self.item), device=user.device)[None] if items is None else items
        items = items.expand(len(user), -1)
        return self._score(user.expand(*items.shape, -1), items)

    def cohort_loss(self, params: Params, devices: Device) -> Tensor:
        batch, item = devices.batch, params["item"]
        c, b, q = batch.negative.shape
        wanted = torch.cat([batch.item, batch.negative.reshape(c, b * q)], 1)  # [c, b (1 + q)]
        user = vmap(self._both)(params["user"], params["user_re"], item, batch)  # [c, seats, …]
        if user.shape[1] == 1:  # one user: each item is scored once, however often it was drawn
            score = self._cohort(params, user, item).gather(1, wanted)
        else:
            seat = torch.cat([batch.user, batch.user.repeat_interleave(q, 1)], 1)
            score = self._cohort(params, user, pick(item, wanted), seat)
        return self.objective(score[:, :b], score[:, b:].reshape(c, b, q), batch.weight)

    def cohort_scores(self, params: Params, batch: Batch, items: Tensor | None = None) -> Tensor:
        axis = None if self.parts["user"].scope is Scope.SHARED else 0
        both = vmap(self._both, in_dims=(axis, 0, None, Batch.axes(rows=None)))
        users = both(params["user"], params["user_re"], params["item"], batch)  # [c, seats, …]
        n = len(params["item"]) if items is None else items.shape[-1]
        head = {name: value for name, value in params.items() if name.startswith("predictor.")}
        scores = []
        for some in torch.arange(len(users), device=users.device).split(max(1, BLOCK // n)):
            own = {name: value[some] for name, value in head.items()}
            table = params["item"].expand(len(some), *params["item"].shape)
            each = [
                self._cohort(
                    own, users[some, k, None], table if items is None else pick(table, items[some, k])
                )
                for k in range(users.shape[1])
            ]
            scores.append(torch.stack(each, 1))
        return torch.cat(scores)

    def _mixed(self, user: Tensor, item: Tensor, batch: Batch) -> Tensor:
        """``[seats, dim]`` what the wrapped model makes of a user's vector and the items."""
        return self.mix(SimpleNamespace(user=user, item=item), batch)  # type: ignore[arg-type]

    def _joined(self, open_half: Tensor, private_half: Tensor) -> Tensor:
        if self.join == "add":
            return open_half + private_half
        return torch.cat([open_half, private_half], -1)

    def _both(self, user: Tensor, user_re: Tensor, item: Tensor, batch: Batch) -> Tensor:
        return self._joined(self._mixed(user, item, batch), self._mixed(user_re, item, batch))

    def _score(self, user: Tensor, item: Tensor) -> Tensor:
        """Users ``[…, u]`` and items ``[…]`` to scores ``[…]``."""
        weights = {name: weight for name, weight in self.named_parameters() if name.startswith("predictor.")}
        x = torch.cat([user, self.item[item]], -1)  # Eq. (35)
        return perceive(x.reshape(-1, x.shape[-1]), weights, "predictor").reshape(item.shape)

    def _cohort(self, params: Params, user: Tensor, item: Tensor, seat: Tensor | None = None) -> Tensor:
        """``[c, n]`` scores of users ``[c, seats, u]`` (the only one, or by seat) and items ``[c, n, d]``."""
        weight, width = params["predictor.0.weight"], user.shape[-1]
        first = torch.baddbmm(params["predictor.0.bias"][:, None], user, weight[:, :width])  # [c, seats, h]
        x = torch.baddbmm(first if seat is None else pick(first, seat), item, weight[:, width:])
        layers = sum(name.startswith("predictor.") for name in params) // 2
        for k in range(1, layers):
            x = torch.baddbmm(
                params[f"predictor.{k}.bias"][:, None], x.relu(), params[f"predictor.{k}.weight"]
            )
        return x.squeeze(-1)


def _head(base: Recommender) -> set[str]:
    """The parts that a model scores with, where it has some."""
    return {*getattr(base, "layers", ()), getattr(base, "output", "")}


def _check(base: Recommender) -> None:
    """Refuse what has no vector to split, or was split already."""
    tables = {name: part.rows for name, part in base.parts.items() if part.rows}
    if "user_re" in tables:
        raise BadInput("defence", "the user vector is split already", "name pard once")
    here = {name: getattr(base, name, None) for name in ("user", "item", "objective")}
    plain = isinstance(here["user"], nn.Parameter) and isinstance(here["item"], nn.Parameter)
    if tables != {"user": "user", "item": "item"} or not plain or here["objective"] is None:
        what = "it needs a model with one vector for a user and one for an item"
        raise BadInput("model", what, 'use FedNCF with kind = "mlp", or FedLightGCN')
    if base.personal:
        what = "the split model scores with items as they are sent"
        raise BadInput("model.personal", what, "set it to false")
