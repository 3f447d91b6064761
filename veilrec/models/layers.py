"""Layers and losses that several models share, in a form for one device and a form for a cohort."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from veilrec.params import Params

__all__ = ["LOSSES", "Dense", "bce", "bpr", "dense", "pick", "tower"]


class Dense(nn.Module):
    """A linear layer whose weight is laid out for ``x @ weight``, so that a cohort is one batched product."""

    def __init__(self, width: int, height: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width, height))
        self.bias = nn.Parameter(torch.empty(height))

    def forward(self, x: Tensor) -> Tensor:
        """``[…, in]`` to ``[…, out]``."""
        return x @ self.weight + self.bias


def dense(params: Params, name: str, x: Tensor) -> Tensor:
    """The layer `name`, with or without a client axis on its weights: ``[…, n, in]`` to ``[…, n, out]``."""
    weight, bias = params[f"{name}.weight"], params[f"{name}.bias"]
    if weight.dim() == 3 and x.dim() == 3:
        return torch.baddbmm(bias[:, None], x, weight)
    return x @ weight + (bias[..., None, :] if bias.dim() > 1 else bias)


def tower(params: Params, names: Sequence[str], x: Tensor) -> Tensor:
    """Layers with ReLU between them; the last one is left as it is."""
    for name in names[:-1]:
        x = F.relu(dense(params, name, x))
    return dense(params, names[-1], x)


def pick(table: Tensor, index: Tensor) -> Tensor:
    """Rows of a cohort's tables: ``[c, l, d]`` and ``[c, n]`` to ``[c, n, d]``.

    By `gather`, whose gradient is several times faster on a CPU than that of indexing.
    """
    return table.gather(1, index[..., None].expand(*index.shape, table.shape[-1]))


def bce(touched: Tensor, untouched: Tensor, weight: Tensor) -> Tensor:
    """Binary cross-entropy, the mean over positives and negatives: ``[…, b]``, ``[…, b, q]`` to ``[…]``."""
    each = F.softplus(-touched) + F.softplus(untouched).sum(-1)  # [..., b]
    return _mean(each, weight) / (1 + untouched.shape[-1])


def bpr(touched: Tensor, untouched: Tensor, weight: Tensor) -> Tensor:
    """Bayesian personalised ranking, the mean over pairs: ``[…, b]``, ``[…, b, q]`` to ``[…]``."""
    return _mean(F.softplus(untouched - touched[..., None]).mean(-1), weight)


def _mean(each: Tensor, weight: Tensor) -> Tensor:
    return (weight * each).sum(-1) / weight.sum(-1).clamp(min=1)


LOSSES = {"bce": bce, "bpr": bpr}
