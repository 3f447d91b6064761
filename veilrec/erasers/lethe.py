"""Lethe: each class is moved to where a class of random users would be, by transport from sums.

Paper: none; ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch

from veilrec.eraser import Request
from veilrec.erasers.common.null import OntoNull, Survey
from veilrec.erasers.common.ranks import Coordinates, Lengths
from veilrec.erasers.common.sums import Step, SumEraser

__all__ = ["Lethe"]

ENOUGH = 8  # users of a class who ask: with fewer, where they end is hardly theirs any more


@dataclass(frozen=True)
class Lethe(SumEraser):
    """Make classes as unlike each other as random users are, and no more alike: readers learn nothing.

    A map that makes classes equal over all users turns what leaks round. Here each class is brought to a draw
    of what so many random users would show: mean and covariance of its shapes (the vectors over their
    lengths), then the ranks of its lengths, then those of each column. Users without a label are left alone.
    Several attributes are forgotten one after the other.

    There is one sweep, whatever the number of users: on MovieLens-100K a second one changed no reader by
    more than .01. The covariance of a class is moved along one axis for every two users, and its columns are
    ranked from two users a column on: ranks of fewer left traces, and axes drawn anew for fewer cost lists.

    The label decides where a user is moved to: whoever has vectors from before and after reads it off their
    difference. Draws are secret, and kept only until the erasure is done.

    Two groups at a distance, of which nothing is left but chance:

    >>> import torch
    >>> from veilrec.base.draws import Draws
    >>> from veilrec.base.keys import Keys
    >>> gender = torch.arange(400) % 2
    >>> vectors = Keys.seed(1).normal(400, 3) * (1 + gender[:, None]) + 2.0 * gender[:, None]
    >>> after = Lethe().forget(vectors, Request({"gender": gender}), Draws(Keys.seed(0)))
    >>> [[round(float(v[gender == k].mean()), 1) for k in (0, 1)] for v in (vectors, after)]
    [[0.0, 2.0], [0.8, 0.8]]
    >>> [[round(float(v[gender == k].std()), 1) for k in (0, 1)] for v in (vectors, after)]
    [[1.0, 2.0], [1.4, 1.4]]

    Attributes:
        attributes: Those to be forgotten; empty for every one that is asked for, in a run all with classes.
        parts: The parts of the model that hold the vectors; empty for all that have a row a user.
        lots: Where draws come from: the operating system, so that nobody can repeat them, or the seed of a
            run, so that everybody can: for tests and published tables, not for a model that is released.
    """

    needs_labels: ClassVar[bool] = True

    attributes: Sequence[str] = ()
    parts: Sequence[str] = ()
    lots: Literal["secret", "keyed"] = "secret"

    @property
    def secret(self) -> bool:
        return self.lots == "secret"

    def refusal(self, request: Request) -> str | None:
        """Why it has too few to move among each other: two classes of eight who ask are the least."""
        for name in request.only(self.attributes).labels:
            label = request.labels[name][request.counts_in(name, aware=True)]
            users = torch.bincount(label, minlength=request.count(name))
            large = int((users >= ENOUGH).sum())
            if large < 2:
                return f"{large} of the classes of {name} have {ENOUGH} users who ask, and it needs two"
        return None

    def steps(self, request: Request) -> Sequence[tuple[str, Step]]:
        return [
            (name, step)
            for name in request.labels
            for step in (Survey(), OntoNull(), Lengths(), Coordinates())
        ]
