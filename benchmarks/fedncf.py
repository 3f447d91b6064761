"""FedNCF as every contestant computes it: its sizes, first weights, scores and full ranking."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.worlds import World

WIDTH = 64  # of a user vector and of an item vector
HEAD = (2 * WIDTH, 64, 32, 1)
RATE = 0.05
BATCH = 256  # positives a local step; with the negatives 1,280 examples
NEGATIVES = 4
SEED = 0
CUTOFF = 10  # of the hit rate


class Weights(NamedTuple):
    """What the server holds and averages."""

    item: Tensor  # [items, WIDTH]
    head: tuple[Tensor, ...]  # weight [out, in], bias [out], layer by layer


def first_weights(world: World, dtype: torch.dtype = torch.float32) -> Weights:
    """The weights before the first round, the same for every contestant."""
    generator = torch.Generator().manual_seed(SEED)
    item = 0.1 * torch.randn(world.shape.items, WIDTH, generator=generator, dtype=torch.float64)
    head: list[Tensor] = []
    for inputs, outputs in pairwise(HEAD):
        weight = torch.randn(outputs, inputs, generator=generator, dtype=torch.float64)
        head += [(weight * (2 / inputs) ** 0.5).to(dtype), torch.zeros(outputs, dtype=dtype)]
    return Weights(item.to(dtype), tuple(head))


def first_users(world: World, dtype: torch.dtype = torch.float32) -> Tensor:
    """The user vectors before the first round, ``[users, WIDTH]``; row u is kept by client u."""
    generator = torch.Generator().manual_seed(SEED + 1)
    return (0.1 * torch.randn(world.shape.users, WIDTH, generator=generator, dtype=torch.float64)).to(dtype)


def labels(dtype: torch.dtype = torch.float32) -> Tensor:
    """Targets of a full batch: one positive, then its negatives; shorter batches take a prefix."""
    return torch.tensor([1.0] + [0.0] * NEGATIVES, dtype=dtype).repeat(BATCH)


def scores(user: Tensor, rows: Tensor, head: tuple[Tensor, ...]) -> Tensor:
    """Logits of one user for some items: the head on the concatenation of the two vectors.

    Args:
        user: ``[WIDTH]``.
        rows: ``[n, WIDTH]`` item vectors.
        head: Weights and biases, layer by layer.
    """
    return scores_of_pairs(torch.cat([user.expand(len(rows), -1), rows], dim=1), head)


def scores_of_pairs(pairs: Tensor, head: tuple[Tensor, ...]) -> Tensor:
    """Logits ``[n]`` of concatenated user and item vectors ``[n, 2 · WIDTH]``."""
    return _upper(functional.linear(pairs, *head[:2]), head)


def scores_folded(user: Tensor, rows: Tensor, head: tuple[Tensor, ...]) -> Tensor:
    """As `scores`, with the user's half of the first layer computed once instead of n times."""
    constant = functional.linear(user, head[0][:, :WIDTH], head[1])
    return _upper(functional.linear(rows, head[0][:, WIDTH:]) + constant, head)


def _upper(hidden: Tensor, head: tuple[Tensor, ...]) -> Tensor:
    hidden = functional.linear(torch.relu(hidden), *head[2:4])
    return functional.linear(torch.relu(hidden), *head[4:6]).squeeze(1)


def hit(score: Tensor, positives: Tensor, held: int) -> float:
    """Whether the held-out item is among the first `CUTOFF` of all items the user never touched."""
    target = float(score[held])
    score[positives] = -torch.inf
    greater, tied = int((score > target).sum()), int((score == target).sum()) - 1
    return min(max((CUTOFF - greater) / (tied + 1), 0.0), 1.0)  # expectation over the order of ties


def moved(before: Weights, after: Weights) -> float:
    """How far the weights have come (L2): contestants with the same draws must agree on it."""
    pairs = zip((before.item, *before.head), (after.item, *after.head), strict=True)
    return math.sqrt(sum(float(((new - old).double() ** 2).sum()) for old, new in pairs))
