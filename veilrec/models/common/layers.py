"""Layers and losses that several models share, in a form for one device and a form for a cohort."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from veilrec.base.rows import pick, starts
from veilrec.clients import Batch
from veilrec.errors import BadInput

__all__: list[str] = []  # no entry of the catalogue


class Dense(nn.Module):
    """A linear layer whose weight is laid out for ``x @ weight``, so that a cohort is one batched product."""

    def __init__(self, width: int, height: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width, height))
        self.bias = nn.Parameter(torch.empty(height))

    def forward(self, x: Tensor) -> Tensor:
        """``[…, in]`` to ``[…, out]``."""
        return x @ self.weight + self.bias


class _Perceptron(torch.autograd.Function):
    """`perceptron` with a backward pass in place, which moves half the memory that autograd's own does."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, ready: Tensor | None, first: Tensor, out: Tensor, *layers: Tensor
    ) -> Tensor:
        begun = torch.baddbmm(first, x, layers[0]) if ready is None else ready.add_(first)
        states = [begun.relu_()]
        for weight, bias in zip(layers[1::2], layers[2::2], strict=True):
            states.append(torch.baddbmm(bias[:, None], states[-1], weight).relu_())
        ctx.save_for_backward(x, out, layers[0], *layers[1::2], *states)
        ctx.spread = first.shape[1] == 1
        return (states[-1] * out).sum(-1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        x, out, *saved = ctx.saved_tensors
        weights, states = saved[: len(saved) // 2], saved[len(saved) // 2 :]
        slope = _through(slopes[0][..., None] * out, states[-1])
        found: list[Tensor] = []
        for weight, state in zip(weights[:0:-1], states[-2::-1], strict=True):
            found = [state.transpose(1, 2) @ slope, slope.sum(1), *found]
            slope = _through(slope @ weight.transpose(1, 2), state)
        first = slope.sum(1, keepdim=True) if ctx.spread else slope
        ends = slope @ weights[0].transpose(1, 2), None, first, slopes[0][:, None] @ states[-1]
        return *ends, x.transpose(1, 2) @ slope, *found


def _through(slope: Tensor, state: Tensor) -> Tensor:
    """Back through a ReLU, in place."""
    return torch.ops.aten.threshold_backward.grad_input(slope, state, 0, grad_input=slope)  # type: ignore[no-any-return]


def perceptron(
    x: Tensor, first: Tensor, out: Tensor, weight: Tensor, *layers: Tensor, ready: Tensor | None = None
) -> Tensor:
    """A cohort's layers with a ReLU after each and one output without: ``x [c, n, in]`` to ``[c, n]``.

    `first` stands for the first layer's bias and is added before its ReLU: ``[c, 1, h]`` for all rows
    alike, or ``[c, n, h]``; `out` is ``[c, 1, h]``. The other layers follow as weight, bias, weight, bias, …
    Where ``x @ weight`` is known already it can be given as `ready`, and is used up.
    """
    return _Perceptron.apply(x, ready, first, out, weight, *layers)  # type: ignore[no-any-return, no-untyped-call]


class _Bags(torch.autograd.Function):
    """`bags`, of which a cohort with one matrix for all is one call, and not as many as there are devices."""

    @staticmethod
    def forward(weight: Tensor, item: Tensor, value: Tensor) -> Tensor:
        return _bags(weight, item, value)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None, None]:
        weight, item, value = ctx.saved_tensors
        return whole_rows(item, value, len(weight)).T @ slope, None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, weight: Tensor, item: Tensor, value: Tensor) -> tuple[Tensor, int]:
        item, value = (
            x.expand(info.batch_size, *x.shape) if axis is None else x.movedim(axis, 0)
            for x, axis in zip((item, value), in_dims[1:], strict=True)
        )  # [c, n, t]
        if in_dims[0] is not None:  # each its own matrix
            weight = weight.movedim(in_dims[0], 0)
            return whole_rows(item, value, weight.shape[1]) @ weight, 0
        return _bags(weight, item.flatten(0, 1), value.flatten(0, 1)).unflatten(0, item.shape[:2]), 0


def bags(weight: Tensor, item: Tensor, value: Tensor) -> Tensor:
    """``[n, width]`` rows that are mostly zero times ``weight [items, width]``.

    A cohort with one matrix for all is one level of `vmap`, and its gradient is not derived again.

    Args:
        weight: The matrix.
        item: ``[n, t]`` where a row is not zero.
        value: ``[n, t]`` what it is there, 0 behind shorter ones; no gradient reaches it.
    """
    return _Bags.apply(weight, item, value.detach())  # type: ignore[no-any-return, no-untyped-call]


def _bags(weight: Tensor, item: Tensor, value: Tensor) -> Tensor:
    if weight.device.type != "cpu":  # tried on a CPU alone; and a dense product always adds in the same order
        return whole_rows(item, value, len(weight)) @ weight
    there = value != 0
    first = starts(there.sum(1))
    return F.embedding_bag(item[there], weight, first, mode="sum", per_sample_weights=value[there])


def whole_rows(item: Tensor, value: Tensor, items: int) -> Tensor:
    """``[…, items]`` the rows themselves."""
    return value.new_zeros(*value.shape[:-1], items).scatter_add(-1, item, value)


def known_products(table: Tensor, weight: Tensor, rows: Tensor) -> Tensor | None:
    """``[c, l, h]`` a layer on the local rows ``[c, l]`` of a table that all devices were sent, or None.

    While all devices have the weights they were sent ``[c, d, h]`` (one behind a stack of views), a product
    for each row of the table does for everybody; None where they differ, or the table is the larger one.
    """
    if weight.stride(0) or not len(weight) * rows.shape[1] > len(table):
        return None
    products = table @ weight[0].detach()  # [items, h]
    return products.index_select(0, rows.clamp(min=0).reshape(-1)).reshape(*rows.shape, -1)


def rows_of(table: Tensor, index: Tensor) -> Tensor:
    """Rows ``[c, s, k, d]``, by index ``[c, s, k]``, of one table ``[n, d]`` or of each client's own."""
    if table.dim() == 2:
        return table[index]
    return pick(table, index.flatten(1)).reshape(*index.shape, -1)


def asked(score: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    """A batch's own scores, ``[c, b]`` and ``[c, b, q]``, out of those of all rows ``[c, seats, l]``."""
    c, b, q = batch.negative.shape
    seat = torch.cat([batch.user, batch.user.repeat_interleave(q, 1)], 1)
    wanted = seat * score.shape[-1] + torch.cat([batch.item, batch.negative.reshape(c, b * q)], 1)
    found = score.flatten(1).gather(1, wanted)  # [c, b (1 + q)]
    return found[:, :b], found[:, b:].reshape(c, b, q)


def check_head(head: Sequence[int]) -> None:
    """Refuse a perceptron without any layer."""
    if not head:
        raise BadInput("model.head", "an empty list", "give at least one width")


def bce(touched: Tensor, untouched: Tensor, weight: Tensor) -> Tensor:
    """Binary cross-entropy, the mean over positives and negatives: ``[…, b]``, ``[…, b, q]`` to ``[…]``."""
    each = F.softplus(-touched) + F.softplus(untouched).sum(-1)  # [..., b]
    return _mean(each, weight) / (1 + untouched.shape[-1])


def bpr(touched: Tensor, untouched: Tensor, weight: Tensor) -> Tensor:
    """Bayesian personalised ranking, the mean over pairs: ``[…, b]``, ``[…, b, q]`` to ``[…]``."""
    pairs = max(1, untouched.shape[-1])
    return _mean(F.softplus(untouched - touched[..., None]).sum(-1) / pairs, weight)


def _mean(each: Tensor, weight: Tensor) -> Tensor:
    return (weight * each).sum(-1) / weight.sum(-1).clamp(min=1)


LOSSES = {"bce": bce, "bpr": bpr}
