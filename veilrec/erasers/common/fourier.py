"""Fourier: random features in which covariances tell of any dependence, and the way back from them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from veilrec.base.keys import Keys

__all__ = ["Fourier", "covariance", "restored", "typical", "unit"]

SAMPLE = 2000  # rows of which distances are taken
FOLDS = 10
RIDGES = (1e-4, 1e-3, 1e-2, 1e-1)  # of the mean square, from which one is chosen
SMALL = 1e-9


@dataclass(frozen=True)
class Fourier:
    """Features whose products are near a Gaussian kernel's; Rahimi and Recht, 2007.

    >>> rows = torch.tensor([[0.0, 0.0], [0.0, 1.0]])
    >>> features = Fourier.drawn(Keys.seed(0), 2, count=20_000, scale=1.0)(rows)
    >>> (features @ features.T).round(decimals=1)  # exp(-1/2) off the diagonal
    tensor([[1.0000, 0.6000],
            [0.6000, 1.0000]])

    Attributes:
        waves: ``[width, count / 2]`` the frequencies.
    """

    waves: Tensor

    @classmethod
    def drawn(cls, keys: Keys, width: int, *, count: int, scale: float) -> Fourier:
        """Fresh frequencies for a kernel of some width."""
        return cls(keys.normal(width, count // 2) / max(scale, SMALL))

    def __call__(self, rows: Tensor) -> Tensor:
        """``[n, count]`` the features of rows ``[n, width]``."""
        turn = rows @ self.waves
        features: Tensor = torch.cat([turn.sin(), turn.cos()], 1) / self.waves.shape[1] ** 0.5
        return features


def covariance(one: Tensor, other: Tensor) -> Tensor:
    """``[a, b]`` the covariance of columns ``[n, a]`` with columns ``[n, b]``."""
    return (one - one.mean(0)).T @ (other - other.mean(0)) / len(one)


def unit(rows: Tensor) -> Tensor:
    """Rows of length one."""
    return rows / rows.square().sum(1, keepdim=True).clamp(min=SMALL**2).sqrt()


def typical(rows: Tensor) -> float:
    """The median distance of the first rows."""
    return float(torch.pdist(rows.detach()[:SAMPLE]).median()) if len(rows) > 1 else 1.0


def restored(rows: Tensor, wanted: Tensor, fits: Tensor, fold: Tensor, features: Fourier) -> Tensor:
    """``[n, width]`` the part of `wanted` that rows and their features predict, by ridge regression.

    But for the mean of all, a user's own vector has no say in what is predicted of that user: who is learned
    from (`fits`) is predicted fold by fold, everybody else from all of them. The ridge is the best of a few,
    out of fold.
    """
    whole = rows[fits].std(0).square().sum().sqrt()  # so that rows and features count alike
    columns = torch.cat([rows / whole.clamp(min=SMALL), features(rows)], 1).double()
    columns, target = columns - columns[fits].mean(0), wanted - wanted[fits].mean(0)
    square, mixed = columns[fits].T @ columns[fits], columns[fits].T @ target[fits]
    base = torch.eye(len(square), dtype=square.dtype) * square.diagonal().mean()
    found = {ridge: torch.zeros_like(target) for ridge in RIDGES}
    for number in range(FOLDS):
        own = fits & (fold == number)
        less = square - columns[own].T @ columns[own], mixed - columns[own].T @ target[own]
        for ridge, after in found.items():
            after[own] = columns[own] @ torch.linalg.solve(less[0] + ridge * base, less[1])
    best = min(found, key=lambda ridge: float((found[ridge] - target)[fits].square().sum()))
    after = found[best]
    after[~fits] = columns[~fits] @ torch.linalg.solve(square + best * base, mixed)
    return after + wanted[fits].mean(0)
