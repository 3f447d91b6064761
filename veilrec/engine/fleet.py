"""The fleet: whoever runs the devices. The loop knows it by `Fleet.round` alone.

Stores, chunks, threads and other machines are behind it. `InProcess` holds all devices in this process;
`engine.shards` puts several fleets together.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
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
from veilrec.engine import fused, private_rows, serving
from veilrec.engine.evaluation import Evaluation, Scored, candidates, evaluate
from veilrec.engine.groups import Groups, check
from veilrec.engine.helper_steps import helper_stepper
from veilrec.engine.local import Task
from veilrec.engine.refusals import refuse
from veilrec.engine.respond import Answer, Chunk, Failed, Respond, respond
from veilrec.engine.store import Store
from veilrec.engine.workers import Workers, workers
from veilrec.eraser import VectorEraser, erased
from veilrec.errors import ClientFailed
from veilrec.model import Recommender, begun, told
from veilrec.protocol import Counterpart, Protocol, Shape
from veilrec.wire import codec
from veilrec.wire.codec import Schema
from veilrec.wire.uploads import Exchange, Finder, Fold, Letter, Posts, Uploads

__all__ = ["Fleet", "InProcess", "Roster", "Trains", "Watch"]

BLOCK = 256  # devices that are changed at a time
Watch = Callable[[Exchange], None]
Trains = Container[str] | None  # the parts of the model that move; None for all


class Roster(NamedTuple):
    """Who there is to be asked, as far as a server has to know it.

    Attributes:
        tags: ``[clients]`` a hash of each client's name, in the order of the whole log.
        able: ``[c]`` the numbers of those that have events.
    """

    tags: Tensor
    able: Tensor


class Fleet(ABC):
    """Whoever runs the devices, and holds what they keep."""

    @property
    @abstractmethod
    def roster(self) -> Roster:
        """Who there is to be asked."""

    @abstractmethod
    def round(
        self,
        letter: Letter,
        cohort: Tensor,
        forwards: Forwards = "each",
        watch: Sequence[Watch] = (),
        trains: Trains = None,
    ) -> Fold:
        """One round of some clients ``[c]``, ascending, from their letter to the fold of what they sent.

        Args:
            letter: What they receive.
            cohort: Their numbers in the whole log.
            forwards: What leaves the devices' side: each upload, sums over so many devices, or one sum. What
                passes between fleets that are one (`engine.shards`) has not left it.
            watch: What looks at the uploads, where the devices are.
            trains: The parts of the model that move.
        """

    @abstractmethod
    def evaluate(self, server: Counterpart, which: str = "test", judge: Evaluation | None = None) -> Scored:
        """Per-user metrics of a server's state on the validation or the test items."""

    @abstractmethod
    def working(self) -> AbstractContextManager[Any]:
        """A while in which the fleet has its threads at hand, so that a round need not start any."""


@dataclass
class InProcess(Fleet):
    """All devices in this process, in chunks that share the cores.

    Make one with `InProcess.of`, which lets the defence prepare clients and model first. Its keys are those
    of the seed, or secret; what devices have in common from the start is the seed's all the same.

    Attributes:
        clients: Their data, after `Defence.prepare`.
        model, protocol, defence, plan: What they run.
        keys: What all randomness of the run is drawn from.
        given: The clients as they were before `Defence.prepare`: what a real device starts from.
        evaluation: How lists are judged.
        split_seed, seed: Of the candidates; of what devices have in common.
        body: How a chunk of devices responds, where not by the reference.
    """

    clients: Clients
    model: Recommender
    protocol: Protocol
    defence: Defence
    plan: Plan
    keys: Keys
    given: Clients
    evaluation: Evaluation = field(default_factory=Evaluation)
    split_seed: int = 0
    seed: int = 0
    body: Respond | None = None

    def __post_init__(self) -> None:
        self._pool: Workers | None = None
        self._devices: Store | None = None

    @classmethod
    def of(
        cls,
        clients: Clients,
        model: Recommender,
        protocol: Protocol,
        defence: Defence,
        plan: Plan,
        *,
        seed: int = 0,
        secret: Keys | None = None,
        evaluation: Evaluation | None = None,
        device: str = "cpu",
        split_seed: int = 0,
        prepare: bool = True,
    ) -> InProcess:
        """A fleet after `Defence.prepare`, unless that was done, and `Defence.attach`."""
        keys = secret or Keys.seed(seed)
        given = replace(clients)  # the same tensors, without what is worked out of them on the way
        prepared = defence.prepare(clients, keys.fold("prepare")) if prepare else clients
        model = defence.attach(told(model, prepared))
        here, judge = Keys(keys.value.to(device)), evaluation or Evaluation()
        refuse(prepared, model, protocol, defence, plan, judge)
        return cls(prepared.to(device), model, protocol, defence, plan, here, given, judge, split_seed, seed)

    @property
    def devices(self) -> Store:
        """What the devices hold."""
        return self.begin() if self._devices is None else self._devices

    @devices.setter
    def devices(self, store: Store) -> None:
        self._devices = store

    def begin(self, folder: Path | None = None) -> Store:
        """Devices as they are before the first round; their files, if they have any, lie in `folder`."""
        n, device = self.clients.log.n_items, self.keys.value.device
        self._devices = Store.of(self.plan.keeps, len(self.clients), self.fresh, device, folder, rows=n)
        return self._devices

    def shard(self, clients: Tensor) -> InProcess:
        """A fleet of some of the clients ``[c]``, ascending, which draws for them what this one would."""
        return replace(self, clients=self.clients.only(clients), given=self.given.only(clients.cpu()))

    @cached_property
    def roster(self) -> Roster:
        return Roster(self.clients.tags, self.clients.number[self.able])

    @property
    def shape(self) -> Shape:
        """What a server for this fleet is made from."""
        return Shape(self.model, int(self.clients.number.max()) + 1, self.plan.dtype)

    @contextmanager
    def working(self) -> Iterator[Workers]:
        """A while in which the threads are there; within another one, the same threads."""
        if self._pool is not None:
            yield self._pool
            return
        with workers(self.plan.workers) as pool:
            self._pool = pool
            try:
                yield pool
            finally:
                self._pool = None

    def round(
        self,
        letter: Letter,
        cohort: Tensor,
        forwards: Forwards = "each",
        watch: Sequence[Watch] = (),
        trains: Trains = None,
    ) -> Fold:
        clients = self._places(cohort)
        if forwards != "all":  # of which a part may be here, and the rest in other shards
            check(forwards, len(cohort))
        row, posts = dict[str, float](clients=0, loss=0.0), Posts.none()
        groups = Groups(
            forwards, lambda p, u: self.protocol.fold(self.model, letter, p, u), self.protocol.merge
        )
        schema, read = self.schema(letter), fused.read_by(watch) if isinstance(forwards, str) else None
        with self.working() as pool:
            for chunk, answer in self.work(pool, letter, clients, self.keys, trains, read):
                uploads = answer.uploads
                groups.take(uploads)  # in the order of the chunks
                self.devices.put(chunk.cohort, answer.kept)
                posts = posts.merge(uploads.posts)
                _count(row, uploads)
                for see in watch:  # the attacker's transcript, the byte counter, the progress bar, …
                    see(Exchange(letter.round + 1, chunk.letter, uploads, schema))
        sizes = groups.done()
        return Fold(groups.partial, posts, row, found(watch), sizes)

    def work(
        self,
        pool: Workers,
        letter: Letter,
        clients: Tensor,
        keys: Keys,
        trains: Trains = None,
        read: Collection[str] | None = None,
    ) -> Iterator[tuple[Chunk, Answer]]:
        """A cohort's work, chunk by chunk, in order; a failure is traced to a client that fails alone.

        `read` are the weights that somebody looks at device by device; None for all.
        """
        together = fused.summed(self.task(), self.clients.sizes, read)
        schema = self.schema(letter)

        def begin() -> Iterator[Chunk]:
            for some in self.chunks(clients, together):
                yield self.chunk(letter, clients, some, keys)

        def work(chunk: Chunk) -> tuple[Chunk, Answer]:
            task = self.task(pool.own(self.model), trains, together)
            return chunk, (self.body or respond)(task, chunk, schema, self.announced)

        try:
            yield from pool.map(work, begin())
        except Failed as failure:
            raise self._blame(failure, letter, clients, keys, trains) from failure.cause

    def chunk(self, letter: Letter, clients: Tensor, some: Tensor, keys: Keys) -> Chunk:
        """Some clients of a cohort at the beginning of a round."""
        mine = letter if not letter.each else letter.only(torch.searchsorted(clients, some))
        own = self.client_keys(some, letter.round, keys)
        return Chunk(self.clients, some, mine, self.devices.get(some), own, self.first_keys(some))

    def _blame(
        self, failure: Failed, letter: Letter, clients: Tensor, keys: Keys, trains: Trains
    ) -> ClientFailed:
        """The first client of a failed chunk that also fails by itself."""
        task, schema = self.task(self.model, trains), self.schema(letter)
        for alone in failure.chunk.split(1):
            try:
                (self.body or respond)(task, self.chunk(letter, clients, alone, keys), schema, self.announced)
            except Failed as found:
                name = self.clients.name(int(alone))
                return ClientFailed(name, letter.round + 1, found.phase, found.cause)
        names = f"one of {len(failure.chunk)}, first {self.clients.name(int(failure.chunk[0]))}"
        return ClientFailed(names, letter.round + 1, failure.phase, failure.cause)

    def chunks(self, cohort: Tensor, together: Collection[str] = ()) -> Sequence[Tensor]:
        """Devices of similar size, side by side: the largest first; those that are summed, many at once."""
        sizes = torch.tensor([self.clients.sizes[k] for k in cohort.tolist()])
        sizes, order = sizes.sort(descending=True, stable=True)
        model, own = self.model, private_rows.size(self.model)
        whole = self.defence.whole(model) + own + fused.apart(model, together)
        ordered, chunks, done = cohort[order.to(cohort.device)], [], 0
        while done < len(ordered):
            events = fused.STEPS if model.dense else int(sizes[done])
            some = self.plan.chunk_on(cohort.device, events, whole)
            chunks.append(ordered[done : done + some])
            done += some
        return chunks

    def erase(self, eraser: VectorEraser, keys: Keys) -> None:
        """Change what the devices that took part hold, on the devices."""
        for some in self.devices.clients().split(BLOCK):
            tags = self.clients.tags[some]
            self.devices.put(some, erased(eraser, self.devices.get(some), keys.fold("device"), tags))

    def evaluate(self, server: Counterpart, which: str = "test", judge: Evaluation | None = None) -> Scored:
        judge = judge or self.evaluation
        with self.working() as pool:
            score, among = serving.scorer(self, server, pool), self.candidates(judge)
            return evaluate(judge, self.clients, which, score, among, pool)

    def candidates(self, judge: Evaluation | None = None) -> Tensor | None:
        """``[users, n]`` the items that everybody's held-out one is ranked among; None for all of them."""
        n = (judge or self.evaluation).candidates
        if n and n not in self._candidates:
            self._candidates[n] = candidates(self.clients, n, self.split_seed).to(self.keys.value.device)
        return self._candidates[n] if n else None

    @cached_property
    def _candidates(self) -> dict[int, Tensor]:
        return {}

    def client_keys(self, cohort: Tensor, round: int, keys: Keys | None = None) -> Keys:
        """Each client's own keys for a round, ``[c]``."""
        return (keys or self.keys).fold("client").fold(round).fold(self.clients.tags[cohort])

    def first_keys(self, cohort: Tensor) -> Keys:
        """Each client's own keys for what it begins with, ``[c]``."""
        return self.keys.fold("device").fold(self.clients.tags[cohort])

    def task(
        self, model: Recommender | None = None, trains: Trains = None, together: Collection[str] = ()
    ) -> Task:
        """What devices are asked to do, with a thread's own copy of the model."""
        return Task(model or self.model, self.protocol, self.defence, self.plan, trains, together)

    def fresh(self, cohort: Tensor, names: Collection[str] | None = None) -> Params:
        """What devices hold before their first round: their own weights, or some, and optimiser state."""
        drawn = [n for n in self.model.names(Scope.EXPOSED, Scope.PRIVATE) if names is None or n in names]
        common = Keys.seed(self.seed, self.keys.value.device).fold("alike")
        first = begun(self.model, drawn, self.first_keys(cohort), common)
        own = self.shape.cast(first | private_rows.empty(self.model, cohort))
        helper = {n: w for n, w in own.items() if self.model.parts[part_of(n)].helper}
        state = self.plan.stepper.fresh({n: w for n, w in own.items() if n not in helper})
        every = {**own, **state, **helper_stepper(self.defence).fresh(helper)}
        return private_rows.put_away(self.model, every)

    def whole(self, cohort: Tensor, names: Collection[str]) -> Params:
        """Weights that some devices hold, ``[c, …]``, with their own item tables whole: for few at a time."""
        return private_rows.whole(self.model, self.devices, cohort, names, self.first_keys(cohort))

    def everything(self, cohort: Tensor) -> Batch:
        """What is known of some devices, with all items in the place of a local table."""
        rows = torch.arange(self.clients.log.n_items, device=cohort.device)
        return self.clients.batch(cohort, history=self.model.history, rows=rows, dtype=self.plan.dtype)

    def schema(self, letter: Letter | None = None) -> Schema:
        """What one device may upload in answer to a letter.

        Raises:
            BadInput: Where that is more than the protocol declares without one, by which a ledger goes.
        """
        found = self.protocol.schema(self.model, letter, self.plan.dtype)
        if letter is not None:
            codec.within(found, self.schema())
        return found

    @cached_property
    def query_schema(self) -> Schema:
        """What one device may ask with."""
        return self.protocol.query_schema(self.model, self.plan.dtype)

    @cached_property
    def able(self) -> Tensor:
        """``[c]`` the clients that have events."""
        return torch.tensor([k for k, n in enumerate(self.clients.sizes) if n], device=self.keys.value.device)

    @cached_property
    def validates(self) -> bool:
        """Whether anybody has a validation item."""
        return bool((self.clients.validation >= 0).any())

    def _places(self, cohort: Tensor) -> Tensor:
        """Which clients of this fleet have the given numbers, ascending both."""
        return torch.searchsorted(self.clients.number, cohort)

    @cached_property
    def announced(self) -> Schema:
        """What one user may post."""
        return self.defence.announce(self.model, self.plan.dtype)


def found(watches: Sequence[Watch]) -> Mapping[str, Params]:
    """What watches have found so far, of those that find something, by their tags."""
    return {watch.tag: watch.state() for watch in watches if isinstance(watch, Finder)}


def _count(row: dict[str, float], uploads: Uploads) -> None:
    row["clients"] += len(uploads.cohort)
    if uploads.loss is not None:
        row["loss"] += float(uploads.loss.double().sum())
