"""Rows of tables: picked, averaged, padded and put back, alone or with the axes of a cohort in front."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    pass

__all__ = ["along", "filled", "padded", "pick", "ragged", "shares", "starts", "within"]


def pick(table: Tensor, index: Tensor) -> Tensor:
    """Rows of tables: ``[…, l, d]`` and ``[…, n]`` to ``[…, n, d]``.

    By `gather`, whose gradient is several times faster on a CPU than that of indexing.

    >>> pick(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([1, 1, 0]))
    tensor([[3., 4.],
            [3., 4.],
            [1., 2.]])
    """
    return table.gather(-2, index[..., None].expand(*index.shape, table.shape[-1]))


def shares(history: Tensor, length: int, dtype: torch.dtype) -> Tensor:
    """``[…, length]`` the weight of each row in the mean of the rows that a history ``[…, t]`` names.

    A product with it is the mean; what pads the history (-1) weighs nothing.

    >>> shares(torch.tensor([-1, 2, 0]), length=3, dtype=torch.float32)
    tensor([0.5000, 0.0000, 0.5000])
    """
    there = (history >= 0).to(dtype)
    each = there / there.sum(-1, keepdim=True).clamp(min=1)
    empty = each.new_zeros(*history.shape[:-1], length)
    return empty.scatter_add(-1, history.clamp(min=0), each)


def starts(count: Tensor) -> Tensor:
    """``[c]`` the place where each owner's rows begin when so many of each ``[c]`` lie one after another.

    >>> starts(torch.tensor([2, 0, 3]))
    tensor([0, 2, 2])
    """
    return count.cumsum(0) - count


def within(owner: Tensor, count: Tensor) -> Tensor:
    """``[e]`` the place of each row among its owner's, whose owners ``[e]`` ascend."""
    return torch.arange(len(owner), device=owner.device) - starts(count)[owner]


def ragged(count: Tensor) -> tuple[Tensor, Tensor]:
    """``[e]`` the owner of each row, with so many rows of each ``[c]``, and ``[e]`` its place among them.

    >>> ragged(torch.tensor([2, 0, 3]))
    (tensor([0, 0, 2, 2, 2]), tensor([0, 1, 0, 1, 2]))
    """
    owner = torch.repeat_interleave(count)
    return owner, within(owner, count)


def padded(value: Tensor, owner: Tensor, place: Tensor, count: Tensor, blank: int = 0) -> Tensor:
    """``[e, …]`` rows, by owner and place, to ``[c, r, …]`` with blanks behind the shorter owners.

    >>> count = torch.tensor([2, 1])
    >>> owner, place = ragged(count)
    >>> padded(torch.tensor([7, 8, 9]), owner, place, count, blank=-1)
    tensor([[ 7,  8],
            [ 9, -1]])
    """
    length = int(count.max()) if len(count) else 0
    wide = value.new_full((len(count), length, *value.shape[1:]), blank)
    wide[owner, place] = value
    return wide


def along(number: Tensor, like: Tensor) -> Tensor:
    """Numbers ``[c]``, ``[c, r]`` … reshaped to broadcast over values ``[c, r, …]``.

    >>> values = torch.ones(2, 3)
    >>> along(torch.tensor([1.0, 10.0]), values) * values
    tensor([[ 1.,  1.,  1.],
            [10., 10., 10.]])
    """
    return number.reshape(*number.shape, *(1 for _ in like.shape[number.dim() :]))


def filled(base: Tensor, row: Tensor, value: Tensor) -> Tensor:
    """``[c, table, …]`` a copy of `base` with each client's rows ``[c, r]``, ``[c, r, …]``; -1 is padding.

    >>> rows, values = torch.tensor([[2, -1], [0, 1]]), torch.tensor([[5.0, 0.0], [6.0, 7.0]])
    >>> filled(torch.zeros(2, 3), rows, values)
    tensor([[0., 0., 5.],
            [6., 7., 0.]])
    """
    wide = base.to(value.dtype, copy=True, memory_format=torch.contiguous_format)
    client, place = (row >= 0).nonzero(as_tuple=True)
    wide[client, row[client, place]] = value[client, place]
    return wide
