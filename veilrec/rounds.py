"""Rounds: the engine. The loop in `Federation.rounds` is the whole library in one screen."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from veilrec.base.keys import Keys
from veilrec.base.params import Message, Params, Scope, part_of
from veilrec.base.plan import Plan
from veilrec.clients import Clients
from veilrec.defence import Defence
from veilrec.engine import local, private_rows, serving
from veilrec.engine.evaluation import Evaluation, Scored, candidates, evaluate
from veilrec.engine.fused import STEPS, apart, check, read_by, summed
from veilrec.engine.helper_steps import helper_stepper
from veilrec.engine.refusals import refuse
from veilrec.engine.store import Store
from veilrec.engine.workers import Workers, workers
from veilrec.errors import BadInput, ClientFailed
from veilrec.examples import Portion
from veilrec.model import Recommender, begun, told
from veilrec.protocol import Protocol, State
from veilrec.wire import codec
from veilrec.wire.uploads import Exchange, Sent, Uploads

__all__ = ["Federation"]

Watch = Callable[[Exchange], None]
Row = dict[str, float]
Done = tuple[Sent, Uploads, Params]
Trains = Container[str] | None  # the parts of the model that move; None for all


@dataclass(frozen=True)
class Federation:
    """Clients, a model, a protocol and a defence: everything needed to run rounds.

    Make one with `Federation.of`, which lets the defence prepare clients and model first. Its keys are those
    of the seed, or `secret`; what devices have in common from the start is the seed's all the same.
    """

    clients: Clients
    model: Recommender
    protocol: Protocol
    defence: Defence
    plan: Plan
    keys: Keys
    given: Clients  # as they were before `Defence.prepare`: what a real device starts from
    evaluation: Evaluation = field(default_factory=Evaluation)
    split_seed: int = 0
    seed: int = 0

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
    ) -> Federation:
        """A federation after `Defence.prepare`, unless that was done, and `Defence.attach`."""
        keys = secret or Keys.seed(seed)
        given = replace(clients)  # the same tensors, without what is worked out of them on the way
        prepared = defence.prepare(clients, keys.fold("prepare")) if prepare else clients
        model = defence.attach(told(model, prepared))
        here, judge = Keys(keys.value.to(device)), evaluation or Evaluation()
        refuse(prepared, model, protocol, defence, plan, judge)
        return cls(prepared.to(device), model, protocol, defence, plan, here, given, judge, split_seed, seed)

    def start(self, folder: Path | None = None) -> State:
        """The state before the first round; devices' files, if they have any, lie in `folder`."""
        n, device = self.clients.log.n_items, self.keys.value.device
        store = Store.of(self.plan.keeps, len(self.clients), self.fresh, device, folder, rows=n)
        state = self.protocol.start(self.model, store, self.keys.fold("server"))
        return replace(state, server=self._cast(state.server), memory=self._cast(state.memory))

    def run(
        self,
        state: State,
        *,
        rounds: int | None = None,
        trains: Trains = None,
        watch: Sequence[Watch] = (),
    ) -> State:
        """Run rounds from `state` to the end; with `trains`, move only those parts of the model."""
        until = state.round + (self.plan.rounds if rounds is None else rounds)
        for done, _ in self.rounds(state, until=until, trains=trains, watch=watch):
            state = done
        return state

    def rounds(
        self,
        state: State,
        *,
        until: int | None = None,
        trains: Trains = None,
        watch: Sequence[Watch] = (),
        history: Sequence[Row] = (),
    ) -> Iterator[tuple[State, Row]]:
        """Run rounds one by one: after each, the state and a row of what was measured."""
        rows, last = list(history), self.plan.rounds if until is None else until
        together = summed(self, read_by(watch))
        with workers(self.plan.workers) as pool:
            while state.round < last:
                partial: Params = {}
                row, posts = {"round": state.round + 1, "clients": 0, "loss": 0.0}, state.posts
                cohort = self.sample(state.round)
                for sent, uploads, kept in self.work(pool, state, cohort, trains, together):
                    partial = self.protocol.absorb(state, partial, uploads)  # in the order of the chunks
                    state.devices.put(uploads.cohort, kept)
                    posts = posts.merge(uploads.posts)
                    _count(row, uploads)
                    for see in watch:  # the attacker's transcript, the byte counter, the progress bar, …
                        see(Exchange(state.round + 1, sent, uploads))
                state = self.protocol.finish(state, partial, self.keys.fold("finish").fold(state.round))
                state = replace(state, posts=posts)
                row["loss"] /= row["clients"]
                if self.validates and (state.round % self.plan.evaluate_every == 0 or state.round == last):
                    row |= self.evaluate(state, "validation", pool).means()
                rows.append(row)
                yield state, row
                if state.round > self.defence.guards_from and self.defence.stop(state, rows):
                    break

    def sample(self, round: int) -> Tensor:
        """``[c]`` the clients of a round, ascending: a share of those that have events."""
        able = self.able
        n = max(1, int(self.plan.cohort * len(able) + 0.5))  # the nearest whole number
        if n == len(able):
            return able
        draw = self.keys.fold("sample").fold(round).fold(self.clients.tags[able]).value
        return able[draw.topk(n, largest=False).indices].sort().values

    def chunks(self, cohort: Tensor, together: Collection[str] = ()) -> Sequence[Tensor]:
        """Devices of similar size, side by side: the largest first; those that are summed, many at once."""
        sizes = torch.tensor([self.clients.sizes[k] for k in cohort.tolist()])
        sizes, order = sizes.sort(descending=True, stable=True)
        whole = self.defence.whole(self.model) + private_rows.size(self.model) + apart(self.model, together)
        ordered, chunks, done = cohort[order.to(cohort.device)], [], 0
        while done < len(ordered):
            events = STEPS if self.model.dense else int(sizes[done])
            some = self.plan.chunk_on(cohort.device, events, whole)
            chunks.append(ordered[done : done + some])
            done += some
        return chunks

    def client_keys(self, cohort: Tensor, round: int) -> Keys:
        """Each client's own keys for a round, ``[c]``."""
        return self.keys.fold("client").fold(round).fold(self.clients.tags[cohort])

    def evaluate(self, state: State, which: str = "test", pool: Workers | None = None) -> Scored:
        """Per-user metrics of a state on the validation or the test items."""
        if pool is None:
            with workers(self.plan.workers) as fresh:
                return self.evaluate(state, which, fresh)
        score = serving.scorer(self, state, pool)
        return evaluate(self.evaluation, self.clients, which, score, self.candidates, pool)

    def respond(self, sent: Sent, state: State, own: Params, chunk: Tensor, task: local.Task) -> Done:
        """What devices do in a round: draw examples, train, upload; nothing here knows other devices."""
        phase = "drawing examples"
        try:
            keys = self.client_keys(chunk, state.round)
            settings = {"epochs": self.plan.epochs, "negatives": self.plan.negatives}
            portion = Portion.draw(
                self.clients, chunk, keys, **settings, history=self.model.history, dtype=self.plan.dtype
            )
            phase = "training"
            situation = local.Situation(sent, state.posts.values, keys, state.round)
            portion, mine = private_rows.opened(task.model, portion, own)
            trained = local.train(task, portion, situation, mine)
            if not bool(trained.loss.isfinite().all()):
                raise BadInput("plan.lr", "the training loss is not finite", "lower the learning rate")
            phase = "upload"
            uploads = local.upload(task, portion, situation, trained)
            check(uploads, self._schema)
            if uploads.posts.values:
                posts: Message = {**uploads.posts.values}
                codec.check(posts, self._announced, lead=(len(uploads.posts.owner),), sender="post")
        except Exception as cause:
            raise _Failed(phase, chunk, cause) from cause
        return sent, uploads, private_rows.closed(own, portion.known.rows, trained.params | trained.optimiser)

    def work(
        self, pool: Workers, state: State, cohort: Tensor, trains: Trains, together: Collection[str] = ()
    ) -> Iterator[Done]:
        """A cohort's work, chunk by chunk, in order; a failure is traced to a client that fails alone."""

        def begin() -> Iterator[tuple[Tensor, Sent, Params]]:
            for chunk in self.chunks(cohort, together):
                yield chunk, self.protocol.send(state, chunk, self.keys), state.devices.get(chunk)

        def work(part: tuple[Tensor, Sent, Params]) -> Done:
            chunk, sent, own = part
            task = self.task(pool.own(self.model), trains, together)
            return self.respond(sent, state, own, chunk, task)

        try:
            yield from pool.map(work, begin())
        except _Failed as failure:
            raise self._blame(failure, state, trains) from failure.cause

    def _blame(self, failure: _Failed, state: State, trains: Trains) -> ClientFailed:
        """The first client of a failed chunk that also fails by itself."""
        task = self.task(self.model, trains)
        for alone in failure.chunk.split(1):
            sent = self.protocol.send(state, alone, self.keys)
            try:
                self.respond(sent, state, state.devices.get(alone), alone, task)
            except _Failed as found:
                return ClientFailed(self.clients.name(int(alone)), state.round + 1, found.phase, found.cause)
        names = f"one of {len(failure.chunk)}, first {self.clients.name(int(failure.chunk[0]))}"
        return ClientFailed(names, state.round + 1, failure.phase, failure.cause)

    def task(
        self, model: Recommender | None = None, trains: Trains = None, together: Collection[str] = ()
    ) -> local.Task:
        """What devices are asked to do, with this thread's copy of the model."""
        plan, line = self.plan, (model or self.model, self.protocol, self.defence)
        return local.Task(*line, plan.stepper, plan.epochs, plan.batch, trains, together)

    def fresh(self, cohort: Tensor, names: Collection[str] | None = None) -> Params:
        """What devices hold before their first round: their own weights, or some, and optimiser state."""
        keys = self.keys.fold("device").fold(self.clients.tags[cohort])
        drawn = [n for n in self.model.names(Scope.EXPOSED, Scope.PRIVATE) if names is None or n in names]
        common = Keys.seed(self.seed, keys.value.device).fold("alike")
        own = self._cast(begun(self.model, drawn, keys, common) | private_rows.empty(self.model, cohort))
        helper = {n: w for n, w in own.items() if self.model.parts[part_of(n)].helper}
        state = self.plan.stepper.fresh({n: w for n, w in own.items() if n not in helper})
        every = {**own, **state, **helper_stepper(self.defence).fresh(helper)}
        return private_rows.put_away(self.model, every)

    def _cast(self, params: Mapping[str, Tensor]) -> Params:
        return {n: w.to(self.plan.dtype) if w.is_floating_point() else w for n, w in params.items()}

    @cached_property
    def able(self) -> Tensor:
        """``[c]`` the clients that have events."""
        return torch.tensor([k for k, n in enumerate(self.clients.sizes) if n], device=self.keys.value.device)

    @cached_property
    def validates(self) -> bool:
        """Whether anybody has a validation item."""
        return bool((self.clients.validation >= 0).any())

    @cached_property
    def _schema(self) -> codec.Schema:
        return self.protocol.schema(self.model, self.plan.dtype)

    @cached_property
    def _announced(self) -> codec.Schema:
        return self.defence.announce(self.model, self.plan.dtype)

    @cached_property
    def candidates(self) -> Tensor | None:
        """``[users, n]`` the items that everybody's held-out one is ranked among; None for all of them."""
        n = self.evaluation.candidates
        return candidates(self.clients, n, self.split_seed).to(self.keys.value.device) if n else None


class _Failed(Exception):
    """A chunk that could not do its work."""

    def __init__(self, phase: str, chunk: Tensor, cause: Exception) -> None:
        super().__init__(phase)
        self.phase, self.chunk, self.cause = phase, chunk, cause


def _count(row: Row, uploads: Uploads) -> None:
    row["clients"] += len(uploads.cohort)
    if uploads.loss is not None:
        row["loss"] += float(uploads.loss.double().sum())
