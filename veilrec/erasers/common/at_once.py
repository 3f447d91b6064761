"""At once: erasers of several attributes together, from the moments of users who agree in all of them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from veilrec.base.draws import Draws
from veilrec.base.params import Params
from veilrec.eraser import Request
from veilrec.erasers.common.gauss import affine
from veilrec.erasers.common.moments import Moments, moments_schema, of_classes
from veilrec.erasers.common.sums import Held, Step, SumEraser
from veilrec.errors import BadInput
from veilrec.wire.codec import Schema

__all__ = ["AtOnce", "Pooled"]


@dataclass(frozen=True)
class Pooled:
    """Users, or groups of them that agree, and the attributes by which they are told apart.

    Attributes:
        code: ``[n, attributes]`` the class of each in each attribute; -1 for none, or for too small a one.
        counts: How many classes each attribute has.
        weights: Of each attribute.
    """

    code: Tensor
    counts: Sequence[int]
    weights: Sequence[float]


@dataclass(frozen=True)
class AtOnce(SumEraser):
    """An eraser whose map, for users that agree in all attributes, follows from the moments of such groups.

    Sums of silos are by class, of one attribute: several at once need vectors in one place.
    """

    needs_labels: ClassVar[bool] = True
    least: ClassVar[int] = 1  # users of a class; smaller ones are left alone, and change nobody

    attributes: Sequence[str] = ()
    parts: Sequence[str] = ()

    @abstractmethod
    def maps(self, groups: Pooled, moments: Moments) -> Params:
        """``matrix`` and ``shift`` of each group, as `gauss.affine` takes them; a letter may tell more."""

    def steps(self, request: Request) -> Sequence[tuple[str, Step]]:
        if len(request.labels) > 1:
            fix = "give all vectors in one place, or name one attribute after the other"
            raise BadInput("eraser.attributes", "sums of several at once say too little", fix)
        return [(name, OfClasses(self, self.counts_for(name, request))) for name in request.labels]

    def counts_for(self, name: str, request: Request) -> float:
        """How much an attribute counts beside others."""
        return request.weights.get(name, 1.0)

    def transform(self, vectors: Tensor, request: Request, draws: Draws) -> Tensor:
        pooled = self.pooled(request)
        told, moved = (pooled.code >= 0).any(1), vectors.clone()
        if bool(told.any()):
            middle = vectors[told].mean(0)  # so that squares of large numbers cost no digits
            own = Pooled(pooled.code[told], pooled.counts, pooled.weights)
            moved[told] = self.moved_at_once(vectors[told] - middle, own) + middle
        return moved

    def pooled(self, request: Request) -> Pooled:
        """What a request says of its users, without classes that are too small."""
        names = list(request.labels)
        counts = [request.count(name) for name in names]
        known = [torch.where(request.counts_in(name, aware=True), request.labels[name], -1) for name in names]
        code = torch.stack([_large(column, self.least) for column in known], 1)
        return Pooled(code, counts, [self.counts_for(name, request) for name in names])

    def moved_at_once(self, vectors: Tensor, pooled: Pooled) -> Tensor:
        """``[n, width]`` users of whom something is known, after the maps of their groups."""
        agree, group = pooled.code.unique(dim=0, return_inverse=True)
        moments = Moments.of(of_classes(vectors, group, len(agree)))
        letter = self.maps(Pooled(agree, pooled.counts, pooled.weights), moments)
        return affine(vectors, group, letter["matrix"], letter["shift"])


@dataclass(frozen=True)
class OfClasses(Step):
    """The maps of an eraser from sums over users, of one attribute: its classes are the groups."""

    eraser: AtOnce
    weight: float

    def schema(self, width: int, classes: int) -> Schema:
        return moments_schema(width, classes)

    def statistics(self, held: Held, letter: Params) -> Params:
        group = torch.where(held.counts, held.label, -1)
        return of_classes(held.vectors, group, held.classes, least=held.least)

    def fit(self, sums: Params, letter: Params, draws: Draws) -> Params:
        moments = Moments.of(sums)
        users = torch.where(moments.users < self.eraser.least, 0.0, moments.users)
        code = torch.where(users > 0, torch.arange(len(users)), -1)
        groups = Pooled(code[:, None], [len(users)], [self.weight])
        return self.eraser.maps(groups, moments._replace(users=users))

    def apply(self, letter: Params, held: Held) -> Tensor:
        group = torch.where(held.moves, held.label, -1)
        return affine(held.vectors, group, letter["matrix"], letter["shift"])


def _large(column: Tensor, least: int) -> Tensor:
    """``[n]`` classes; -1 where there are fewer than so many users in one."""
    many = torch.bincount(column[column >= 0], minlength=1)
    place = column.clamp(min=0)
    return torch.where((column >= 0) & (many[place] >= least), column, -1)
