"""Ranking metrics of one held-out item, with ties scored by their expectation over a random order.

All from two numbers per user: how many candidates score higher, and how many score the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["METRICS", "ranking", "top"]


def hit(greater: Tensor, tied: Tensor, k: int) -> Tensor:
    """The probability of being among the first `k`: ``clip((k - greater) / (tied + 1), 0, 1)``."""
    return ((k - greater).double() / (tied + 1)).clamp(0, 1)


def precision(greater: Tensor, tied: Tensor, k: int) -> Tensor:
    """The share of the first `k` places that hold the item: at most 1/k."""
    return hit(greater, tied, k) / k


def ndcg(greater: Tensor, tied: Tensor, k: int) -> Tensor:
    """The expectation of 1 / log2(place + 1) within the first `k` places."""
    return _expected(1 / torch.arange(2, k + 2, dtype=torch.float64).log2(), greater, tied)


def mrr(greater: Tensor, tied: Tensor, k: int) -> Tensor:
    """The expectation of 1 / place within the first `k` places."""
    return _expected(1 / torch.arange(1, k + 1, dtype=torch.float64), greater, tied)


def _expected(gain: Tensor, greater: Tensor, tied: Tensor) -> Tensor:
    """The mean gain over places ``greater … greater + tied``, where places beyond the list gain nothing."""
    total = torch.cat([gain.new_zeros(1), gain.cumsum(0)]).to(greater.device)
    last = len(gain)
    return (total[(greater + tied + 1).clamp(max=last)] - total[greater.clamp(max=last)]) / (tied + 1)


METRICS = {"hr": hit, "recall": hit, "precision": precision, "ndcg": ndcg, "mrr": mrr}


def ranking(greater: Tensor, tied: Tensor, names: Sequence[str], ks: Sequence[int]) -> dict[str, Tensor]:
    """``metric@k`` → ``[users]``, in float64; with one held-out item, recall is the hit rate."""
    return {f"{name}@{k}": METRICS[name](greater, tied, k) for name in names for k in ks}


def top(scores: Tensor, row: Tensor, item: Tensor, length: int) -> Tensor:
    """``[u, length]`` the best items by ``scores [u, items]``, best first; -1 where there are fewer.

    Left out are the items ``[e]`` of the rows ``[e]``:

    >>> scores = torch.tensor([[0.3, 0.2, 0.9], [0.1, 0.5, 0.4]])
    >>> top(scores, torch.tensor([0, 1, 1]), torch.tensor([2, 0, 1]), length=2)
    tensor([[ 0,  1],
            [ 2, -1]])
    """
    left = scores.index_put((row, item), scores.new_tensor(-torch.inf))
    best = left.topk(min(length, scores.shape[1]))
    shown = torch.where(best.values > -torch.inf, best.indices, -1)
    return torch.nn.functional.pad(shown, (0, length - shown.shape[1]), value=-1)
