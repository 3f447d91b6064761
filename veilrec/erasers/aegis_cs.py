"""AegisCS: the Gaussians of classes are brought to that of all users, without any interaction.

Paper: Wu et al., "Post-training attribute unlearning in federated recommender systems", WWW 2025: eq. (19),
Aegis-CS. Eq. (12) is misprinted: here the mean of all users is their mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from veilrec.base.draws import Draws
from veilrec.base.limits.bounds import Amount, Rate, Steps
from veilrec.base.params import Params
from veilrec.eraser import Request
from veilrec.erasers.common.descent import Descent, GroupCloud, UserCloud
from veilrec.erasers.common.divergence import LEAST
from veilrec.erasers.common.gauss import affine
from veilrec.erasers.common.moments import Moments, moments_schema, of_classes
from veilrec.erasers.common.sums import Held, Step, SumEraser
from veilrec.errors import BadInput
from veilrec.wire.codec import Schema

__all__ = ["AegisCS"]


@dataclass(frozen=True)
class AegisCS(SumEraser):
    """Steps down β · drift + γ · the mean divergence of classes, of several attributes at once.

    It makes means and covariances of classes nearly equal over all users: those whose label nobody knows
    become the mirror image of those whose label is known, and a reader of both finds the attribute turned
    round. `Lethe` moves to where random classes would be.

    >>> vectors = torch.tensor([[-0.1], [0.0], [0.1], [0.2], [0.5], [0.8]])
    >>> after = AegisCS().forget(vectors, Request({"gender": torch.tensor([0, 0, 0, 1, 1, 1])}))
    >>> [[round(float(v[k : k + 3].mean()), 2) for k in (0, 3)] for v in (vectors, after)]
    [[0.0, 0.5], [0.25, 0.25]]

    Users without a label, and those of a class that has fewer than two, are left alone.

    Attributes:
        attributes: Those to be forgotten; empty for every one that is asked for, in a run all with classes.
        parts: The parts of the model that hold the vectors; empty for all that have a row a user.
        beta: β, the weight of the squared distance from the vectors before.
        gamma: γ, the weight of the divergences; of one attribute beside others, that times its own.
        drift: Whether that distance is the mean over users or, as printed, their sum. A step down means is as
            many times longer as there are users; with the sum, hardly anybody moves where users are many.
        lr: Rate of the steps, halved for good wherever one would raise the loss.
        cap: The most steps that are taken.
        until: A step by which users move less than this, as a root of the mean square, is the last.
        ridge: What is added to variances, as a share of their mean.
        diagonal: Whether columns are taken for independent.
    """

    needs_labels: ClassVar[bool] = True

    attributes: Sequence[str] = ()
    parts: Sequence[str] = ()
    beta: Amount = 0.1
    gamma: Amount = 10.0
    drift: Literal["mean", "sum"] = "mean"
    lr: Rate = 0.01
    cap: Steps = 100
    until: Amount = 1e-4
    ridge: Amount = 1e-3
    diagonal: bool = False

    def steps(self, request: Request) -> Sequence[tuple[str, Step]]:
        if len(request.labels) > 1:
            fix = "give all vectors in one place, or name one attribute after the other"
            raise BadInput("eraser.attributes", "sums of several at once say too little", fix)
        return [(name, Alike(self.descent([request.weights.get(name, 1.0)]))) for name in request.labels]

    def transform(self, vectors: Tensor, request: Request, draws: Draws) -> Tensor:
        labels = [
            torch.where(request.counts_in(name, aware=True), label, -1)
            for name, label in request.labels.items()
        ]
        code, moved = torch.stack(labels, 1), vectors.clone()
        for column, classes in zip(code.T, (request.count(name) for name in request.labels), strict=True):
            many = torch.bincount(column[column >= 0], minlength=classes)
            column[(column >= 0) & (many[column.clamp(min=0)] < LEAST)] = -1
        told = (code >= 0).any(1)
        if bool(told.any()):
            moved[told] = self._moved(vectors[told], code[told], request)
        return moved

    def _moved(self, vectors: Tensor, code: Tensor, request: Request) -> Tensor:
        """Users of whom something is known, by the way that takes less work: as groups, or one by one."""
        middle, counts = vectors.mean(0), [request.count(name) for name in request.labels]
        descent = self.descent([request.weights.get(name, 1.0) for name in request.labels])
        place = vectors - middle  # so that squares of large numbers cost no digits
        agree, group = code.unique(dim=0, return_inverse=True)
        if len(agree) * vectors.shape[1] > code.shape[1] * len(code):
            return descent(UserCloud(code, counts, place, place)).place + middle
        moments = Moments.of(of_classes(place, group, len(agree)))
        after = descent(GroupCloud.of(agree, counts, moments))
        return affine(place, group, **after.maps()) + middle

    def descent(self, weights: Sequence[float]) -> Descent:
        """The descent for attributes of some weights."""
        return Descent(
            self.beta,
            [self.gamma * weight for weight in weights],
            self.drift == "mean",
            self.lr,
            self.cap,
            self.until,
            self.ridge,
            self.diagonal,
        )


@dataclass(frozen=True)
class Alike(Step):
    """The same from sums over users, of one attribute: its classes are the groups.

    Attributes:
        descent: What is done with their moments.
    """

    descent: Descent

    def schema(self, width: int, classes: int) -> Schema:
        return moments_schema(width, classes)

    def statistics(self, held: Held, letter: Params) -> Params:
        group = torch.where(held.counts, held.label, -1)
        return of_classes(held.vectors, group, held.classes, least=held.least)

    def fit(self, sums: Params, letter: Params, draws: Draws) -> Params:
        moments = Moments.of(sums)
        classes = len(moments.users)
        moments = moments._replace(users=torch.where(moments.users < LEAST, 0.0, moments.users))
        code = torch.where(moments.users > 0, torch.arange(classes), -1)
        after = self.descent(GroupCloud.of(code[:, None], [classes], moments))
        return after.maps()

    def apply(self, letter: Params, held: Held) -> Tensor:
        return affine(held.vectors, torch.where(held.moves, held.label, -1), **letter)
