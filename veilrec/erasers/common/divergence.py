"""Divergence: how far the Gaussians of classes are from that of all users, and what takes users nearer.

Paper: Wu et al., "Post-training attribute unlearning in federated recommender systems", WWW 2025: eqs.
(10)-(15), with the mean of all users in place of eq. (12), which is misprinted.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from veilrec.erasers.common.moments import Moments

__all__ = ["LEAST", "Apart", "apart", "ridge_of"]

LEAST = 2  # users of a class; smaller ones are left alone, and out of what is counted of all users


class Apart(NamedTuple):
    """Distances of classes, and their slope: of a user at x in class k it is ``x·matrix[k] + shift[k]``.

    Attributes:
        divergence: ``[classes]`` of the Gaussian of each from that of all users; 0 of classes not counted.
            Infinite where a covariance cannot be inverted.
        mean: Of all that are counted: what falls along the slope.
        matrix: ``[classes, width, width]``, symmetric.
        shift: ``[classes, width]``.
    """

    divergence: Tensor
    mean: float
    matrix: Tensor
    shift: Tensor


def ridge_of(moments: Moments, share: float) -> float:
    """What is added to every variance: a share of the mean variance of all users."""
    own = moments.users @ moments.covariance.diagonal(dim1=1, dim2=2).mean(1) / moments.total.clamp(min=1)
    return share * (float(own + moments.between.diagonal().mean()) or 1.0)


def apart(moments: Moments, ridge: float, *, diagonal: bool = False) -> Apart:
    """The divergences of classes, eq. (14), and the slope of their mean, eq. (15), in closed form.

    Two classes of the same spread, two apart:

    >>> sums = {"count": [50.0, 50.0], "first": [[-50.0], [50.0]], "second": [[[100.0]], [[100.0]]]}
    >>> moments = Moments.of({name: torch.tensor(value) for name, value in sums.items()})
    >>> apart(moments, ridge=0.0).divergence.round(decimals=3)  # log(2/1)/2 - 1/2 + 1/4 + 1/4
    tensor([0.3470, 0.3470])

    Args:
        moments: Of each class; those of fewer than two users are not counted.
        ridge: Added to each variance.
        diagonal: Whether columns are taken for independent.
    """
    some = (moments.users >= LEAST).nonzero().flatten()
    found = Apart(
        torch.zeros_like(moments.users),
        0.0,
        torch.zeros_like(moments.covariance),
        torch.zeros_like(moments.mean),
    )
    if len(some) < 2:
        return found
    users, mean, own = (value[some] for value in moments)
    total, classes, width = users.sum(), len(some), mean.shape[1]
    middle = users @ mean / total
    off = mean - middle
    between = off[:, :, None] * off[:, None]
    whole = torch.einsum("k,kij->ij", users / total, own + between)
    spread = torch.cat([whole[None], own]) + ridge * torch.eye(width, dtype=own.dtype)
    if diagonal:
        spread = spread.diagonal(dim1=1, dim2=2).diag_embed()
    root, failed = torch.linalg.cholesky_ex(spread)
    if bool(failed.any()) or not bool(root.isfinite().all()):
        return found._replace(divergence=torch.full_like(moments.users, math.inf), mean=math.inf)
    inverse, size = torch.cholesky_inverse(root), 2 * root.diagonal(dim1=1, dim2=2).log().sum(1)
    all_, each = inverse[0], inverse[1:]
    pushed = off @ all_
    divergence = (size[0] - size[1:] - width + (pushed * off).sum(1)) / 2
    divergence = divergence + torch.einsum("ij,kij->k", all_, spread[1:]) / 2
    inner = all_ - all_ @ (spread[1:] + between).mean(0) @ all_
    if diagonal:
        inner = inner.diagonal().diag()
    weight = 1 / (classes * users)
    matrix = weight[:, None, None] * (all_ - each) + inner / total
    shift = weight[:, None] * (pushed - torch.einsum("kij,kj->ki", all_ - each, mean))
    shift = shift - pushed.mean(0) / total - inner @ middle / total
    for target, value in zip(
        (found.divergence, found.matrix, found.shift), (divergence, matrix, shift), strict=True
    ):
        target[some] = value
    return found._replace(mean=float(divergence.mean()))
