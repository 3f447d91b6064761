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
from veilrec.base.params import Params
from veilrec.base.plan import Plan
from veilrec.clients import Clients
from veilrec.defence import Defence
from veilrec.engine import fused, helper_steps, serving
from veilrec.engine.devices import private_rows
from veilrec.engine.devices.store import Store
from veilrec.engine.evaluation import Evaluation, Scored, evaluate, popularity
from veilrec.engine.fleet import ONE_BY_ONE, Fleet, Terms, Trains, Watch
from veilrec.engine.groups import Groups, check
from veilrec.engine.refusals import refuse
from veilrec.engine.respond import Answer, Chunk, Failed, Respond, drawn, respond
from veilrec.engine.workers import Workers, workers
from veilrec.errors import ClientFailed, no_memory
from veilrec.model import Recommender, with_classes
from veilrec.protocol import Counterpart, Protocol
from veilrec.wire.uploads import Exchange, Finder, Fold, Letter, Posts, Uploads

__all__ = ["InProcess", "found"]


@dataclass(kw_only=True)
class InProcess(Fleet):
    """All devices in this process.

    Make one with `InProcess.of`, which lets the defence prepare clients and model first. Its keys are those
    of the seed, or secret; what devices have in common from the start is the seed's all the same.

    Attributes:
        body: How a chunk of devices responds, where not by the reference.
    """

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

    @classmethod
    def part(
        cls,
        clients: Clients,
        model: Recommender,
        protocol: Protocol,
        defence: Defence,
        plan: Plan,
        *,
        seed: int = 0,
        evaluation: Evaluation | None = None,
        device: str = "cpu",
        split_seed: int = 0,
    ) -> InProcess:
        """A part of a fleet that another process has made: that one has prepared the clients, and refused."""
        keys = Keys.seed(seed)
        return cls(
            clients=clients.to(device),
            given=clients,
            model=defence.attach(with_classes(model, clients)),
            protocol=protocol,
            defence=defence,
            plan=plan,
            keys=Keys(keys.value.to(device)),
            evaluation=evaluation or Evaluation(),
            split_seed=split_seed,
            seed=seed,
        )

    @cached_property
    def devices(self) -> Store:
        """The store of what the devices hold."""
        return self.empty()

    def begin(self, folder: Path | None = None) -> None:
        self.devices = self.empty(folder)

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

    def train_alone(self, letter: Letter, clients: Tensor, trains: Trains) -> None:
        """Train some of the clients here ``[c]``, ascending, and keep what comes of it: nothing leaves."""
        with self.working() as pool:
            for chunk, answer in self.work(pool, letter, clients, self.keys, trains):
                self.devices.put(chunk.cohort, answer.kept)

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

    def touched(self, letter: Letter, cohort: Tensor) -> Tensor:
        clients = torch.searchsorted(self.clients.number, cohort)
        found = torch.zeros_like(clients)
        for some in self.chunks(clients):
            examples = drawn(self.task(), self.chunk(letter, clients, some, self.keys))
            found[torch.searchsorted(clients, some)] = (examples.known.rows >= 0).sum(1)
        return found

    def evaluate(self, server: Counterpart, which: str = "test", judge: Evaluation | None = None) -> Scored:
        judge = judge or self.evaluation
        with self.working() as pool:
            score, among = serving.scorer(self, server, pool, which), self.candidates(judge)
            return evaluate(judge, self.clients, which, score, among, pool)

    def floor(self, judge: Evaluation | None = None, counts: Tensor | None = None) -> Scored:
        judge, clients = judge or self.evaluation, self.clients
        score = popularity(self.counts if counts is None else counts, clients.n_seats)
        with self.working() as pool:
            return evaluate(judge, clients, "test", score, self.candidates(judge), pool)


def found(watches: Sequence[Watch]) -> Mapping[str, Params]:
    """Findings so far, by tag, of the watches that find something."""
    return {watch.tag: watch.state() for watch in watches if isinstance(watch, Finder)}


def _count(row: dict[str, float], uploads: Uploads) -> None:
    row["clients"] += len(uploads.cohort)
    if uploads.loss is not None:
        row["loss"] += float(uploads.loss.double().sum())
