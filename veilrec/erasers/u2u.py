"""U2U: users of different classes are drawn to each other, pair by pair.

Paper: Li et al., "Making Users Indistinguishable: Attribute-wise Unlearning in Recommender Systems", MM 2023,
its user-to-user loss with the regulariser on parameters ("U2U-R" in Wu et al., WWW 2025). More than two
classes are ours: every pair of users in different ones, as in a complete multipartite graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from veilrec.base.limits.bounds import Amount
from veilrec.base.params import Params
from veilrec.erasers.common.at_once import AtOnce, Pooled
from veilrec.erasers.common.moments import Moments

__all__ = ["U2U"]


@dataclass(frozen=True)
class U2U(AtOnce):
    """Lower the mean squared distance of users in different classes, and of each user from before.

    The paper takes some hundred steps of Adam; the loss is quadratic, and here its minimum is taken: how far
    that is, the weight says alone. Each class shrinks by a factor of its own, towards all others: the spread
    then tells the class that the mean told, and readers of more than means find it the more surely.

    >>> from veilrec.eraser import Request
    >>> vectors = torch.tensor([[-1.0], [1.0], [4.0], [6.0]])
    >>> U2U(weight=1.0).forget(vectors, Request({"gender": torch.tensor([0, 0, 1, 1])})).flatten()
    tensor([1.6667, 2.3333, 2.6667, 3.3333])

    Users without a label are left alone.

    Attributes:
        attributes: Those to be forgotten; empty for every one that is asked for, in a run all with classes.
        parts: The parts of the model that hold the vectors; empty for all that have a row a user.
        weight: Of the mean squared distance of pairs, beside that from before; of one attribute beside
            others, that times its own.
    """

    attributes: Sequence[str] = ()
    parts: Sequence[str] = ()
    weight: Amount = 0.1

    def maps(self, groups: Pooled, moments: Moments) -> Params:
        """The minimum: a user's vector over `less`, towards the sums after it of all classes but its own."""
        many, width = moments.users, moments.mean.shape[1]
        pull, less = self._pulls(groups, many)
        members = torch.cat(_members(groups), 1)
        shrunk = many[:, None] * members / less[:, None]
        identity = torch.eye(members.shape[1], dtype=members.dtype)
        sums = torch.linalg.solve(identity - shrunk.T @ pull, shrunk.T @ moments.mean)
        matrix = (1 / less - 1)[:, None, None] * torch.eye(width, dtype=members.dtype)
        return {"matrix": matrix, "shift": pull @ sums / less[:, None]}

    def _pulls(self, groups: Pooled, many: Tensor) -> tuple[Tensor, Tensor]:
        """``[n, classes]`` how much a group is drawn to each user of a class, and ``[n]`` 1 and all that."""
        parts, less = [], torch.ones_like(many)
        for member, weight in zip(_members(groups), groups.weights, strict=True):
            users = many @ member
            pairs = (users.sum().square() - users.square().sum()) / 2
            each = self.weight * weight * many.sum() / pairs if pairs else pairs
            known = member.sum(1)
            parts.append(each * (known[:, None] - member))
            less = less + parts[-1] @ users
        return torch.cat(parts, 1), less


def _members(groups: Pooled) -> list[Tensor]:
    """By attribute, ``[n, classes]`` 1 where a group is in a class."""
    return [
        functional.one_hot(column.clamp(min=0), classes) * (column >= 0)[:, None].double()
        for column, classes in zip(groups.code.T, groups.counts, strict=True)
    ]
