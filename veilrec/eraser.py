"""The contract of an eraser: what makes a finished model forget, after training and without going through it.

A defence acts while a model is trained; an eraser is given what training has left. There are four kinds.
A `VectorEraser` changes what each holder has by itself, and asks nobody. An `AttributeEraser` makes users'
vectors forget attributes that a `Request` names; as a `SumEraser` (`erasers/common/sums.py`) it learns what
to do from sums over users alone, which silos and devices add up among them. These work on a run, and on
vectors from anywhere (`erasers/common/arrays.py`). A `RoundEraser` (`erasers/common/rounds.py`) takes rounds
in which clients train, and works on a run alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from torch import Tensor

from veilrec.base.draws import Draws
from veilrec.base.keys import Keys
from veilrec.base.limits.bounds import hold
from veilrec.base.params import KEPT, Params, Scope, part_of
from veilrec.errors import BadInput, nearest
from veilrec.model import Recommender

__all__ = [
    "AttributeEraser",
    "Eraser",
    "Request",
    "VectorEraser",
    "erased",
]


class Eraser(ABC):
    """A method applied to the selected state of a run. A subclass is a frozen dataclass of its options."""

    def __post_init__(self) -> None:
        """Hold the numbers among its options against their bounds; who overrides this calls it first."""
        hold(self, "eraser")

    @property
    @abstractmethod
    def changes(self) -> Collection[str]:
        """The parts of the model that it changes; empty for all that stand for a user."""

    def check(self, model: Recommender) -> None:
        """Refuse a model that lacks what is to be changed.

        Raises:
            BadInput: With the nearest name of a part.
        """
        for part in self.changes:
            if part not in model.parts:
                fix = nearest(part, model.parts)
                raise BadInput("eraser.parts", f'the model has no part "{part}"', fix)


class VectorEraser(Eraser):
    """An eraser that changes each holder's vectors without asking anybody else."""

    @abstractmethod
    def erase(self, name: str, vectors: Tensor, keys: Keys) -> Tensor:
        """Change vectors, and return as many of the same length.

        Args:
            name: The weight.
            vectors: The server's ``[…]``, or with one row for each device ``[c, …]``.
            keys: The server's, or each device's own ``[c]``.
        """


def erased(eraser: VectorEraser, values: Params, keys: Keys, tags: Tensor | None = None) -> Params:
    """Weights by name after an eraser: the server's, or with `tags` those of some devices ``[c, …]``.

    Of item tables of a device's own, the rows that it keeps are changed; all others are as they began.
    """
    found = dict(values)
    for name, value in values.items():
        weight = name.removeprefix(KEPT)
        if part_of(weight) in eraser.changes and value.is_floating_point():
            own = keys.fold(name) if tags is None else keys.fold(name).fold(tags)
            found[name] = eraser.erase(weight, value, own)
    return found


@dataclass(frozen=True)
class Request:
    """What shall be forgotten, and of whom.

    Of four users the second did not tell a gender, and the first two ask:

    >>> gender, asks = torch.tensor([0, -1, 1, 1]), torch.tensor([True, True, False, False])
    >>> request = Request({"gender": gender}, asks=asks)
    >>> request.users, request.count("gender"), request.counts_in("gender")
    (4, 2, tensor([ True, False, False, False]))

    Attributes:
        labels: By attribute, ``[users]`` classes, -1 unknown.
        classes: By attribute, the number of its classes, where that is more than the labels show.
        asks: ``[users]`` who asks; None for everybody. No other vector is changed, to the bit.
        lends: ``[users]`` whose vectors and labels an eraser may learn from that needs no label of those who
            ask; None for those who ask. One that needs their labels learns from nobody else.
        weights: By attribute, how much it counts where several are traded against each other; else 1.
        tags: ``[users]`` hashes of the users' ids, by which each has draws of its own; None for their order.
    """

    labels: Mapping[str, Tensor]
    classes: Mapping[str, int] = field(default_factory=dict)
    asks: Tensor | None = None
    lends: Tensor | None = None
    weights: Mapping[str, float] = field(default_factory=dict)
    tags: Tensor | None = None

    def __post_init__(self) -> None:
        if not self.labels:
            raise BadInput("request", "names no attribute", "say which one shall be forgotten")
        for name, column in {**self.labels, **self._columns}.items():
            if column is not None and column.shape != (self.users,):
                what = f"{name} has shape {list(column.shape)}, and there are {self.users} users"
                raise BadInput("request", what, "give one value a user")
        for name, label in self.labels.items():
            if label.is_floating_point() or (self.users and int(label.min()) < -1):
                fix = "number classes from 0; -1 is unknown"
                raise BadInput(f"request.{name}", "labels that are no classes", fix)

    @property
    def users(self) -> int:
        """How many users there are, those who do not ask among them."""
        return len(next(iter(self.labels.values())))

    def count(self, name: str) -> int:
        """The number of classes of an attribute."""
        highest = int(self.labels[name].max()) if self.users else -1
        return max(self.classes.get(name, 0), highest + 1)

    @property
    def moves(self) -> Tensor:
        """``[users]`` who asks."""
        return torch.ones(self.users, dtype=torch.bool) if self.asks is None else self.asks

    def counts_in(self, name: str, *, aware: bool = False) -> Tensor:
        """``[users]`` who is learned from; by an eraser that is `aware` of labels, those who ask alone."""
        who = self.moves if aware or self.lends is None else self.lends
        return who & (self.labels[name] >= 0)

    def only(self, names: Sequence[str]) -> Request:
        """The same of some attributes; of all, where none is named.

        Raises:
            BadInput: Where one is not among them.
        """
        for name in names:
            if name not in self.labels:
                fix = nearest(name, self.labels)
                raise BadInput("eraser.attributes", f'there is no attribute "{name}"', fix)
        return replace(self, labels={name: self.labels[name] for name in names or self.labels})

    def of(self, users: Tensor) -> Request:
        """The part of it that concerns some users: what one holder of several knows."""
        own = {name: None if v is None else v[users] for name, v in self._columns.items()}
        counts = {name: self.count(name) for name in self.labels}
        labels = {name: label[users] for name, label in self.labels.items()}
        return Request(labels, counts, own["asks"], own["lends"], self.weights, self.own_tags[users])

    @property
    def _columns(self) -> dict[str, Tensor | None]:
        return {"asks": self.asks, "lends": self.lends, "tags": self.tags}

    @property
    def own_tags(self) -> Tensor:
        """``[users]`` the hashes of their ids, or their numbers."""
        return torch.arange(self.users) if self.tags is None else self.tags


@dataclass(frozen=True)
class AttributeEraser(Eraser):
    """An eraser that makes the vectors of users forget attributes.

    Attributes:
        attributes: Those to be forgotten; empty for every one that is asked for, in a run all with classes.
        parts: The parts of the model that hold the vectors; empty for all that have a row a user.
    """

    needs_labels: ClassVar[bool] = False  # of those whose vectors change; who did not tell is left alone
    exact: ClassVar[bool] = False  # classes become equal in what it looks at: what leaks is then turned round

    attributes: Sequence[str] = ()
    parts: Sequence[str] = ()

    @property
    def changes(self) -> Collection[str]:
        return self.parts

    @property
    def secret(self) -> bool:
        """Whether it draws what nobody may ever repeat."""
        return False

    @abstractmethod
    def transform(self, vectors: Tensor, request: Request, draws: Draws) -> Tensor:
        """``[users, width]`` vectors in float64 after it; rows that may not change are put back."""

    def forget(self, vectors: Tensor, request: Request, draws: Draws | None = None) -> Tensor:
        """``[users, width]`` vectors after it, in the type that they had.

        Args:
            vectors: One row a user, all finite.
            request: What shall be forgotten of whom; of its attributes those of this eraser.
            draws: Where it draws from; None for the operating system.

        Raises:
            BadInput: Where vectors and request do not fit.
        """
        request = request.only(self.attributes)
        if vectors.dim() != 2 or len(vectors) != request.users:
            what = f"vectors of shape {list(vectors.shape)} for {request.users} users"
            raise BadInput("vectors", what, "give one row a user")
        if not bool(vectors.isfinite().all()):
            raise BadInput("vectors", "a value is not finite", "leave that user out")
        moved = self.transform(vectors.double(), request, draws or Draws())
        return torch.where(self.moved(request)[:, None], moved.to(vectors.dtype), vectors)

    def moved(self, request: Request) -> Tensor:
        """``[users]`` whose vectors it may change."""
        if not self.needs_labels:
            return request.moves
        told = torch.stack([label >= 0 for label in request.labels.values()]).any(0)
        return request.moves & told

    def refusal(self, request: Request) -> str | None:
        """Why those who ask are too few for it, in some words; None where they are enough.

        Nothing refuses by itself: `forget` does what it is told, and whoever takes requests asks first.
        """
        return None

    def check(self, model: Recommender) -> None:
        super().check(model)
        self.weights(model)

    def weights(self, model: Recommender) -> list[str]:
        """The weights of a model that together are the vector of a user.

        Raises:
            BadInput: Where there are none, or where more than they stands for a user.
        """
        name = type(model).__name__
        own = {n: p for n, p in model.parts.items() if p.scope is not Scope.SHARED and not p.helper}
        rows = [part for part, about in own.items() if about.rows == "user"]
        tables = [part for part, about in own.items() if about.rows == "item"]
        if not rows:
            what = f"{name} holds no vector of a user's own: it makes one of shared weights and the log"
            raise BadInput("eraser", what, "choose a model with user vectors, such as FedMF")
        for part in self.parts:
            if part not in rows:
                what = f'the part "{part}" of {name} has no row for each user'
                raise BadInput("eraser.parts", what, nearest(part, rows))
        if tables and not self.parts:
            what = f"{name} keeps a table of items for each user ({tables[0]}), which would go on telling"
            raise BadInput("eraser", what, "choose a model with user vectors alone, or name the parts")
        return [weight for weight in model.names() if part_of(weight) in (self.parts or rows)]
