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
from typing import Any, NamedTuple

import torch
from torch import Tensor

from veilrec.base.keys import Keys
from veilrec.base.params import Params, Scope, part_of
from veilrec.base.plan import Forwards, Plan
from veilrec.clients import Batch, Clients
from veilrec.defence import Defence
from veilrec.engine import helper_steps
from veilrec.engine.devices import private_rows
from veilrec.engine.devices.kept import Devices
from veilrec.engine.devices.store import Store
from veilrec.engine.evaluation import Evaluation, Scored, candidates, check_candidates
from veilrec.engine.local import LocalTask
from veilrec.eraser import VectorEraser, erased
from veilrec.model import Recommender, begun
from veilrec.protocol import Counterpart, Protocol, Shape
from veilrec.wire import codec
from veilrec.wire.codec import Schema
from veilrec.wire.halves import Form
from veilrec.wire.uploads import Exchange, Fold, Letter

__all__ = ["ONE_BY_ONE", "Fleet", "Roster", "Terms", "Trains", "Watch"]

BLOCK = 256  # devices whose values are changed at a time
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
        given: The clients as they were before `Defence.prepare`: what a real device starts from.
        seed: Of what devices have in common.
    """

    clients: Clients
    given: Clients
    model: Recommender
    protocol: Protocol
    defence: Defence
    plan: Plan
    keys: Keys
    evaluation: Evaluation = field(default_factory=Evaluation)
    split_seed: int = 0
    seed: int = 0

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
    def working(self) -> AbstractContextManager[Any]:
        """A while in which the fleet has its threads at hand, so that a round need not start any."""

    @property
    @abstractmethod
    def devices(self) -> Devices:
        """What the devices hold, for checkpoints and for attackers with a grant; it stays where it lies."""

    @abstractmethod
    def touched(self, letter: Letter, cohort: Tensor) -> Tensor:
        """``[c]`` how many items each of some clients will touch in answer to a letter, by its draws."""

    @abstractmethod
    def floor(self, judge: Evaluation | None = None, counts: Tensor | None = None) -> Scored:
        """Per-user metrics of popularity on the test items, among the same candidates.

        ``counts [items]`` say how many users touched each item in training; by default, of this fleet's.
        """

    def erase(self, eraser: VectorEraser, keys: Keys) -> None:
        """Change what the devices that took part hold, some at a time."""
        for some in self.devices.clients().split(BLOCK):
            tags = self.clients.tags[some]
            self.devices.put(some, erased(eraser, self.devices.get(some), keys.fold("device"), tags))

    def empty(self, folder: Path | None = None) -> Store:
        """A store in which no device has taken part yet; its files, if it has any, lie in `folder`."""
        n, items = len(self.clients), self.clients.log.n_items
        return Store.of(self.plan.keeps, n, self.fresh, self.keys.value.device, folder, rows=items)

    @cached_property
    def able(self) -> Tensor:
        """``[c]`` the clients that have events."""
        return torch.tensor([k for k, n in enumerate(self.clients.sizes) if n], device=self.keys.value.device)

    @cached_property
    def counts(self) -> Tensor:
        """``[items]`` how many users touched each item in training."""
        return torch.bincount(self.clients.log.item, minlength=self.clients.log.n_items)

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

    @property
    def form(self) -> Form:
        """The form of a letter to devices of this fleet."""
        return Form(self.protocol.letter(self.model, self.plan.dtype), self.announced)

    def check_candidates(self) -> None:
        """Refuse more candidates than somebody has untouched items, before any are drawn."""
        if self.evaluation.candidates:
            check_candidates(self.clients, self.evaluation.candidates)

    def candidates(self, judge: Evaluation | None = None) -> Tensor | None:
        """``[users, n]`` the items that everybody's held-out one is ranked among; None for all of them."""
        n = (judge or self.evaluation).candidates
        if n and n not in self._candidates:
            self._candidates[n] = candidates(self.clients, n, self.split_seed).to(self.keys.value.device)
        return self._candidates[n] if n else None

    def client_keys(self, cohort: Tensor, round: int, keys: Keys | None = None) -> Keys:
        """Each client's own keys for a round, ``[c]``."""
        return (keys or self.keys).fold("client").fold(round).fold(self.clients.tags[cohort])

    def first_keys(self, cohort: Tensor) -> Keys:
        """Each client's own keys for what it begins with, ``[c]``."""
        return self.keys.fold("device").fold(self.clients.tags[cohort])

    def task(
        self, model: Recommender | None = None, trains: Trains = None, together: Collection[str] = ()
    ) -> LocalTask:
        """A task for the devices, with a thread's own copy of the model."""
        return LocalTask(model or self.model, self.protocol, self.defence, self.plan, trains, together)

    def fresh(self, cohort: Tensor, names: Collection[str] | None = None) -> Params:
        """Weights and optimiser state that devices hold before their first round: all, or those named."""
        drawn = [n for n in self.model.names(Scope.EXPOSED, Scope.PRIVATE) if names is None or n in names]
        common = Keys.seed(self.seed, self.keys.value.device).fold("alike")
        first = begun(self.model, drawn, self.first_keys(cohort), common)
        own = self.shape.cast(first | private_rows.empty(self.model, cohort))
        helper = {n: w for n, w in own.items() if self.model.parts[part_of(n)].helper}
        state = self.plan.stepper.fresh({n: w for n, w in own.items() if n not in helper})
        every = {**own, **state, **helper_steps.helper_stepper(self.defence).fresh(helper)}
        return private_rows.put_away(self.model, every)

    def whole(self, cohort: Tensor, names: Collection[str]) -> Params:
        """Weights that some devices hold, ``[c, …]``, with their own item tables whole: for few at a time."""
        return private_rows.whole(self.model, self.devices, cohort, names, self.first_keys(cohort))

    def everything(self, cohort: Tensor, which: str = "validation") -> Batch:
        """A batch of some devices' users, with all items in the place of a local table.

        For the ``test`` of a model that goes by what came last, histories end with the validation item.
        """
        rows = torch.arange(self.clients.log.n_items, device=cohort.device)
        later = self.clients.validation[cohort] if self.model.ordered and which == "test" else None
        length, dtype = self.model.history, self.plan.dtype
        return self.clients.batch(cohort, history=length, rows=rows, dtype=dtype, later=later)

    @cached_property
    def _candidates(self) -> dict[int, Tensor]:
        return {}
