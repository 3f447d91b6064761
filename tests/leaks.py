"""Features with a leak of known size, and the two figures by which an attacker is judged on them.

The first fifth of the users is known, the others are the targets.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from veilrec.attacks.common.classifiers import Job
from veilrec.base.keys import Keys

KNOWN = 0.2


class Leak(NamedTuple):
    """Features ``[users, width]``, labels ``[users]``, and the AUC above chance of an ideal attacker."""

    features: Tensor
    label: Tensor
    classes: int
    ideal: float

    @property
    def known(self) -> int:
        return round(KNOWN * len(self.label))

    def job(self, seed: int = 0) -> Job:
        return Job(torch.arange(self.known), self.label[: self.known], self.classes, seed)

    def shuffled(self, seed: int) -> Leak:
        """The same features, which say nothing about these labels."""
        return self._replace(
            label=self.label[Keys.seed(seed).fold("shuffle").order(len(self.label))], ideal=0.0
        )

    def auc(self, scores: Tensor) -> float:
        return auc(self.label[self.known :], scores[self.known :])

    def balanced(self, scores: Tensor) -> float:
        return balanced(self.label[self.known :], scores[self.known :])


def planted(classes: int, users: int = 4000, width: int = 64, seed: int = 0) -> Leak:
    """The label in one coordinate, noise in all others."""
    keys = Keys.seed(seed).fold("planted")
    features, label = keys.normal(users, width), keys.fold("label").integers(classes, users)
    features[:, int(keys.fold("where").integers(width, 1))] = label.float()
    return Leak(features, label, classes, 0.5)


def graded(separation: float, users: int = 4000, width: int = 64, seed: int = 0) -> Leak:
    """Two classes with means so many standard deviations apart, in a direction that uses all columns."""
    keys = Keys.seed(seed).fold("graded")
    label = keys.fold("label").integers(2, users)
    direction = torch.nn.functional.normalize(keys.fold("direction").normal(width), dim=0)
    features = keys.normal(users, width) + separation * (label[:, None] - 0.5) * direction
    return Leak(features, label, 2, 0.5 * math.erf(separation / 2))  # Φ(d′/√2) − ½


def auc(label: Tensor, scores: Tensor) -> float:
    """The mean over classes of the chance that one of the class is scored above one of the others."""
    columns = range(1, 2) if scores.shape[1] == 2 else range(scores.shape[1])
    return sum(_above(label == one, scores[:, one]) for one in columns) / len(columns)


def _above(of: Tensor, score: Tensor) -> float:
    _, place, ties = score.unique(return_inverse=True, return_counts=True)
    rank = (ties.cumsum(0) - (ties - 1) / 2)[place].double()
    n = int(of.sum())
    return float((rank[of].sum() - n * (n + 1) / 2) / (n * (len(of) - n)))


def balanced(label: Tensor, scores: Tensor) -> float:
    """The mean over classes of how many of the class are guessed right."""
    right = (scores.argmax(1) == label).double()
    return float(torch.stack([right[label == one].mean() for one in label.unique()]).mean())
