"""Moments: counts, sums and squares of classes, which add up over whoever holds users."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from veilrec.base.params import Params
from veilrec.wire.codec import Schema, Spec

__all__ = ["Moments", "moments_schema", "of_classes"]


def moments_schema(width: int, classes: int, *, squares: bool = True) -> Schema:
    """What a holder sends: `squares` of each class, or of all users together."""
    second = (classes, width, width) if squares else (width, width)
    shapes = {"count": (classes,), "first": (classes, width), "second": second}
    kinds = {name: "count" if name == "count" else "sum" for name in shapes}
    return {name: Spec(shape, torch.float64, kind=kinds[name]) for name, shape in shapes.items()}  # type: ignore[arg-type]


def of_classes(
    vectors: Tensor, group: Tensor, classes: int, *, squares: bool = True, least: int = 1
) -> Params:
    """Sums over users ``[n, width]`` by the class of each ``[n]``; those of class -1 are in none.

    A class of fewer than `least` users is left out, as if nobody were in it.

    >>> sums = of_classes(torch.tensor([[1.0], [3.0], [5.0]]), torch.tensor([0, 0, -1]), classes=2)
    >>> {name: value.flatten().tolist() for name, value in sums.items()}
    {'count': [2.0, 0.0], 'first': [4.0, 0.0], 'second': [10.0, 0.0]}
    """
    width = vectors.shape[1]
    count, first = vectors.new_zeros(classes), vectors.new_zeros(classes, width)
    second = vectors.new_zeros(classes if squares else 1, width, width)
    for k in group[group >= 0].unique().tolist():
        own = vectors[group == k]
        if len(own) < least:
            continue
        count[k], first[k] = len(own), own.sum(0)
        second[k if squares else 0] += own.T @ own
    return {"count": count, "first": first, "second": second if squares else second[0]}


class Moments(NamedTuple):
    """Moments of classes, from their sums; those of a class without users are zero.

    Attributes:
        users: ``[classes]``.
        mean: ``[classes, width]``.
        covariance: ``[classes, width, width]``, divided by the count; of all users ``[width, width]`` about
            their common mean, where squares were added up over all classes.
    """

    users: Tensor
    mean: Tensor
    covariance: Tensor

    @classmethod
    def of(cls, sums: Params) -> Moments:
        """The moments from sums by class."""
        count, second = sums["count"], sums["second"]
        mean = sums["first"] / count.clamp(min=1)[:, None]
        if second.dim() == 2:
            middle = count @ mean / count.sum().clamp(min=1)
            return cls(count, mean, second / count.sum().clamp(min=1) - middle[:, None] * middle)
        squares = second / count.clamp(min=1)[:, None, None]
        return cls(count, mean, squares - mean[:, :, None] * mean[:, None])

    @property
    def total(self) -> Tensor:
        """The number of users."""
        return self.users.sum()

    @property
    def middle(self) -> Tensor:
        """``[width]`` the mean of all users."""
        return self.users @ self.mean / self.total.clamp(min=1)

    @property
    def between(self) -> Tensor:
        """``[width, width]`` the covariance of the classes' means, each as often as it has users."""
        apart = self.mean - self.middle
        return (self.users[:, None] * apart).T @ apart / self.total.clamp(min=1)

    @property
    def within(self) -> Tensor:
        """``[width, width]`` the covariance about the classes' means, pooled and without bias."""
        classes = int((self.users > 0).sum())
        own = torch.einsum("k,kij->ij", self.users, self.covariance) if self.covariance.dim() == 3 else None
        sums = own if own is not None else self.total * (self.covariance - self.between)
        return sums / (self.total - classes).clamp(min=1)
