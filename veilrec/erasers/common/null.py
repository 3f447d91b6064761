"""Null: steps that bring the moments of each class to where those of so many random users would be.

A vector is taken as a shape and a length. The length is that of the vector about the mean of all, in units of
their spread; the shape is the vector over its length. Moments are those of shapes: of the vectors themselves
they would be those of the few longest, and all other users of a class would be moved by them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from veilrec.base.draws import Draws
from veilrec.base.params import Params
from veilrec.erasers.common.gauss import affine, power, ridged, transport
from veilrec.erasers.common.moments import Moments, moments_schema, of_classes
from veilrec.erasers.common.sums import Held, Step
from veilrec.wire.codec import Schema

__all__ = ["OntoNull", "Survey", "about", "group_of", "lengths", "moved_group", "null_covariance"]

FEW = 8  # classes with fewer users are taken as one
EACH = 2  # users of a class for every axis along which its covariance is moved
RIDGE = 1e-6
ALIEN = 10  # times larger or smaller than most: a column in another unit
SHORTEST = 1e-9


@dataclass(frozen=True)
class Survey(Step):
    """Find out how many users each class has, and where all of them lie together; nobody is moved.

    The map: ``group [classes]`` the group of each class, ``cut [groups]`` how lots are dealt among groups,
    ``middle``, ``size`` and ``unit [width]`` of the columns, ``white [width, width]`` in which lengths are
    taken, and ``axes [width, width]``, the widest first. With fewer than two groups nobody has a group.
    """

    def schema(self, width: int, classes: int) -> Schema:
        return moments_schema(width, classes, squares=False)

    def statistics(self, held: Held, letter: Params) -> Params:
        group = torch.where(held.counts, held.label, -1)
        return of_classes(held.vectors, group, held.classes, squares=False, least=held.least)

    def fit(self, sums: Params, letter: Params, draws: Draws) -> Params:
        moments = Moments.of(sums)
        group = grouped(moments.users)
        users = torch.zeros_like(moments.users).index_add(0, group, moments.users)
        size = moments.covariance.diagonal().clamp(min=0).sqrt()
        size = torch.where(size > 0, size, 1.0)
        unit = common_unit(size)
        spread = moments.covariance / (unit[:, None] * unit)
        return {
            "group": group if int((users > 0).sum()) > 1 else torch.full_like(group, -1),
            "cut": users.cumsum(0) / moments.total.clamp(min=1),
            "middle": moments.middle,
            "size": size,
            "unit": unit,
            "white": power(spread, -0.5) / len(size) ** 0.5,
            "axes": torch.linalg.eigh(spread)[1].flip(1),
        }

    def apply(self, letter: Params, held: Held) -> Tensor:
        return held.vectors


def grouped(users: Tensor) -> Tensor:
    """``[classes]`` the group of each class: its own number, or that of the first class with few users.

    >>> grouped(torch.tensor([40.0, 1.0, 0.0, 7.0, 60.0]))
    tensor([0, 1, 2, 1, 4])
    """
    group = torch.arange(len(users))
    small = (users > 0) & (users < FEW)
    return torch.where(small, group[small].min(), group) if bool(small.any()) else group


def common_unit(size: Tensor) -> Tensor:
    """``[width]`` one unit for all columns, by which distances stay; a column far from it has one of its own.

    >>> common_unit(torch.tensor([1.0, 2.0, 3.0, 5000.0]))
    tensor([2.0000e+00, 2.0000e+00, 2.0000e+00, 5.0000e+03])
    """
    middle = size.median()
    return torch.where((size > middle / ALIEN) & (size < middle * ALIEN), middle, size)


def group_of(held: Held, letter: Params) -> Tensor:
    """``[n]`` the group of each user who counts, -1 for others."""
    return torch.where(held.counts, letter["group"][held.label.clamp(min=0)], -1)


def moved_group(held: Held, letter: Params) -> Tensor:
    """``[n]`` the group of each user who is moved, -1 for others."""
    return torch.where(held.moves, letter["group"][held.label.clamp(min=0)], -1)


def about(vectors: Tensor, letter: Params) -> Tensor:
    """``[n, width]`` vectors about the mean of all, in the units of their columns."""
    return (vectors - letter["middle"]) / letter["unit"]


def lengths(centred: Tensor, letter: Params) -> Tensor:
    """``[n, 1]`` the lengths of vectors about the mean, in units of their spread: 1 on average."""
    return (centred @ letter["white"]).square().sum(1, keepdim=True).sqrt().clamp(min=SHORTEST)


@dataclass(frozen=True)
class OntoNull(Step):
    """Carry mean and covariance of the shapes of each class to one draw of what random users would show.

    The draw is that of Gaussian shapes: a mean with the spread of all over the number of users, and a
    covariance after Wishart. Of a class with fewer users than it takes to move its covariance along every
    axis, it is moved along the widest axes of all users together, as many as there are users for.
    """

    def schema(self, width: int, classes: int) -> Schema:
        return moments_schema(width, classes)

    def statistics(self, held: Held, letter: Params) -> Params:
        centred = about(held.vectors, letter)
        shape = centred / lengths(centred, letter)
        return of_classes(shape, group_of(held, letter), held.classes, least=held.least)

    def fit(self, sums: Params, letter: Params, draws: Draws) -> Params:
        moments = Moments.of(sums)
        classes, width = moments.mean.shape
        spread, turn = moments.within, torch.zeros_like(moments.covariance)
        for k in (moments.users > 0).nonzero().flatten().tolist():
            rank = min(width, int(moments.users[k] / EACH))
            if rank > 1:
                drawn = draws.fold(str(k))
                turn[k] = _carried(
                    moments.covariance[k], spread, letter["axes"][:, :rank], moments.users[k], drawn
                )
        mean = draws.normal("mean", classes, width) @ power(spread, 0.5)
        wanted = moments.middle + mean / moments.users.clamp(min=1).sqrt()[:, None]
        shift = wanted - moments.mean - torch.einsum("ki,kij->kj", moments.mean, turn)
        return {**letter, "turn": turn, "shift": shift}

    def apply(self, letter: Params, held: Held) -> Tensor:
        centred, group = about(held.vectors, letter), moved_group(held, letter)
        long = lengths(centred, letter)
        after = affine(centred / long, group, letter["turn"], letter["shift"]) * long
        return torch.where((group >= 0)[:, None], letter["middle"] + after * letter["unit"], held.vectors)


def _carried(own: Tensor, spread: Tensor, axes: Tensor, users: Tensor, draws: Draws) -> Tensor:
    """``[width, width]`` what a class's shapes, times this, need to have a covariance that was drawn."""
    source, pooled = (ridged(axes.T @ one @ axes, RIDGE) for one in (own, spread))
    root = power(pooled, 0.5)
    target = root @ null_covariance(int(users), len(root), draws) @ root
    rest = transport(source, target) - torch.eye(len(root), dtype=root.dtype)
    return axes @ rest @ axes.T


def null_covariance(users: int, width: int, draws: Draws) -> Tensor:
    """A draw of the covariance of so many standard normal users, after Bartlett, 1933; users exceed width.

    The χ² on its diagonal are those of Wilson and Hilferty, 1931.

    >>> from veilrec.base.keys import Keys
    >>> null_covariance(10**6, 2, Draws(Keys.seed(0))).round(decimals=2)
    tensor([[1., 0.],
            [0., 1.]], dtype=torch.float64)
    """
    freedom = (users - 1 - torch.arange(width, dtype=torch.float64)).clamp(min=1)
    part = 2 / (9 * freedom)
    cube = (1 - part + draws.normal("diagonal", width) * part.sqrt()).clamp(min=0)
    below = draws.normal("below", width, width).tril(-1) + (freedom * cube**3).sqrt().diag()
    return below @ below.T / users
