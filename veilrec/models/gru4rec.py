"""GRU4Rec: the next item by a recurrent network over those before it.

Paper: Hidasi et al., "Session-based Recommendations with Recurrent Neural Networks", ICLR 2016, with the loss
and the layers that PTF-FSR (Yuan et al., 2024) gives it.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from veilrec.base.keys import Keys
from veilrec.base.limits.bounds import Scales, Width, WidthOrNone
from veilrec.base.params import Part, Scope
from veilrec.models.common.sequences import Norm, SequenceModel

__all__ = ["GRU4Rec"]


class GRU4Rec(SequenceModel):
    """One layer of gated units, a matrix back to the items' space, and layer normalisation.

    With all gates half open and a candidate of the item itself, the state goes half of the way there:

    >>> gates = _Gates(width=1, units=1)
    >>> weights = {"input": torch.tensor([[0.0, 0.0, 1.0]]), "state": torch.zeros(1, 3)}
    >>> weights |= {"bias": torch.zeros(2, 3)}
    >>> items, there = torch.tensor([[[9.0], [9.0]]]), torch.tensor([[True, True]])
    >>> torch.func.functional_call(gates, weights, (items, there)).round(decimals=4)
    tensor([[[0.5000],
             [0.7500]]])

    Args:
        n_items: Rows of the item table.
        n_seats: Users that one device has room for.
        dim: Width of the vectors.
        units: Gated units; 0 for as many as `dim`.
        length: How many of a user's latest items are read.
        items: Whether the item table is averaged or each device's own.
        sharing: The same of everything else.
        scale: Standard deviation of fresh item vectors. From rows of zero it would never start.
    """

    def __init__(
        self,
        n_items: int,
        n_seats: int = 1,
        *,
        dim: Width = 32,
        units: WidthOrNone = 0,
        length: Width = 20,
        items: Literal["shared", "private"] = "shared",
        sharing: Literal["shared", "private"] = "shared",
        scale: Scales = 0.1,
    ) -> None:
        super().__init__()
        self.scale = scale
        networks = Part(Scope(sharing), shared_init=True)
        self._hold(n_items, n_seats, dim, length, items, networks, "gates", "back", "norm")
        self.gates = _Gates(dim, units or dim)
        self.back = nn.Parameter(torch.empty(units or dim, dim))
        self.norm = Norm(dim)

    def states(self, item: Tensor, there: Tensor) -> Tensor:
        return self.norm(self.gates(item, there) @ self.back)  # type: ignore[no-any-return]


class _Gates(nn.Module):
    """Gated recurrent units, as Cho et al., 2014: what is kept, what is read, and what is new."""

    def __init__(self, width: int, units: int) -> None:
        super().__init__()
        self.input = nn.Parameter(torch.empty(width, 3 * units))
        self.state = nn.Parameter(torch.empty(units, 3 * units))
        self.bias = nn.Parameter(torch.empty(2, 3 * units))

    def initial(self, name: str, keys: Keys) -> Tensor:
        """Matrices whose rows are orthogonal, and no bias."""
        shape = getattr(self, name).shape
        if name == "bias":
            return keys.uniform(*shape) * 0
        tall, upper = torch.linalg.qr(keys.normal(shape[1], shape[0]))
        signs = upper.diagonal(dim1=-2, dim2=-1).sign()[..., None, :]  # or their distribution is not even
        found: Tensor = (tall * signs).transpose(-1, -2)
        return found if found.shape[-2:] == shape else keys.normal(*shape) / shape[1] ** 0.5

    def forward(self, x: Tensor, there: Tensor) -> Tensor:
        """``[s, t, units]`` the state after each item ``[s, t, width]``; where none is there it stays."""
        read = x @ self.input + self.bias[0]  # [s, t, 3 units]
        state = read[:, 0, : len(self.state)] * 0
        states = []
        for step in range(x.shape[1]):
            kept = state @ self.state + self.bias[1]
            stay, reset, fresh = (torch.stack([read[:, step], kept])).chunk(3, -1)
            share = stay.sum(0).sigmoid()
            new = (fresh[0] + reset.sum(0).sigmoid() * fresh[1]).tanh()
            state = torch.where(there[:, step, None], share * state + (1 - share) * new, state)
            states.append(state)
        return torch.stack(states, 1)
