"""AegisCS: the Gaussians of classes are brought to that of all users, without any interaction.

Paper: Wu et al., "Post-training attribute unlearning in federated recommender systems", WWW 2025: eq. (19),
Aegis-CS. Eq. (12) is misprinted: here the mean of all users is their mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from torch import Tensor

from veilrec.base.limits.bounds import Amount, Rate, Steps
from veilrec.base.params import Params
from veilrec.eraser import Request
from veilrec.erasers.common.at_once import AtOnce, Pooled
from veilrec.erasers.common.descent import Descent, GroupCloud, UserCloud
from veilrec.erasers.common.divergence import LEAST
from veilrec.erasers.common.moments import Moments
from veilrec.errors import BadInput, nearest

__all__ = ["AegisCS"]


@dataclass(frozen=True)
class AegisCS(AtOnce):
    """Steps down β · drift + γ · the mean divergence of classes, of several attributes at once.

    It makes means and covariances of classes nearly equal over all users: those whose label nobody knows
    become the mirror image of those whose label is known, and a reader of both finds the attribute turned
    round. `Lethe` moves to where random classes would be.

    >>> import torch
    >>> vectors = torch.tensor([[-0.1], [0.0], [0.1], [0.2], [0.5], [0.8]])
    >>> after = AegisCS().forget(vectors, Request({"gender": torch.tensor([0, 0, 0, 1, 1, 1])}))
    >>> [[round(float(v[k : k + 3].mean()), 2) for k in (0, 3)] for v in (vectors, after)]
    [[0.0, 0.5], [0.25, 0.25]]

    Users without a label, and those of a class that has fewer than two, are left alone.

    Attributes:
        attributes: Those to be forgotten; empty for every one that is asked for, in a run all with classes.
        parts: The parts of the model that hold the vectors; empty for all that have a row a user.
        beta: β, the weight of the squared distance from the vectors before.
        gamma: γ, the weight of the divergences.
        drift: Whether that distance is the mean over users or, as printed, their sum. A step down means is as
            many times longer as there are users; with the sum, hardly anybody moves where users are many.
        lr: Rate of the steps, halved for good wherever one would raise the loss.
        cap: The most steps that are taken.
        until: A step by which users move less than this, as a root of the mean square, is the last.
        ridge: What is added to variances, as a share of their mean.
        diagonal: Whether columns are taken for independent.
        emphasis: By attribute, how much its divergence counts beside those of others; else 1.
    """

    least: ClassVar[int] = LEAST

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
    emphasis: Mapping[str, Amount] = field(default_factory=dict)

    def counts_for(self, name: str, request: Request) -> float:
        return self.emphasis.get(name, super().counts_for(name, request))

    def pooled(self, request: Request) -> Pooled:
        for name in self.emphasis:
            if name not in request.labels:
                fix = nearest(name, request.labels)
                raise BadInput("eraser.emphasis", f'"{name}" is not to be forgotten', fix)
        return super().pooled(request)

    def maps(self, groups: Pooled, moments: Moments) -> Params:
        after = self.descent(groups.weights)(GroupCloud.of(groups.code, groups.counts, moments))
        return after.maps()

    def moved_at_once(self, vectors: Tensor, pooled: Pooled) -> Tensor:
        """Users by the way that takes less work: as groups that agree, or one by one."""
        users, attributes = pooled.code.shape
        if len(pooled.code.unique(dim=0)) * vectors.shape[1] <= attributes * users:
            return super().moved_at_once(vectors, pooled)
        cloud = UserCloud(pooled.code, pooled.counts, vectors, vectors)
        return self.descent(pooled.weights)(cloud).place

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
