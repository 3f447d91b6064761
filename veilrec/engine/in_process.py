"""A fleet in this process: all its devices, in chunks that share the cores."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from veilrec.base.keys import Keys
from veilrec.base.params import Params, Scope, part_of
from veilrec.base.plan import Plan
from veilrec.clients import Batch, Clients
from veilrec.defence import Defence
from veilrec.engine import fused, helper_steps, serving
from veilrec.engine.devices import private_rows
from veilrec.engine.devices.store import Store
from veilrec.engine.evaluation import Evaluation, Scored, evaluate
from veilrec.engine.fleet import ONE_BY_ONE, Fleet, Terms, Trains, Watch
from veilrec.engine.groups import Groups, check
from veilrec.engine.local import Task
from veilrec.engine.refusals import refuse
from veilrec.engine.respond import Answer, Chunk, Failed, Respond, respond
from veilrec.engine.workers import Workers, workers
from veilrec.eraser import VectorEraser, erased
from veilrec.errors import ClientFailed, no_memory
from veilrec.model import Recommender, begun, with_classes
from veilrec.protocol import Counterpart, Protocol
from veilrec.wire.uploads import Exchange, Finder, Fold, Letter, Posts, Uploads

__all__ = ["InProcess", "found"]

BLOCK = 256  # devices that are changed at a time


@dataclass(kw_only=True)
class InProcess(Fleet):
    """All devices in this process.

    Make one with `InProcess.of`, which lets the defence prepare clients and model first. Its keys are those
    of the seed, or secret; what devices have in common from the start is the seed's all the same.

    Attributes:
        given: The clients as they were before `Defence.prepare`: what a real device starts from.
        seed: Of what devices have in common.
        body: How a chunk of devices responds, where not by the reference.
    """

    given: Clients
    seed: int = 0
    body: Respond | None = None

    def __post_init__(self) -> None:
        self._pool: Workers | None = None

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
        model = defence.attach(with_classes(model, prepared))
        here, judge = Keys(keys.value.to(device)), evaluation or Evaluation()
        refuse(prepared, model, protocol, defence, plan, judge)
        return cls(
            clients=prepared.to(device),
            model=model,
            protocol=protocol,
            defence=defence,
            plan=plan,
            keys=here,
            evaluation=judge,
            split_seed=split_seed,
            given=given,
            seed=seed,
        )

    @cached_property
    def devices(self) -> Store:
        """The store of what the devices hold."""
        return self._begun()

    def begin(self, folder: Path | None = None) -> None:
        self.devices = self._begun(folder)

    def _begun(self, folder: Path | None = None) -> Store:
        n, device = self.clients.log.n_items, self.keys.value.device
        return Store.of(self.plan.keeps, len(self.clients), self.fresh, device, folder, rows=n)

    def gather(self) -> InProcess:
        return self

    def spread(self) -> None:
        pass

    def shard(self, clients: Tensor) -> InProcess:
        """A fleet of some of the clients ``[c]``, ascending, which draws for them what this one would."""
        return replace(self, clients=self.clients.only(clients), given=self.given.only(clients.cpu()))

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

    def round(self, letter: Letter, cohort: Tensor, terms: Terms = ONE_BY_ONE) -> Fold:
        forwards, watch, trains = terms
        clients = torch.searchsorted(self.clients.number, cohort)
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

    def probe(
        self, letter: Letter, read: Collection[str] | None = None, again: int = 0
    ) -> Iterator[Exchange]:
        keys, schema = self.keys.fold("probe"), self.schema(letter)
        with self.working() as pool:
            for chunk, answer in self.work(
                pool, letter, self.able, keys.fold(again) if again else keys, read=read
            ):
                yield Exchange(letter.round + 1, chunk.letter, answer.uploads, schema)

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
        """The first client of a failed chunk that also fails by itself; nobody where memory ran out."""
        task, schema = self.task(self.model, trains), self.schema(letter)
        for alone in failure.chunk.split(1) if not no_memory(failure.cause) else ():
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
        whole = self.beside + own + fused.apart(model, together)
        ordered, chunks, done = cohort[order.to(cohort.device)], [], 0
        while done < len(ordered):
            events = fused.STEPS if model.dense else int(sizes[done])
            some = self.plan.chunk_on(cohort.device, events, whole)
            chunks.append(ordered[done : done + some])
            done += some
        return chunks

    @cached_property
    def beside(self) -> int:
        """The values that a device holds for the defence: its networks, and tables that go up whole."""
        declared = self.defence.declares(self.model, self.protocol)
        tables = {m.name: m.coordinates for m in declared if m.rows == "all" and m.table is not None}
        return sum(tables.values()) + helper_steps.size(self.model)

    def erase(self, eraser: VectorEraser, keys: Keys) -> None:
        for some in self.devices.clients().split(BLOCK):
            tags = self.clients.tags[some]
            self.devices.put(some, erased(eraser, self.devices.get(some), keys.fold("device"), tags))

    def evaluate(self, server: Counterpart, which: str = "test", judge: Evaluation | None = None) -> Scored:
        judge = judge or self.evaluation
        with self.working() as pool:
            score, among = serving.scorer(self, server, pool), self.candidates(judge)
            return evaluate(judge, self.clients, which, score, among, pool)

    def client_keys(self, cohort: Tensor, round: int, keys: Keys | None = None) -> Keys:
        """Each client's own keys for a round, ``[c]``."""
        return (keys or self.keys).fold("client").fold(round).fold(self.clients.tags[cohort])

    def first_keys(self, cohort: Tensor) -> Keys:
        """Each client's own keys for what it begins with, ``[c]``."""
        return self.keys.fold("device").fold(self.clients.tags[cohort])

    def task(
        self, model: Recommender | None = None, trains: Trains = None, together: Collection[str] = ()
    ) -> Task:
        """A task for the devices, with a thread's own copy of the model."""
        return Task(model or self.model, self.protocol, self.defence, self.plan, trains, together)

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

    def everything(self, cohort: Tensor) -> Batch:
        """A batch of some devices' users, with all items in the place of a local table."""
        rows = torch.arange(self.clients.log.n_items, device=cohort.device)
        return self.clients.batch(cohort, history=self.model.history, rows=rows, dtype=self.plan.dtype)


def found(watches: Sequence[Watch]) -> Mapping[str, Params]:
    """Findings so far, by tag, of the watches that find something."""
    return {watch.tag: watch.state() for watch in watches if isinstance(watch, Finder)}


def _count(row: dict[str, float], uploads: Uploads) -> None:
    row["clients"] += len(uploads.cohort)
    if uploads.loss is not None:
        row["loss"] += float(uploads.loss.double().sum())
