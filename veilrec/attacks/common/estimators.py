"""Estimators: what an attacker needs around scikit-learn's own: scales, choices on held-out rows, floors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import Any, Literal, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from veilrec.base.keys import Keys

__all__ = ["Discriminant", "Floor", "Quadratic", "Radial", "Scale", "Scaled", "Tuned"]

FURTHEST = 10.0  # standard deviations: a column that hardly varied among the known must not drown the others
LEAST = 1e-3  # share of the sphere in a covariance, which columns that depend on others would leave singular
Array = Any  # [n, width] or [n], of numpy


class Scale:
    """Columns to mean 0 and standard deviation 1 over the rows given here, whoever is scaled later.

    A column that does not vary among them says nothing about a label and becomes 0 for everybody.
    """

    def __init__(self, x: Tensor) -> None:
        wide = x.double()
        self.mean, spread = wide.mean(0), wide.std(0, correction=0)
        varies = spread > 1e-9 * wide.abs().amax(0)  # less is rounding
        self.slope = torch.where(varies, 1 / spread, 0.0)

    def __call__(self, x: Tensor) -> Tensor:
        """``[n, width]`` to ``[n, width]``, float64."""
        return ((x.double() - self.mean) * self.slope).clamp_(-FURTHEST, FURTHEST)


class Behind:
    """An estimator that sees the columns as `_shown` has them; where it has only margins, they are squashed.

    Margins become probabilities that are not calibrated: that keeps their order and costs no second fit.
    """

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator

    def predict_proba(self, X: Array) -> Array:
        """``[n, classes seen]`` probabilities."""
        shown = self._shown(X)
        if hasattr(self.estimator_, "predict_proba"):
            return self.estimator_.predict_proba(shown)
        margin = torch.as_tensor(self.estimator_.decision_function(shown))
        both = margin if margin.dim() == 2 else torch.stack([-margin / 2, margin / 2], 1)
        return both.softmax(1).numpy()

    def _taught(self, X: Array, y: Array) -> Self:
        self.estimator_ = deepcopy(self.estimator).fit(self._shown(X), y)
        return self

    def _shown(self, X: Array) -> Array:
        raise NotImplementedError


class Scaled(Behind):
    """An estimator behind standardised columns.

    Attributes:
        estimator: Any of scikit-learn's.
        values: Whether it learns values, which are then standardised too.
    """

    def __init__(self, estimator: Any, values: bool = False) -> None:
        super().__init__(estimator)
        self.values = values

    def fit(self, X: Array, y: Array) -> Self:
        """Learn from ``X [n, width]`` and ``y [n]``."""
        self.scale_ = Scale(torch.as_tensor(X))
        self.mean_, self.spread_ = (float(y.mean()), float(y.std()) or 1.0) if self.values else (0.0, 1.0)
        return self._taught(X, (y - self.mean_) / self.spread_ if self.values else y)

    def predict(self, X: Array) -> Array:
        """``[n]`` the values."""
        return self.estimator_.predict(self._shown(X)) * self.spread_ + self.mean_

    def _shown(self, X: Array) -> Array:
        return self.scale_(torch.as_tensor(X)).numpy()


class Radial(Behind):
    """A machine behind scikit-learn's default kernel: exp(-γ|x - x'|²), γ = 1/(width · variance of X).

    The library computes that kernel value by value, which takes minutes on 20,000 columns; products of whole
    matrices give the same numbers up to rounding. The machine takes a precomputed kernel.
    """

    def fit(self, X: Array, y: Array) -> Self:
        """Learn from ``X [n, width]`` and ``y [n]``."""
        self.rows_ = torch.as_tensor(X).double()
        variance = float(self.rows_.var(correction=0))
        self.gamma_ = 1 / (self.rows_.shape[1] * variance) if variance else 1.0
        return self._taught(X, y)

    def _shown(self, X: Array) -> Array:
        x = torch.as_tensor(X).double()
        apart = x.square().sum(1)[:, None] + self.rows_.square().sum(1) - 2 * (x @ self.rows_.T)
        return torch.exp(-self.gamma_ * apart.clamp_(min=0)).numpy()


class Tuned:
    """The candidate that held-out rows find likeliest, learned anew from all rows.

    Attributes:
        candidates: Estimators that are alike but for how much they bend to the rows.
        folds: Parts of the rows that are held out in turn.
        random_state: Of who is in which part.
    """

    def __init__(self, candidates: Sequence[Any], folds: int = 3, random_state: int = 0) -> None:
        self.candidates, self.folds, self.random_state = candidates, folds, random_state

    def fit(self, X: Array, y: Array) -> Self:
        """Learn from ``X [n, width]`` and ``y [n]``, whole numbers."""
        loss = np.zeros(len(self.candidates))
        for taught, held in self._parts(y):
            loss += [
                _surprise(deepcopy(each).fit(X[taught], y[taught]), X[held], y[held])
                for each in self.candidates
            ]
        self.chosen_ = int(loss.argmin())
        self.estimator_ = deepcopy(self.candidates[self.chosen_]).fit(X, y)
        return self

    def predict_proba(self, X: Array) -> Array:
        """``[n, classes seen]`` probabilities."""
        return self.estimator_.predict_proba(X)

    def _parts(self, y: Array) -> Iterator[tuple[Array, Array]]:
        """Rows to learn from and rows held out, every class spread evenly over the parts."""
        mixed = Keys.seed(self.random_state).fold("folds").order(len(y)).numpy()
        part = np.empty(len(y), int)
        part[mixed[np.argsort(y[mixed], kind="stable")]] = np.arange(len(y)) % self.folds
        for one in range(self.folds):
            taught, held = np.flatnonzero(part != one), np.flatnonzero(part == one)
            if len(held) and len(np.unique(y[taught])) > 1:
                yield taught, held


def _surprise(model: Any, X: Array, y: Array) -> float:
    """Minus the log of the probability of the true classes, summed; one never seen has 1e-6."""
    said = model.predict_proba(X)
    place = np.searchsorted(model.classes_, y).clip(max=said.shape[1] - 1)
    hit = np.where(model.classes_[place] == y, said[np.arange(len(y)), place], 0.0)
    return float(-np.log(hit.clip(1e-6)).sum())


class Discriminant:
    """Linear discriminant analysis with the covariance within classes drawn towards a sphere.

    The best there is for classes that differ in their mean alone. A solve instead of an eigenvalue problem,
    and one covariance for all classes, so that it is cheap to tune and a class of one row is no trouble.

    Attributes:
        shrinkage: Share of the sphere, above 0 and at most 1.
    """

    def __init__(self, shrinkage: float = 0.5) -> None:
        self.shrinkage = shrinkage

    def fit(self, X: Array, y: Array) -> Self:
        """Learn from ``X [n, width]`` and ``y [n]``."""
        self.classes_, place, counts = np.unique(y, return_inverse=True, return_counts=True)
        mean = np.eye(len(counts))[place].T @ X / counts[:, None]  # [classes, width]
        apart = X - mean[place]
        spread = (1 - self.shrinkage) * (apart.T @ apart) / len(y)
        size = float(np.square(apart).mean()) or 1.0
        spread[np.diag_indices_from(spread)] += self.shrinkage * size
        self.coef_ = np.linalg.solve(spread, mean.T)  # [width, classes]
        self.intercept_ = np.log(counts / len(y)) - 0.5 * (mean.T * self.coef_).sum(0)
        return self

    def predict_proba(self, X: Array) -> Array:
        """``[n, classes seen]`` probabilities."""
        return torch.as_tensor(X @ self.coef_ + self.intercept_).softmax(1).numpy()


class Quadratic:
    """Quadratic discriminant analysis, each class's covariance half way to the pooled one.

    It reads what lies in spreads and in products of columns, where classes have equal means. The pooled
    covariance is drawn towards a sphere, so that it is regular whatever the number of rows. Where they are
    fewer than columns, all is computed within their span: outside of it no class differs from another. Log
    densities are divided by the root of the number of columns: as they are, most probabilities would be 0 or
    1, and equal.

    Attributes:
        sphere: How far towards the sphere, as a share of what Ledoit and Wolf (2004) find best.
    """

    def __init__(self, sphere: float = 1.0) -> None:
        self.sphere = sphere

    def fit(self, X: Array, y: Array) -> Self:
        """Learn from ``X [n, width]`` and ``y [n]``."""
        x = torch.as_tensor(X).double()
        self.classes_, place, counts = np.unique(y, return_inverse=True, return_counts=True)
        self.width_, self.centre_ = x.shape[1], x.mean(0)
        x = x - self.centre_
        self.basis_ = torch.linalg.qr(x.T)[0] if len(x) < self.width_ else None
        x = self._within(x)
        apart = [x[torch.as_tensor(place == k)] for k in range(len(counts))]
        self.means_ = [rows.mean(0) for rows in apart]
        apart = [rows - mean for rows, mean in zip(apart, self.means_, strict=True)]
        pooled = _rounded(torch.cat(apart), self.width_, self.sphere)
        halves = [0.5 * rows.T @ rows / len(rows) + 0.5 * pooled for rows in apart]
        self.roots_ = [torch.linalg.cholesky(half) for half in halves]
        self.shares_ = np.log(counts / len(y))
        return self

    def predict_proba(self, X: Array) -> Array:
        """``[n, classes seen]`` probabilities."""
        x = self._within(torch.as_tensor(X).double() - self.centre_)
        told = []
        for mean, root, share in zip(self.means_, self.roots_, self.shares_, strict=True):
            far = torch.linalg.solve_triangular(root, (x - mean).T, upper=False).square().sum(0)
            told.append(share - 0.5 * far - root.diagonal().log().sum())
        return (torch.stack(told, 1) / self.width_**0.5).softmax(1).numpy()

    def _within(self, x: Tensor) -> Tensor:
        return x if self.basis_ is None else x @ self.basis_


def _rounded(apart: Tensor, width: int, sphere: float) -> Tensor:
    """The covariance of centred rows ``[n, k]`` of `width` columns, drawn towards a sphere."""
    n, found = len(apart), apart.T @ apart / len(apart)
    size = float(found.diagonal().sum()) / width
    whole = float(found.square().sum())
    distance = whole - width * size**2
    doubt = (float(apart.square().sum(1).square().sum()) / n - whole) / n
    share = max(LEAST, sphere * min(1.0, max(0.0, doubt / distance if distance > 0 else 1.0)))
    found *= 1 - share
    found.diagonal().add_(share * size if size else 1.0)
    return found


class Floor:
    """Knows the labels of the known users and looks at nothing else.

    Attributes:
        kind: ``majority`` says the known shares of the classes of everybody, so that its guess is the
            commonest (of values: their mean); ``random`` draws a class by those shares, ``uniform`` evenly.
        random_state: Of the draws.
    """

    def __init__(self, kind: Literal["majority", "random", "uniform"], random_state: int = 0) -> None:
        self.kind, self.random_state = kind, random_state

    def fit(self, X: Array, y: Array) -> Self:
        """Learn from ``y [n]``; `X` is not read."""
        self.classes_, counts = np.unique(y, return_counts=True)
        self.shares_, self.mean_ = torch.as_tensor(counts / len(y)), float(np.mean(y))
        return self

    def predict_proba(self, X: Array) -> Array:
        """``[n, classes seen]``: the shares, or a draw."""
        shares = self.shares_.expand(len(X), -1)
        if self.kind == "majority":
            return shares.numpy()
        logits = shares.log() if self.kind == "random" else torch.zeros_like(shares)
        drawn = Keys.seed(self.random_state).fold(f"floor {self.kind}").choose(logits)
        return F.one_hot(drawn, shares.shape[1]).double().numpy()

    def predict(self, X: Array) -> Array:
        """``[n]`` the mean of the values."""
        return np.full(len(X), self.mean_)
