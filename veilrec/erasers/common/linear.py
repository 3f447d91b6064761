"""Linear: the least change after which no class has a mean of its own, from sums over users."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from veilrec.base.draws import Draws
from veilrec.base.params import Params
from veilrec.erasers.common.gauss import power
from veilrec.erasers.common.moments import Moments, moments_schema, of_classes
from veilrec.erasers.common.sums import Held, Step
from veilrec.wire.codec import Schema

__all__ = ["Linear", "null_means"]

LEVEL = 1e-6  # means that are nearer to each other than this many standard deviations are equal


@dataclass(frozen=True)
class Linear(Step):
    """Project out, in whitened coordinates, the directions in which classes differ in their means.

    Attributes:
        null: Whether they end apart as far as classes of random users would be, or at one point.
    """

    null: bool = False

    def schema(self, width: int, classes: int) -> Schema:
        return moments_schema(width, classes, squares=False)

    def statistics(self, held: Held, letter: Params) -> Params:
        group = torch.where(held.counts, held.label, -1)
        return of_classes(held.vectors, group, held.classes, squares=False, least=held.least)

    def fit(self, sums: Params, letter: Params, draws: Draws) -> Params:
        moments = Moments.of(sums)
        size = moments.covariance.diagonal().sqrt()
        size = torch.where(size > 0, size, 1.0)  # so that a column's unit does not matter
        alike = moments.covariance / (size[:, None] * size)
        white, back = power(alike, -0.5) / size[:, None], power(alike, 0.5) * size
        apart = moments.mean - moments.middle
        if self.null:
            apart = apart - null_means(moments, draws)
        told = moments.users.sqrt()[:, None] * (apart @ white)  # [classes, width]
        _, weight, axis = torch.linalg.svd(told, full_matrices=False)
        axis = axis[weight > LEVEL * moments.total.sqrt()]
        matrix = -white @ axis.T @ axis @ back
        return {"matrix": matrix, "shift": -moments.middle @ matrix}

    def apply(self, letter: Params, held: Held) -> Tensor:
        return held.vectors + held.vectors @ letter["matrix"] + letter["shift"]


def null_means(moments: Moments, draws: Draws) -> Tensor:
    """``[classes, width]`` how far from the middle the mean of a class of random users would be: one draw."""
    count = moments.users
    drawn = draws.normal("null", *moments.mean.shape) @ power(moments.within, 0.5)
    drawn = torch.where(count[:, None] > 0, drawn / count.clamp(min=1).sqrt()[:, None], 0.0)
    return drawn - count @ drawn / moments.total.clamp(min=1)
