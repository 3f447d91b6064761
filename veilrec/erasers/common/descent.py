"""Descent: users on their way to where classes are alike, one by one or as maps of whole groups.

The slope of every term is affine within a group of users that agree in all attributes. So after any number
of plain steps a user is an affine function of where they began, the same for all of the group: its mean and
covariance are all that a descent needs to know, and no user need be looked at before it is over.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self, TypeVar

import torch
from torch import Tensor

from veilrec.base.params import Params
from veilrec.erasers.common.divergence import Apart, apart, ridge_of
from veilrec.erasers.common.moments import Moments, of_classes
from veilrec.errors import BadInput

__all__ = ["Cloud", "Descent", "GroupCloud", "UserCloud"]

Some = TypeVar("Some", bound="Cloud")
FLAT = 1e-10  # an axis along which a group varies by less than this share of its most is left as it is
HALVINGS = 60


@dataclass(frozen=True)
class Cloud(ABC):
    """Users on their way.

    Attributes:
        code: ``[n, attributes]`` the class of each user, or group of users, in each attribute; -1 for none.
        counts: How many classes each attribute has.
        place: ``[n, width]`` where they are: users, or the means of groups.
        start: The same before the first step.
    """

    code: Tensor
    counts: Sequence[int]
    place: Tensor
    start: Tensor

    @abstractmethod
    def moments(self, attribute: int) -> Moments:
        """The moments of the classes of an attribute."""

    @abstractmethod
    def users(self) -> int:
        """How many users there are."""

    @abstractmethod
    def stepped(self, slopes: Sequence[Apart], rate: float, keep: float) -> Self:
        """The same after a step down the slopes, and towards the start."""

    @abstractmethod
    def apart(self, other: Cloud | None = None) -> float:
        """The sum over users of squared distances from where they are in another cloud, or were."""


@dataclass(frozen=True)
class UserCloud(Cloud):
    """Users one by one."""

    def users(self) -> int:
        return len(self.place)

    def moments(self, attribute: int) -> Moments:
        return Moments.of(of_classes(self.place, self.code[:, attribute], self.counts[attribute]))

    def stepped(self, slopes: Sequence[Apart], rate: float, keep: float) -> Self:
        way = keep * (self.place - self.start)
        for attribute, slope in enumerate(slopes):
            for k in slope.divergence.nonzero().flatten().tolist():
                own = self.code[:, attribute] == k
                way[own] += self.place[own] @ slope.matrix[k] + slope.shift[k]
        return replace(self, place=self.place - rate * way)

    def apart(self, other: Cloud | None = None) -> float:
        return float((self.place - (self.start if other is None else other.place)).square().sum())


@dataclass(frozen=True)
class GroupCloud(Cloud):
    """GroupCloud of users that agree in all attributes, by their moments alone.

    Attributes:
        many: ``[n]`` users in each.
        factor: ``[n, width, width]`` a root of each group's covariance; its columns are moved as users are.
        first: The same before the first step.
        axes: ``[n, width, width]`` by which users' distances from the mean become weights of the columns.
        way: The rates of all steps so far, added up.
    """

    many: Tensor
    factor: Tensor
    first: Tensor
    axes: Tensor
    way: float = 0.0

    @classmethod
    def of(cls, code: Tensor, counts: Sequence[int], moments: Moments) -> GroupCloud:
        """GroupCloud before the first step; axes along which one does not vary are without a column."""
        value, axis = torch.linalg.eigh(moments.covariance)
        there = value > FLAT * value[:, -1:].clamp(min=0)
        root = torch.where(there, value, 0.0).sqrt()
        back = torch.where(there, 1 / torch.where(there, root, 1.0), 0.0)
        factor, mean = axis * root[:, None], moments.mean
        return cls(code, counts, mean, mean, moments.users, factor, factor, axis * back[:, None])

    def users(self) -> int:
        return int(self.many.sum())

    def moments(self, attribute: int) -> Moments:
        code, classes = self.code[:, attribute], self.counts[attribute]
        there = code >= 0
        code, many, place = code[there], self.many[there], self.place[there]
        users = many.new_zeros(classes).index_add(0, code, many)
        mean = place.new_zeros(classes, place.shape[1]).index_add(0, code, many[:, None] * place)
        mean = mean / users.clamp(min=1)[:, None]
        off, factor = place - mean[code], self.factor[there]
        own = factor @ factor.mT + off[:, :, None] * off[:, None]
        total = own.new_zeros(classes, *own.shape[1:]).index_add(0, code, many[:, None, None] * own)
        return Moments(users, mean, total / users.clamp(min=1)[:, None, None])

    def stepped(self, slopes: Sequence[Apart], rate: float, keep: float) -> Self:
        matrix, shift = torch.zeros_like(self.factor), torch.zeros_like(self.place)
        for attribute, slope in enumerate(slopes):
            code = self.code[:, attribute]
            there = code >= 0
            matrix[there] += slope.matrix[code[there]]
            shift[there] += slope.shift[code[there]]
        turned = matrix @ self.factor + keep * (self.factor - self.first)
        moved = torch.einsum("nij,nj->ni", matrix, self.place) + shift + keep * (self.place - self.start)
        factor, place = self.factor - rate * turned, self.place - rate * moved
        return replace(self, factor=factor, place=place, way=self.way + rate)

    def apart(self, other: Cloud | None = None) -> float:
        factor = other.factor if isinstance(other, GroupCloud) else self.first
        off = self.place - (self.start if other is None else other.place)
        each = (self.factor - factor).square().sum((1, 2)) + off.square().sum(1)
        return float(self.many @ each)

    def maps(self) -> Params:
        """``matrix`` and ``shift`` of each group, as `gauss.affine` takes them, and the ``way``."""
        matrix = self.axes @ (self.factor - self.first).mT
        moved = self.place - self.start - torch.einsum("ni,nij->nj", self.start, matrix)
        return {"matrix": matrix, "shift": moved, "way": matrix.new_tensor(self.way)}


@dataclass(frozen=True)
class Descent:
    """Plain steps down ``beta`` · drift + Σ weight · mean divergence of an attribute's classes.

    The rate is halved for good wherever a step would raise the loss: a class of a few users is steep.

    Attributes:
        beta: Weight of the squared distance from the start.
        weights: Of each attribute.
        mean: Whether that distance is a mean over users, or their sum; a step along means is as many times
            longer as there are users, or none of them would move.
        rate, steps: The length of a step, and the most that are taken.
        until: A step by which users move less than this (root of the mean square) is the last.
        ridge: What is added to variances, as a share of their mean before the first step.
        diagonal: Whether columns are taken for independent.
    """

    beta: float
    weights: Sequence[float]
    mean: bool
    rate: float
    steps: int
    until: float
    ridge: float
    diagonal: bool

    def __call__(self, cloud: Some) -> Some:
        """A cloud after it."""
        users = max(cloud.users(), 1)
        ridges = [ridge_of(cloud.moments(j), self.ridge) for j in range(len(self.weights))]
        rate, halvings = self.rate, 0
        loss, slopes = self._seen(cloud, ridges, users)
        if not math.isfinite(loss):
            fix = f"raise it from {self.ridge:g}"
            raise BadInput("eraser.ridge", "leaves a covariance that cannot be inverted", fix)
        for _ in range(self.steps):
            after, lower = cloud, math.inf
            while halvings < HALVINGS:
                after = cloud.stepped(slopes, rate, 2 * self.beta)
                lower, seen = self._seen(after, ridges, users)
                if lower <= loss:
                    break
                rate, halvings = rate / 2, halvings + 1
            else:
                break
            change = math.sqrt(after.apart(cloud) / users)
            cloud, loss, slopes = after, lower, seen
            if change < self.until:
                break
        return cloud

    def _seen(self, cloud: Cloud, ridges: Sequence[float], users: int) -> tuple[float, list[Apart]]:
        """The loss, and the slope of each attribute's part of it in steps of this descent."""
        loss = self.beta * cloud.apart() / (users if self.mean else 1)
        slopes = []
        for attribute, (weight, ridge) in enumerate(zip(self.weights, ridges, strict=True)):
            found = apart(cloud.moments(attribute), ridge, diagonal=self.diagonal)
            loss += weight * found.mean
            share = weight * (users if self.mean else 1)
            slopes.append(found._replace(matrix=share * found.matrix, shift=share * found.shift))
        return loss, slopes
