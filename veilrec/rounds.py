"""Rounds: the loop in `Federation.rounds` is the whole library in one screen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor

from veilrec.base.keys import Keys
from veilrec.base.plan import Plan
from veilrec.clients import Clients
from veilrec.defence import Defence
from veilrec.engine.evaluation import Evaluation, Scored
from veilrec.engine.fleet import Fleet, Roster, Terms, Trains, Watch
from veilrec.engine.groups import check
from veilrec.engine.in_process import InProcess
from veilrec.eraser import VectorEraser, erased
from veilrec.model import Recommender
from veilrec.protocol import Counterpart, Protocol, Pulse, Server, State, counterpart, ignore
from veilrec.wire.uploads import Letter

__all__ = ["Federation", "sample"]

Row = dict[str, float]


@dataclass(frozen=True)
class Federation:
    """A server and a fleet: everything needed to run rounds. Make one with `Federation.of`.

    Attributes:
        fleet: Who runs the devices, and holds what they keep.
        server: The protocol's other half; what changes of it lies in `State`.
    """

    fleet: Fleet
    server: Server

    @classmethod
    def of(
        cls,
        clients: Clients,
        model: Recommender,
        protocol: Protocol,
        defence: Defence,
        plan: Plan,
        **rest: Any,
    ) -> Federation:
        """A federation of all clients in this process; the rest is that of `InProcess.of`.

        Raises:
            BadInput: Where settings cannot work together, or sums would be over too few devices.
        """
        fleet = InProcess.of(clients, model, protocol, defence, plan, **rest)
        check(plan.forwards, plan.smallest(len(fleet.able)))
        return cls(fleet, protocol.make_server(fleet.shape))

    def start(self, folder: Path | None = None) -> State:
        """The state before the first round, and devices that have not begun; their files lie in `folder`."""
        self.fleet.begin(folder)
        return self.server.start(self.keys.fold("server"))

    def run(
        self, state: State, *, rounds: int | None = None, trains: Trains = None, watch: Sequence[Watch] = ()
    ) -> State:
        """Run rounds from `state` to the end; with `trains`, move only those parts of the model."""
        until = state.round + (self.last if rounds is None else rounds)
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
        pulse: Pulse = ignore,
    ) -> Iterator[tuple[State, Row]]:
        """Run rounds one by one: after each, the state and a row of what was measured."""
        rows, last = list(history), self.last if until is None else until
        with self.fleet.working(), closing(self.server):
            while state.round < last:
                cohort = sample(self.plan, self.keys, self.fleet.roster, state.round)
                letter = self.server.send(state, cohort, self.keys)
                fold = self.fleet.round(letter, cohort, Terms(self.plan.forwards, watch, trains))
                keys = self.keys.fold("finish").fold(state.round)
                state = self.server.finish(state, fold, keys, pulse)
                state = replace(state, posts=state.posts.merge(fold.posts))
                row = {"round": state.round, **fold.row}
                row["loss"] /= row["clients"]
                if self.fleet.validates and (state.round % self.look_every == 0 or state.round == last):
                    row |= self.evaluate(state, "validation").means()
                rows.append(row)
                yield state, row
                if state.round > self.defence.guards_from and self.defence.stop(state, rows):
                    break

    def erase(self, state: State, eraser: VectorEraser, keys: Keys) -> State:
        """A finished state after an eraser; what devices hold is changed where it lies."""
        keys = keys.fold("posthoc")
        self.fleet.erase(eraser, keys)
        return replace(state, server=erased(eraser, state.server, keys.fold("server")))

    def evaluate(self, state: State, which: str = "test", judge: Evaluation | None = None) -> Scored:
        """Per-user metrics of a state on the validation or the test items."""
        return self.fleet.evaluate(self.at(state), which, judge)

    def at(self, state: State) -> Counterpart:
        """The server in a state, as devices meet it."""
        return counterpart(self.server, state, self.keys)

    def letter(self, state: State, cohort: Tensor) -> Letter:
        """The letter of the server to some clients in a state."""
        return self.server.send(state, cohort, self.keys)

    def sample(self, round: int) -> Tensor:
        """``[c]`` the clients of a round, ascending."""
        return sample(self.plan, self.keys, self.fleet.roster, round)

    @cached_property
    def last(self) -> int:
        """The round after which training ends, where nothing ends it earlier."""
        return self.plan.last(len(self.able))

    @cached_property
    def look_every(self) -> int:
        """Rounds between two looks at the validation items."""
        return self.plan.evaluate_every * self.plan.unit(len(self.able))

    @property
    def clients(self) -> Clients:
        """All devices' data, after `Defence.prepare`."""
        return self.fleet.clients

    @property
    def model(self) -> Recommender:
        """The architecture on the devices, after `Defence.attach`."""
        return self.fleet.model

    @property
    def protocol(self) -> Protocol:
        """The protocol: what crosses the wire."""
        return self.fleet.protocol

    @property
    def defence(self) -> Defence:
        """The defence, or the chain of defences."""
        return self.fleet.defence

    @property
    def plan(self) -> Plan:
        """The plan: how much work, and in what portions."""
        return self.fleet.plan

    @property
    def keys(self) -> Keys:
        """The keys from which all randomness is drawn."""
        return self.fleet.keys

    @property
    def evaluation(self) -> Evaluation:
        """The evaluation by which lists are judged."""
        return self.fleet.evaluation

    @property
    def able(self) -> Tensor:
        """``[c]`` the clients that have events."""
        return self.fleet.able


def sample(plan: Plan, keys: Keys, roster: Roster, round: int) -> Tensor:
    """``[c]`` the numbers of a round's clients, ascending: a share of those that have events.

    Drawn anew for each round, or dealt: in a pass everybody once, in an order of the pass's own.
    """
    able, n = roster.able, plan.size(len(roster.able))
    if n == len(able):
        return able
    draw = keys.fold("sample")
    if plan.order == "sample":
        lot = draw.fold(round).fold(roster.tags[able]).value
        return able[lot.topk(n, largest=False).indices].sort().values
    turns = -(-len(able) // n)
    lot = draw.fold("pass").fold(round // turns).fold(roster.tags[able]).value
    begin = (round % turns) * n
    return able[lot.argsort(stable=True)[begin : begin + n]].sort().values
