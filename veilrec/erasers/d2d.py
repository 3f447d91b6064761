"""D2D: the distribution of each class is drawn to that of the largest, in the eyes of several kernels.

Paper: Li et al., "Making Users Indistinguishable: Attribute-wise Unlearning in Recommender Systems", MM 2023,
its distribution-to-distribution loss with the regulariser on parameters ("D2D-R" in Wu et al., WWW 2025).
Minibatches are ours: over all pairs a step of 6,000 users takes 36 million distances.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from veilrec.base.draws import Draws
from veilrec.base.keys import Keys
from veilrec.base.limits.bounds import Amount, Bounds, Rate, Steps
from veilrec.base.steps import Stepper
from veilrec.eraser import AttributeEraser, Request
from veilrec.erasers.common.divergence import LEAST

__all__ = ["D2D", "discrepancy"]

KERNELS = 5  # each twice as wide as the one before; the middle one as wide as users are apart
FLAT = 1e-30


@dataclass(frozen=True)
class D2D(AttributeEraser):
    """Lower the kernel discrepancy (MMD²) of each class from the largest, and the distance from before.

    Steps of Adam, each on as many users of every class, drawn anew. The discrepancy is the unbiased one: that
    of the paper's code, on a few users, draws classes nearer than alike.

    >>> gender = torch.arange(200) % 2
    >>> vectors = Keys.seed(1).normal(200, 3) + 2.0 * gender[:, None]
    >>> after = D2D(weight=10.0, steps=100).forget(vectors, Request({"gender": gender}), Draws(Keys.seed(0)))
    >>> [round(float(v[gender == 1].mean() - v[gender == 0].mean()), 1) for v in (vectors, after)]
    [2.0, 0.1]

    Users without a label, and those of a class that has fewer than two, are left alone.

    Attributes:
        attributes: Those to be forgotten; empty for every one that is asked for, in a run all with classes.
        parts: The parts of the model that hold the vectors; empty for all that have a row a user.
        weight: Of the mean discrepancy, beside the squared distance from before as a share of the vectors'
            variance; of one attribute beside others, that times its own.
        steps: How many are taken.
        batch: Users in a step, as many of each class; all where there are fewer.
        lr: Rate of the steps, in units of the vectors' spread.
    """

    needs_labels: ClassVar[bool] = True

    attributes: Sequence[str] = ()
    parts: Sequence[str] = ()
    weight: Amount = 1.0
    steps: Steps = 300
    batch: Annotated[int, Bounds(2, 100_000)] = 512
    lr: Rate = 0.05

    def transform(self, vectors: Tensor, request: Request, draws: Draws) -> Tensor:
        members = {name: found for name in request.labels if len(found := _members(request, name)) > 1}
        if not members:
            return vectors
        told = torch.cat([torch.cat(some) for some in members.values()]).unique()
        middle = vectors[told].mean(0)
        size = float((vectors[told] - middle).square().mean().sqrt()) or 1.0
        start = ((vectors - middle) / size).float()
        now, stepper = start.clone(), Stepper("adam", self.lr)
        state, keys = stepper.fresh({"user": now}), draws.as_keys("batches")
        for step in range(self.steps):
            for name, some in members.items():
                own = keys.fold(name).fold(step)
                rows, classes = self._drawn(own, request.own_tags, some)
                slope = self._slope(now[rows], start[rows], classes, request.weights.get(name, 1.0))
                here = {key: value[rows] for key, value in state.items()}
                moved = {"user": now[rows]}
                stepper.step(moved, {"user": slope}, here)
                now[rows] = moved["user"]
                for key, value in here.items():
                    state[key][rows] = value
        after = vectors.clone()
        after[told] = now[told].double() * size + middle
        return after

    def _drawn(self, keys: Keys, tags: Tensor, members: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """``[b]`` users and the place of each one's class, by draws that are each user's own."""
        most = max(LEAST, self.batch // len(members))
        rows = [own[keys.fold(tags[own]).value.argsort()[:most]] for own in members]
        return torch.cat(rows), torch.cat([torch.full_like(own, k) for k, own in enumerate(rows)])

    def _slope(self, rows: Tensor, start: Tensor, classes: Tensor, weight: float) -> Tensor:
        """``[b, width]`` the slope at some users, times as many as there are: Adam does not mind."""
        _, slope = discrepancy(rows, classes)
        return len(rows) * self.weight * weight * slope + 2 * (rows - start) / rows.shape[1]


def discrepancy(rows: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
    """The mean MMD² of classes from class 0, without bias, and its slope ``[n, width]``.

    The kernels' widths follow the mean distance, and are no part of the slope.

    >>> rows, classes = torch.tensor([[0.0], [0.0], [3.0], [3.0]]), torch.tensor([0, 0, 1, 1])
    >>> round(float(discrepancy(rows, classes)[0]), 3)  # of 5 kernels each at most 2
    7.13
    """
    square = rows.square().sum(1)
    distance = (square[:, None] + square - 2 * rows @ rows.T).clamp(min=0).fill_diagonal_(0)
    wide = 4 * distance.sum() / (len(rows) * (len(rows) - 1))
    kernel = torch.exp(-distance / wide.clamp(min=FLAT))
    total, fall, share = torch.zeros_like(kernel), torch.zeros_like(kernel), 1.0
    for _ in range(KERNELS):
        total, fall = total + kernel, fall - share * kernel
        kernel, share = kernel.square(), 2 * share
    pairs = _pairs(classes, rows.dtype)
    pull = pairs * fall / wide.clamp(min=FLAT)
    slope = 4 * (pull.sum(1, keepdim=True) * rows - pull @ rows)
    return (pairs * total).sum(), slope


def _pairs(classes: Tensor, dtype: torch.dtype) -> Tensor:
    """``[n, n]`` what each pair counts: alike within a class, against class 0 the other way."""
    many = torch.bincount(classes).to(dtype)
    others = len(many) - 1
    within = 1 / (others * many * (many - 1))
    within[0] *= others
    between = -1 / (others * many[0] * many)
    same = classes[:, None] == classes
    first = (classes[:, None] == 0) | (classes == 0)
    across = between[torch.maximum(classes[:, None], classes)]
    found = torch.where(same, within[classes], torch.where(first, across, 0.0))
    return found.fill_diagonal_(0)


def _members(request: Request, name: str) -> list[Tensor]:
    """The users of each class that is large enough, the largest first."""
    counts, label = request.counts_in(name, aware=True), request.labels[name]
    found = [(counts & (label == k)).nonzero().flatten() for k in range(request.count(name))]
    return sorted((own for own in found if len(own) >= LEAST), key=len, reverse=True)
