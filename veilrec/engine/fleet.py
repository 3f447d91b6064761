"""The fleet: whoever runs the devices. The loop knows it by `Fleet.round` alone.

Stores, chunks, threads and other machines are behind it. `engine.in_process` has all devices in this process;
`engine.shards` puts several fleets together.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Container, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from veilrec.base.keys import Keys
from veilrec.base.plan import Forwards, Plan
from veilrec.clients import Clients
from veilrec.defence import Defence
from veilrec.engine.evaluation import Evaluation, Scored, candidates, evaluate, popularity
from veilrec.engine.workers import workers
from veilrec.eraser import VectorEraser
from veilrec.model import Recommender
from veilrec.protocol import Counterpart, Protocol, Shape
from veilrec.wire import codec
from veilrec.wire.codec import Schema
from veilrec.wire.uploads import Exchange, Fold, Letter

if TYPE_CHECKING:
    from veilrec.engine.in_process import InProcess

__all__ = ["ONE_BY_ONE", "Fleet", "Roster", "Terms", "Trains", "Watch"]

Watch = Callable[[Exchange], None]
Trains = Container[str] | None  # the parts of the model that move; None for all


class Roster(NamedTuple):
    """The clients of a fleet, as far as a server has to know them.

    Attributes:
        tags: ``[clients]`` a hash of each client's name, in the order of the whole log.
        able: ``[c]`` the numbers of those that have events.
    """

    tags: Tensor
    able: Tensor


class Terms(NamedTuple):
    """Terms of a round beside its letter and its cohort.

    Attributes:
        forwards: What leaves the devices' side: each upload, sums over so many devices, or one sum. What
            passes between fleets that are one (`engine.shards`) has not left it.
        watch: What looks at the uploads, where the devices are.
        trains: The parts of the model that move.
    """

    forwards: Forwards = "each"
    watch: Sequence[Watch] = ()
    trains: Trains = None


ONE_BY_ONE = Terms()  # each upload leaves, nobody looks, and everything moves


@dataclass(kw_only=True)
class Fleet(ABC):
    """The side of the devices: it runs them, and holds what they keep.

    Attributes:
        clients: Their data, after `Defence.prepare`.
        model, protocol, defence, plan: What they run.
        keys: What all randomness of the run is drawn from.
        evaluation: How lists are judged.
        split_seed: Of the candidates.
    """

    clients: Clients
    model: Recommender
    protocol: Protocol
    defence: Defence
    plan: Plan
    keys: Keys
    evaluation: Evaluation = field(default_factory=Evaluation)
    split_seed: int = 0

    @abstractmethod
    def begin(self, folder: Path | None = None) -> None:
        """Devices as they are before the first round; their files, if they have any, lie in `folder`."""

    @abstractmethod
    def round(self, letter: Letter, cohort: Tensor, terms: Terms = ONE_BY_ONE) -> Fold:
        """One round of some clients, from the letter that they receive to the fold of what they sent.

        `cohort [c]` are their numbers in the whole log, ascending.
        """

    @abstractmethod
    def probe(
        self, letter: Letter, read: Collection[str] | None = None, again: int = 0
    ) -> Iterator[Exchange]:
        """Probe all clients that have events: what they would send; they keep nothing of it.

        `read` are the weights that somebody looks at; with `again`, draws are others.
        """

    @abstractmethod
    def evaluate(self, server: Counterpart, which: str = "test", judge: Evaluation | None = None) -> Scored:
        """Per-user metrics of a server's state on the validation or the test items."""

    @abstractmethod
    def erase(self, eraser: VectorEraser, keys: Keys) -> None:
        """Change what the devices that took part hold, on the devices."""

    @abstractmethod
    def working(self) -> AbstractContextManager[Any]:
        """A while in which the fleet has its threads at hand, so that a round need not start any."""

    @abstractmethod
    def gather(self) -> InProcess:
        """All devices in this process with what they hold, for checkpoints and attackers with a grant."""

    @abstractmethod
    def spread(self) -> None:
        """Give devices what the store of `gather` holds now, where they are."""

    @cached_property
    def able(self) -> Tensor:
        """``[c]`` the clients that have events."""
        return torch.tensor([k for k, n in enumerate(self.clients.sizes) if n], device=self.keys.value.device)

    @cached_property
    def validates(self) -> bool:
        """Whether any user of the fleet has a validation item."""
        return bool((self.clients.validation >= 0).any())

    @cached_property
    def roster(self) -> Roster:
        """The clients that can be asked."""
        return Roster(self.clients.tags, self.clients.number[self.able])

    @property
    def shape(self) -> Shape:
        """The model and the numbers from which a server for this fleet is made."""
        return Shape(self.model, int(self.clients.number.max()) + 1, self.plan.dtype)

    def schema(self, letter: Letter | None = None) -> Schema:
        """The schema of one device's upload in answer to a letter.

        Raises:
            BadInput: Where that is more than the protocol declares without one, by which a ledger goes.
        """
        found = self.protocol.schema(self.model, letter, self.plan.dtype)
        if letter is not None:
            codec.within(found, self.schema())
        return found

    @cached_property
    def announced(self) -> Schema:
        """The schema of one user's post."""
        posting = self.defence.posts(self.model, self.plan.dtype)
        return {} if posting is None else posting.schema

    def candidates(self, judge: Evaluation | None = None) -> Tensor | None:
        """``[users, n]`` the items that everybody's held-out one is ranked among; None for all of them."""
        n = (judge or self.evaluation).candidates
        if n and n not in self._candidates:
            self._candidates[n] = candidates(self.clients, n, self.split_seed).to(self.keys.value.device)
        return self._candidates[n] if n else None

    def floor(self, judge: Evaluation | None = None) -> Scored:
        """Per-user metrics of popularity on the test items, among the same candidates."""
        judge, among = judge or self.evaluation, self.candidates(judge)
        with workers(self.plan.workers) as pool:
            return evaluate(judge, self.clients, "test", popularity(self.clients), among, pool)

    @cached_property
    def _candidates(self) -> dict[int, Tensor]:
        return {}
