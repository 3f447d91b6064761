"""A trial: a few of the largest devices work and are judged once, and what they take tells what many will.

Nothing of it is kept: devices are as they begin, nobody's store is touched, and no draw of the run changes.
Memory grows with the devices in a chunk along a straight line, so that one and three of them are enough.
Where a device would take many steps, it takes some in larger batches, and what those cost more is taken off.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from veilrec.attack import Seen
from veilrec.attacks.common.readings import Reading, read
from veilrec.base.keys import Keys
from veilrec.base.params import KEPT, ROW, Params
from veilrec.base.plan import Plan
from veilrec.engine import serving
from veilrec.engine.evaluation import BLOCK
from veilrec.engine.in_process import InProcess
from veilrec.engine.probe import see
from veilrec.engine.respond import Answer, Chunk, respond
from veilrec.protocol import State, ignore
from veilrec.rounds import Federation
from veilrec.runs.needs.live import Grown, grown
from veilrec.wire.uploads import Fold, Letter, Posts

__all__ = ["Line", "Read", "Round", "Tryout"]

FEW = 3  # devices of the larger trial
STEPS = 8  # local steps of a trial, at most


class Line(NamedTuple):
    """Bytes that grow with the number of devices.

    Attributes:
        base: Those of nobody in particular.
        each: Those of each device.
    """

    base: float
    each: float

    def of(self, devices: int) -> int:
        """The bytes of so many."""
        return int(max(0.0, self.base + self.each * devices))

    @classmethod
    def through(cls, one: int, many: int, devices: int) -> Line:
        """The line through what one device takes, and what so many do."""
        each = (many - one) / (devices - 1) if devices > 1 else float(one)
        return cls(one - each, each)


class Round(NamedTuple):
    """What a chunk takes: at work, as an answer, while that is folded; and the step of the server."""

    work: Line
    answer: Line
    fold: Line
    finish: int


class Read(NamedTuple):
    """What an attacker's reading takes while it is made, and the columns it comes to have."""

    making: Line
    width: int


class Tryout:
    """Trials of a federation.

    Args:
        federation: What is tried.
        rows: How many rows of item tables of its own a device is taken to keep.
    """

    def __init__(self, federation: Federation, rows: int = 0) -> None:
        self.federation, self.rows = federation, rows
        fleet = federation.fleet
        assert isinstance(fleet, InProcess)
        plan = replace(fleet.plan, workers=1, keeps="memory", chunk=FEW, epochs=1)
        self.fleet: InProcess = replace(fleet, plan=plan)
        begun = federation.server.start(federation.keys.fold("server"))
        self.state = replace(begun, round=self._round(), posts=self._posts())

    def chunk(self, clients: Tensor, together: Collection[str] = ()) -> Round:
        """What a chunk of such clients ``[c]`` takes, the largest first."""
        plan, events = self.federation.plan, self.fleet.clients.sizes[int(clients[0])]
        batch = max(plan.batch, -(-events // STEPS))
        tried = replace(self.fleet.plan, batch=batch)
        some, one = clients[:FEW], clients[:1]
        self._respond(one, tried, together)  # what is worked out once, and kept, is no device's
        answer, first = self._respond(one, tried, together)
        answers, more = self._respond(some, tried, together)
        work = Line.through(first.most, more.most, len(some))
        if batch > plan.batch:
            _, wider = self._respond(one, replace(tried, batch=2 * batch), together)
            slope = max(0.0, (wider.most - first.most) / batch)
            each = max(work.each / 4, work.each - slope * (batch - plan.batch))
            work = work._replace(each=each)
        if plan.epochs > 1:
            _, longer = self._respond(one, replace(tried, epochs=2), together)
            work = work._replace(each=work.each + (longer.most - first.most) * (plan.epochs - 1))
        return Round(work, Line.through(first.left, more.left, len(some)), *self._folded([answer, answers]))

    def look(self, clients: Tensor) -> Line:
        """What it takes to rank the held-out items of such clients ``[c]``."""

        def judged(some: Tensor) -> int:
            shard = self._shard(some)
            return grown(lambda: shard.fleet.evaluate(shard.at(self.state), "test"))[1].most

        return self._along(judged, clients)

    @property
    def at_once(self) -> int:
        """The clients that one thread judges at a time."""
        block = max(1, BLOCK // self.fleet.clients.n_seats)
        return min(block, serving.at_once(self.fleet) or block)

    def reading(
        self, clients: Tensor, grants: Sequence[str], reads: str, parts: Sequence[str], columns: int
    ) -> Read:
        """What it takes to make a reading of such clients' uploads."""
        made: list[Reading] = []

        def work(some: Tensor) -> int:
            shard = self._shard(some)

            def look() -> Seen:
                seen = see(shard, self.state, grants)
                made.append(read(seen, reads, parts, columns))
                return seen

            return grown(look)[1].most

        making = self._along(work, clients)
        return Read(making, made[-1].features.shape[1])

    def _along(self, work: Callable[[Tensor], int], clients: Tensor) -> Line:
        some = clients[:FEW]
        return Line.through(work(some[:1]), work(some), len(some))

    def _respond(self, some: Tensor, plan: Plan, together: Collection[str]) -> tuple[Answer, Grown]:
        fleet = replace(self.fleet, plan=plan)
        letter = self._letter(some)
        task, schema = fleet.task(together=together), fleet.schema(letter)
        keys = fleet.client_keys(some, letter.round)
        chunk = Chunk(fleet.clients, some, letter, self._kept(some), keys, fleet.first_keys(some))
        return grown(lambda: (fleet.body or respond)(task, chunk, schema, fleet.announced))

    def _letter(self, some: Tensor) -> Letter:
        return self.federation.letter(self.state, self.fleet.clients.number[some])

    def _kept(self, some: Tensor) -> Params:
        """What devices hold late in a run: as they begin, with so many rows of tables of their own."""
        kept = self.fleet.fresh(some)
        if ROW not in kept or not self.rows:
            return kept
        row = torch.arange(self.rows, device=some.device).expand(len(some), -1).contiguous()
        wide = {
            n: v.new_zeros(len(some), self.rows, *v.shape[2:])
            for n, v in kept.items()
            if n[: len(KEPT)] == KEPT
        }
        return {**kept, **wide, ROW: row}

    def _folded(self, answers: Sequence[Answer]) -> tuple[Line, int]:
        """What folding takes, and the server's step with what was folded."""
        fleet, found = self.fleet, []
        for answer in answers:
            letter, uploads = self._letter(answer.uploads.cohort), answer.uploads
            partial, took = grown(lambda: fleet.protocol.fold(fleet.model, letter, {}, uploads))  # noqa: B023
            found.append(took.most)
        fold = Fold(partial, Posts.none(), {"clients": 1, "loss": 0.0})
        keys = self.federation.keys.fold("finish")
        step = grown(lambda: self.federation.server.finish(self.state, fold, keys, ignore))[1].most
        return Line.through(found[0], found[-1], len(answers[-1].uploads.cohort)), step

    def _shard(self, clients: Tensor) -> Federation:
        """A federation of some clients, which are all that there are."""
        few = self.fleet.clients.only(clients.sort().values)
        count = torch.arange(len(few)), torch.arange(few.log.n_users)
        few = replace(few, number=count[0].to(clients.device), people=count[1].to(clients.device))
        return replace(self.federation, fleet=replace(self.fleet, clients=few, given=few))

    def _round(self) -> int:
        """A round in which all that a defence does is done."""
        defence = self.federation.defence
        every, after = defence.helpers.every, max(defence.guards_from, defence.helpers.after)
        return -(-after // every) * every

    def _posts(self) -> Posts:
        """Posts of everybody who would post, with anything in them."""
        posting = self.federation.defence.posts(self.fleet.model)
        if posting is None:
            return Posts.none()
        owner = posting.willing(self.fleet.clients.consents).flatten().nonzero().squeeze(1)
        keys = Keys.seed(0, owner.device).fold(owner)
        values = {
            name: keys.fold(name).normal(*spec.shape).to(spec.dtype)
            if spec.dtype.is_floating_point
            else owner.new_zeros(len(owner), *spec.shape).to(spec.dtype)
            for name, spec in self.fleet.announced.items()
        }
        return Posts(owner, values) if len(owner) else Posts.none()


def size_of(state: State) -> int:
    """The bytes of all that a server remembers."""
    values = [*state.server.values(), *state.memory.values(), state.posts.owner, *state.posts.values.values()]
    return sum(value.untyped_storage().nbytes() for value in values)
