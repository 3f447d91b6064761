"""Matching: how far the gradient of a made-up input and label is from the one that a user uploaded.

Paper: Zhu, Liu and Han, "Deep Leakage from Gradients", NeurIPS 2019 (DLG), whose search goes down this way.

The first matrix of a head is nearly all of its gradient, and for one input that gradient is an outer product,
∇W = x ∇bᵀ. Then ‖x ∇bᵀ − O‖² = ‖x‖² ‖∇b‖² − 2 ∇bᵀ O x + ‖O‖², and the matrix is never made: a step costs two
products with O. Whether a head is of that kind is tried out; for any other the whole gradient is made.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

import torch
from torch import Tensor
from torch.func import grad, grad_and_value, vmap

from veilrec.attacks.common.heads import Head
from veilrec.base.keys import Keys
from veilrec.base.params import Params

__all__ = ["LEAST", "Way", "square_norm", "way_down"]

LEAST = 1e-30  # square norm that is still divided by

# em′ [n, dim], y′ [n, classes] and keys [n], to the gradient by em′ and y′, and [n] ‖∇W′ − ∇W‖² / ‖∇W‖².
Way = Callable[[Tensor, Tensor, Keys], tuple[Tensor, Tensor, Tensor]]


def way_down(head: Head, weights: Params, gradient: Params, *, soft_label: bool) -> Way:
    """The direction in which made-up users of a head come closer to real ones.

    Args:
        head: The classifier.
        weights: Its weights, by the names that it gives them.
        gradient: What each user uploaded, ``[n, …]``.
        soft_label: Whether y′ goes through a softmax, or is the label.
    """

    def loss(weights: Params, vector: Tensor, label: Tensor, keys: Keys) -> Tensor:
        target = label.softmax(-1) if soft_label else label
        return -(target * head.logits(weights, vector, keys).log_softmax(-1)).sum()

    matrix = head.first.weight if _outer(head, weights, loss) else ""
    small = {name: weight for name, weight in weights.items() if name != matrix}
    large = {name: weight for name, weight in weights.items() if name == matrix}

    def off(vector: Tensor, label: Tensor, seen: _Seen, keys: Keys) -> Tensor:
        dummy = grad(lambda some: loss({**some, **large}, vector, label, keys))(small)
        gap = square_norm({name: slope - seen.small[name] for name, slope in dummy.items()})
        if matrix:
            bias = dummy[head.first.bias]
            both = vector.square().sum() * bias.square().sum() - 2 * (bias @ (seen.rows @ vector))
            gap = gap + both + seen.whole
        return gap / seen.norm.clamp(min=LEAST)

    def way(vector: Tensor, label: Tensor, seen: _Seen, keys: Keys) -> tuple[Tensor, Tensor, Tensor]:
        slopes, value = grad_and_value(off, argnums=(0, 1))(vector, label, seen, keys)
        nothing = torch.full_like(value, torch.inf)  # where there is nothing to match
        return *slopes, torch.where(seen.norm > 0, value.clamp(min=0), nothing)

    everybody = _seen(head, gradient, small.keys())
    return lambda vector, label, keys: vmap(way)(vector, label, everybody, keys)


class _Seen(NamedTuple):
    """Tensors of the uploads that are the same in every step."""

    small: Params  # [n, …] all but the first matrix, where that is an outer product
    rows: Tensor  # [n, out, in] the first matrix, or [n, 0, 0]
    whole: Tensor  # [n] ‖rows‖²
    norm: Tensor  # [n] of all


def _seen(head: Head, gradient: Params, names: Collection[str]) -> _Seen:
    small = {name: gradient[name] for name in names}
    like = next(iter(gradient.values()))
    outer = head.first.weight not in names
    rows = head.first.rows(gradient).contiguous() if outer else like.new_zeros(len(like), 0, 0)
    whole = rows.square().sum((1, 2))
    return _Seen(small, rows, whole, whole + vmap(square_norm)(small))


def square_norm(slopes: Params) -> Tensor:
    """The sum of all squares."""
    return torch.stack([slope.square().sum() for slope in slopes.values()]).sum()


def _outer(head: Head, weights: Params, loss: Callable[[Params, Tensor, Tensor, Keys], Tensor]) -> bool:
    """True if the first matrix has the gradient x ∇bᵀ, found by trying some x and y."""
    first = head.first
    if not first.bias:
        return False
    like, keys = weights[first.weight], Keys.seed(0, weights[first.weight].device).fold("outer")
    vector = keys.fold("vector").normal(first.inputs, dtype=like.dtype)
    label = keys.fold("label").normal(head.classes, dtype=like.dtype)
    slope = grad(loss)(weights, vector, label, keys)
    rows = first.rows({first.weight: slope[first.weight][None]})[0]  # [out, in]
    product = slope[first.bias][:, None] * vector
    return torch.allclose(rows, product, rtol=1e-3, atol=1e-5 * float(rows.abs().max()))
