"""Users whose vectors tell a class, and ways to look at what is left of it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from veilrec.base.draws import Draws
from veilrec.base.keys import Keys
from veilrec.eraser import AttributeEraser, Request
from veilrec.erasers.common.sums import Holder, SumEraser

KEYS = Keys.seed(5)


def keyed(seed: int = 0) -> Draws:
    return Draws(Keys.seed(seed))


def told(counts: Sequence[int], width: int, seed: int = 0, *, apart: float = 1.0) -> tuple[Tensor, Tensor]:
    """``[n, width]`` vectors and ``[n]`` classes, which differ in means and in covariances."""
    keys = KEYS.fold(seed)
    label = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    order = keys.fold("order").order(len(label))
    mean = apart * keys.fold("mean").normal(len(counts), width, dtype=torch.float64)
    turn = 0.3 * apart * keys.fold("turn").normal(len(counts), width, width, dtype=torch.float64)
    noise = keys.fold("noise").normal(len(label), width, dtype=torch.float64)
    vectors = noise + mean[label] + torch.einsum("nd,nde->ne", noise, turn[label])
    return vectors[order], label[order]


def means(vectors: Tensor, label: Tensor) -> Tensor:
    """``[classes, width]``."""
    return torch.stack([vectors[label == k].mean(0) for k in range(int(label.max()) + 1)])


def covariances(vectors: Tensor, label: Tensor) -> Tensor:
    """``[classes, width, width]``, divided by the count."""
    return torch.stack([vectors[label == k].T.cov(correction=0) for k in range(int(label.max()) + 1)])


def whole(eraser: AttributeEraser, vectors: Tensor, label: Tensor, draws: Draws | None = None) -> Tensor:
    """Vectors after everybody was made to forget one attribute."""
    return eraser.forget(vectors, Request({"gender": label}), draws or keyed())


def by_silos(eraser: SumEraser, vectors: Tensor, request: Request, silos: int, least: int = 1) -> Tensor:
    """Vectors after silos have added up sums, each with the users that it was dealt."""
    users = [torch.arange(k, len(vectors), silos) for k in range(silos)]
    holders = [Holder(vectors[own], request.of(own), keyed(), least=least) for own in users]
    eraser.together(holders, request, keyed())
    after = torch.empty_like(vectors)
    for own, holder in zip(users, holders, strict=True):
        after[own] = holder.vectors
    return after
