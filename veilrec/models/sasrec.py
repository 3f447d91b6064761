"""SASRec: the next item by self-attention over those before it.

Paper: Kang and McAuley, "Self-Attentive Sequential Recommendation", ICDM 2018. On devices it is
Fed-SASRec, and in PTF-FSR (Yuan et al., 2024) the small model of clients or the large one of the server.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from veilrec.base.limits.bounds import Scales, Width, WidthOrNone
from veilrec.base.params import Part, Scope
from veilrec.errors import BadInput
from veilrec.models.common.layers import Dense
from veilrec.models.common.sequences import Norm, SequenceModel

__all__ = ["SASRec"]

HIDDEN = -1e9  # a weight of attention that is none


class SASRec(SequenceModel):
    """Blocks of causal self-attention and a layer for each position; positions count from the end.

    Without blocks the state is the last item as it stands, brought to mean 0 and variance 1:

    >>> from veilrec.clients import Batch
    >>> from veilrec.model import bind
    >>> model = SASRec(n_items=2, dim=2, blocks=0, heads=1, length=1)
    >>> weights = {"item": torch.tensor([[1.0, 0.0], [0.0, 1.0]]), "position": torch.zeros(1, 2)}
    >>> weights |= {"norm.weight": torch.ones(2), "norm.bias": torch.zeros(2)}
    >>> bind(model, weights, SASRec.scores, Batch.by_hand(2, history=[0])).round(decimals=2)
    tensor([[ 1., -1.]])

    Args:
        n_items: Rows of the item table.
        n_seats: Users that one device has room for.
        dim: Width of the vectors.
        blocks, heads: How often attention is paid, and in how many ways at once.
        length: How many of a user's latest items are read.
        items: Whether the item table is averaged or each device's own.
        sharing: The same of everything else.
        scale: Standard deviation of fresh item vectors.
    """

    def __init__(
        self,
        n_items: int,
        n_seats: int = 1,
        *,
        dim: Width = 32,
        blocks: WidthOrNone = 2,
        heads: Width = 2,
        length: Width = 20,
        items: Literal["shared", "private"] = "shared",
        sharing: Literal["shared", "private"] = "shared",
        scale: Scales = 0.01,
    ) -> None:
        super().__init__()
        if dim % heads:
            raise BadInput(
                "model.heads", f"{heads} heads of vectors of width {dim}", "choose a divisor of it"
            )
        self.scale, self.heads = scale, heads
        self.names_of_blocks = [f"block{k + 1}" for k in range(blocks)]
        networks = Part(Scope(sharing), shared_init=True)
        self._hold(n_items, n_seats, dim, length, items, networks, "position", *self.names_of_blocks, "norm")
        self.position = nn.Parameter(torch.empty(length, dim))
        for name in self.names_of_blocks:
            setattr(self, name, _Block(dim, heads))
        self.norm = Norm(dim)

    def states(self, item: Tensor, there: Tensor) -> Tensor:
        length = item.shape[1]
        x = item * self.dim**0.5 + self.position[len(self.position) - length :]
        order = torch.arange(length, device=item.device)
        seen = there[:, None] & (order <= order[:, None])  # [s, t, t]
        for name in self.names_of_blocks:
            x = self.get_submodule(name)(x, seen)
        return self.norm(x)  # type: ignore[no-any-return]


class _Block(nn.Module):
    """Attention of each position to itself and those before it, then a layer; both added to what came in."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = Norm(width), Norm(width)
        self.query, self.key, self.value, self.out = (Dense(width, width) for _ in range(4))
        self.first, self.second = Dense(width, width), Dense(width, width)

    def forward(self, x: Tensor, seen: Tensor) -> Tensor:
        """``[s, t, width]`` after it; ``seen [s, t, t]`` says which positions each may look at."""
        asking = self.before(x)
        query, key, value = (
            layer(y).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for layer, y in ((self.query, asking), (self.key, x), (self.value, x))
        )  # [s, heads, t, width / heads]
        weight = query @ key.transpose(-1, -2) / key.shape[-1] ** 0.5
        weight = torch.where(seen[:, None], weight, HIDDEN).softmax(-1)
        found = asking + self.out((weight @ value).transpose(1, 2).flatten(-2))
        ready = self.between(found)
        return ready + self.second(F.relu(self.first(ready)))  # type: ignore[no-any-return]
