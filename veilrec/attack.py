"""The contract of an attack: from what the server saw and a few known labels to scores for everyone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeVar

from torch import Tensor

from veilrec.base.limits.bounds import hold
from veilrec.base.names import GRANTS
from veilrec.base.params import Scope, part_of
from veilrec.model import Recommender
from veilrec.wire.codec import Schema, Spec, weights
from veilrec.wire.transcript import Transcript
from veilrec.wire.uploads import Exchange

__all__ = ["GRANTS", "Attack", "Granted", "Public", "Seen", "Task"]

T = TypeVar("T")


@dataclass(frozen=True)
class Public:
    """The method itself, which the server's operator knows without any upload.

    Attributes:
        model: The architecture; its weights mean nothing.
        schema: What one device may upload.
        gradients: Whether devices send gradients of the SHARED parts, or their trained weights.
        rate: The one local rate of plain SGD in a single step; None where an update is not a multiple of it.
        seats: ``[clients, seats]`` which user sits where, -1 for an empty seat.
        n_users: How many users there are.
        features: The names of the columns that the model reads of each user, if it reads any.
        device: The device on which an attacker computes, which is the federation's.
        plain: True if devices step by plain SGD, at one rate or at one for each part.
        draws: The number of untouched items that a device draws for each of its events in a round.
    """

    model: Recommender
    schema: Schema
    gradients: bool
    rate: float | None
    seats: Tensor
    n_users: int
    features: Sequence[str] = ()
    device: str = "cpu"
    plain: bool = False
    draws: int = 1

    @property
    def weights(self) -> dict[str, Spec]:
        """What is uploaded of the model: its weights, or their gradients; other values are none of them."""
        return {name: s for name, s in weights(self.schema).items() if part_of(name) in self.model.parts}

    @property
    def vectors(self) -> list[str]:
        """The weights that have a row per user and are uploaded as they are, not as a gradient."""
        parts = {name: self.model.parts[part_of(name)] for name in self.weights}
        bare = {name for name, part in parts.items() if part.scope is Scope.EXPOSED or not self.gradients}
        return [name for name, part in parts.items() if part.rows == "user" and name in bare]

    @property
    def withheld(self) -> list[str]:
        """The weights that have a row per user, are never uploaded, and do not help a defence."""
        parts = {name: self.model.parts[part_of(name)] for name in self.model.names()}
        return [n for n, p in parts.items() if p.rows == "user" and p.scope is Scope.PRIVATE and not p.helper]

    @property
    def tables(self) -> list[str]:
        """The item tables that each device keeps as its own."""
        parts = {name: self.model.parts[part_of(name)] for name in self.model.names()}
        return [n for n, p in parts.items() if p.rows == "item" and p.scope is Scope.PRIVATE and not p.helper]


@dataclass(frozen=True)
class Granted:
    """Knowledge beyond the transcript that a threat model names; None for what it does not grant.

    Attributes:
        interactions: ``[e]`` users and ``[e]`` items, the training events.
        user_vectors: ``[users, dim]`` what stands for each user.
        withheld: ``[users, d]`` what each device keeps of its user and never uploads.
        tables: From some users ``[n]`` to ``[n, items, d]``, their own item tables: for few at a time.
        lists: ``[users, k]`` the items that each user is shown; -1 where there are fewer.
        former_vectors: ``[users, dim]`` what stood for each user before an erasure.
    """

    interactions: tuple[Tensor, Tensor] | None = None
    user_vectors: Tensor | None = None
    withheld: Tensor | None = None
    tables: Callable[[Tensor], Tensor] | None = None
    lists: Tensor | None = None
    former_vectors: Tensor | None = None


class Seen:
    """The evidence of an attacker: the transcript, the public facts of the method, and what is granted.

    Attributes:
        public: What everybody knows of the method; None where there is no federation.
        granted: What the threat model grants beyond the transcript.
        kept: The rounds of training that were kept, if any.
        columns: The names of the vectors' columns, where there is no federation and they have any.
    """

    def __init__(
        self,
        public: Public | None,
        probe: Callable[..., Iterator[Exchange]],
        granted: Granted | None = None,
        kept: Transcript | None = None,
        columns: Sequence[str] = (),
    ) -> None:
        self.public, self.granted, self.kept, self.columns = public, granted or Granted(), kept, columns
        self._probe = probe
        self._read: dict[Any, Any] = {}

    @classmethod
    def of_vectors(cls, vectors: Tensor, columns: Sequence[str] = ()) -> Seen:
        """The evidence of an outsider who holds a vector of every user, ``[users, dim]``, and nothing else.

        >>> import torch
        >>> seen = Seen.of_vectors(torch.zeros(3, 8))
        >>> seen.public is None, seen.granted.user_vectors.shape
        (True, torch.Size([3, 8]))
        """
        return cls.of_granted(Granted(user_vectors=vectors), columns)

    @classmethod
    def of_granted(cls, granted: Granted, columns: Sequence[str] = ()) -> Seen:
        """The evidence of an outsider who was given something of every user, and saw no upload."""
        return cls(None, lambda *parts: iter(()), granted, columns=columns)

    def probe(self, parts: Collection[str] | None = None, again: int = 0) -> Iterator[Exchange]:
        """The probe round, chunk by chunk: every client once, on the selected state, after every defence.

        Whoever names the parts that it will look at, even none, may be shown no others: a large model's
        uploads are long to make one by one. `again` is the number of a further upload from the same state,
        for which devices draw anew.
        """
        if again:
            return self._probe(parts, again)
        return self._probe() if parts is None else self._probe(parts)

    def cached(self, key: Any, read: Callable[[], T]) -> T:
        """The result of `read`, computed once and returned again to every later caller with the same key."""
        if key not in self._read:
            self._read[key] = read()
        found: T = self._read[key]
        return found


class Task(NamedTuple):
    """One attribute to infer.

    >>> import torch
    >>> Task(known=torch.tensor([1, -1, 0]), classes=2, attribute="gender").labelled
    tensor([0, 2])

    Attributes:
        known: ``[users]`` the labels the attacker has, -1 for all others; of a continuous attribute the
            values as floats, NaN for all others.
        classes: How many classes there are; 0 for a continuous attribute.
        seed: The seed of the attack's own draws.
        attribute: The attribute's name.
    """

    known: Tensor
    classes: int
    seed: int = 0
    attribute: str = ""

    @property
    def labelled(self) -> Tensor:
        """``[k]`` the users whose label is known."""
        there = ~self.known.isnan() if self.known.is_floating_point() else self.known >= 0
        return there.nonzero().squeeze(1)


class Attack(ABC):
    """An attack reads what was seen and the known labels and nothing else; it cannot import the data.

    Attributes:
        learns: Whether it learns from the known labels. Where no attack does, the known users have no part in
            any, and the verdict goes by who is furthest from chance on the targets.
        oracle: True where the attack uses what no real attacker has, and every table must say so.
        kept: Whether it reads the rounds of training that were kept, and not the probe; `keeps` says what.
    """

    learns: ClassVar[bool] = False
    oracle: ClassVar[bool] = False
    kept: bool = False

    def __post_init__(self) -> None:
        """Hold the numbers among its options against their bounds; who overrides this calls it first."""
        hold(self, "attack")

    @property
    def family(self) -> str:
        """The kind of attacker; the verdict takes the worst of several families."""
        return "other"

    @abstractmethod
    def infer(self, seen: Seen, task: Task) -> Tensor:
        """Score every class for every user, ``[users, classes]``; of a continuous attribute, ``[users, 1]``.

        Scores rather than labels, because a threshold is somebody else's choice; the guess is the highest.
        """

    def infer_all(self, seen: Seen, tasks: Sequence[Task]) -> list[Tensor]:
        """`infer` for many tasks; override it where doing them together is faster."""
        return [self.infer(seen, task) for task in tasks]

    def stages(self, seen: Seen, task: Task) -> Tensor:
        """``[stages, users, classes]`` the scores while the attack learns, for an oracle to choose from."""
        return self.infer(seen, task)[None]

    def unfold(self) -> Mapping[str, Attack]:
        """The attacks that this entry stands for, by a name for each; most entries stand for one."""
        return {"": self}

    def refuses(self, public: Public | None, grants: Collection[str]) -> str:
        """The reason why the attack cannot read such a federation at all, found before training; or ""."""
        return ""

    def table(self, seen: Seen) -> tuple[str, Tensor] | None:
        """The reading that it learns from, by name, ``[users, width]``; None if it makes no such table."""
        return None

    def answers(self, seen: Seen, task: Task) -> bool:
        """True if the attack can score such a task at all."""
        return task.classes > 0

    def keeps(self, seen: Seen, task: Task) -> Collection[str]:
        """The weights that it reads in the rounds of training that were kept; most attacks read none."""
        return ()

    def components(self, seen: Seen, task: Task) -> Mapping[str, Tensor]:
        """The terms of the scores, by name, ``[users, classes]``; the judge keeps the true class's."""
        return {}

    def notes(self, seen: Seen) -> dict[str, Any]:
        """Facts that a table prints beside the scores: the width of what was read, what was lost, …"""
        return {}
