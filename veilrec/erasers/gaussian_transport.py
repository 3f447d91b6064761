"""GaussianTransport: each class is moved onto one Gaussian between them, exactly. A warning, not a defence.

Paper: Dowson and Landau, "The Fréchet distance between multivariate normal distributions", J. Multivariate
Analysis 1982 (the map); Álvarez-Esteban et al., "A fixed-point approach to barycenters in Wasserstein space",
J. Math. Anal. Appl. 2016 (the target).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from veilrec.base.draws import Draws
from veilrec.base.params import Params
from veilrec.eraser import Request
from veilrec.erasers.common.gauss import affine, barycentre, transport
from veilrec.erasers.common.moments import Moments, moments_schema, of_classes
from veilrec.erasers.common.sums import Held, Step, SumEraser
from veilrec.wire.codec import Schema

__all__ = ["GaussianTransport"]

ENOUGH = 2  # users of a class for each column, from which on its covariance is moved as well


@dataclass(frozen=True)
class GaussianTransport(SumEraser):
    """Give every class the same mean and the same covariance, by the map of each class that moves it least.

    It is here to be looked at. With all users equalised exactly, those whose label nobody knows are the
    mirror image of those whose label is known, in means and in covariances: a reader of both finds the
    attribute more surely than before, turned round. `Lethe` moves to where random classes would be.

    >>> vectors = torch.tensor([[-1.0], [0.0], [1.0], [2.0], [5.0], [8.0]])
    >>> request = Request({"gender": torch.tensor([0, 0, 0, 1, 1, 1])})
    >>> GaussianTransport().forget(vectors, request).flatten()
    tensor([0.5000, 2.5000, 4.5000, 0.5000, 2.5000, 4.5000])

    Users without a label are left alone. Of a class with fewer than two users a column only the mean moves.

    Attributes:
        attributes: Those to be forgotten; empty for every one that is asked for, in a run all with classes.
        parts: The parts of the model that hold the vectors; empty for all that have a row a user.
    """

    needs_labels: ClassVar[bool] = True
    exact: ClassVar[bool] = True

    attributes: Sequence[str] = ()
    parts: Sequence[str] = ()

    def steps(self, request: Request) -> Sequence[tuple[str, Step]]:
        return [(name, ToBarycentre()) for name in request.labels]


@dataclass(frozen=True)
class ToBarycentre(Step):
    """Carry the moments of every class to those of the barycentre."""

    def schema(self, width: int, classes: int) -> Schema:
        return moments_schema(width, classes)

    def statistics(self, held: Held, letter: Params) -> Params:
        group = torch.where(held.counts, held.label, -1)
        return of_classes(held.vectors, group, held.classes, least=held.least)

    def fit(self, sums: Params, letter: Params, draws: Draws) -> Params:
        moments = Moments.of(sums)
        matrix, d = torch.zeros_like(moments.covariance), moments.mean.shape[1]
        large = (moments.users >= ENOUGH * d).nonzero().flatten()
        if len(large) > 1:
            target = barycentre(moments.covariance[large], moments.users[large])
            for k in large.tolist():
                matrix[k] = transport(moments.covariance[k], target) - torch.eye(d, dtype=target.dtype)
        carried = moments.mean + torch.einsum("ki,kij->kj", moments.mean, matrix)
        return {"matrix": matrix, "shift": moments.middle - carried}

    def apply(self, letter: Params, held: Held) -> Tensor:
        group = torch.where(held.moves, held.label, -1)
        return affine(held.vectors, group, letter["matrix"], letter["shift"])
