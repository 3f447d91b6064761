"""Erasing: what erasers do to a finished state, and where the secrets of it lie meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from veilrec.base.draws import Draws
from veilrec.base.keys import Keys
from veilrec.base.params import Params, Scope, part_of
from veilrec.base.plan import Plan
from veilrec.engine.fleet import Fleet, Roster, Terms
from veilrec.engine.in_process import InProcess
from veilrec.eraser import AttributeEraser, Eraser, Request, VectorEraser
from veilrec.erasers.common.rounds import Present, RoundEraser
from veilrec.errors import BadInput
from veilrec.interactions import Interactions, id_hashes
from veilrec.model import overrides
from veilrec.protocol import Protocol, State, ignore
from veilrec.rounds import Federation, sample
from veilrec.wire import codec
from veilrec.wire.traffic import Traffic

__all__ = ["Told", "applied", "check_rounds", "forgotten", "request_of", "user_vectors"]

BLOCK = 256  # devices that are changed at a time
Told = list[dict[str, Any]]
"""What is said of erasers that took rounds: how many, whether vectors came to rest, and bytes up and down."""


def applied(
    federation: Federation,
    state: State,
    eraser: Eraser,
    data: Interactions,
    keys: Keys,
    kept: Path,
    told: Told | None = None,
) -> State:
    """A finished state after an eraser; what devices hold is changed where it lies.

    Of one that takes rounds, a line is added to what is `told`.

    Secret draws lie in the file `kept`, for its owner only, from before the first vector changes: if this is
    done again, after a crash, nothing is drawn anew.

    Raises:
        BadInput: Where nothing calls for such an eraser.
    """
    if isinstance(eraser, VectorEraser):
        return federation.erase(state, eraser, keys)
    if not isinstance(eraser, AttributeEraser):
        what = f"{type(eraser).__name__} is no eraser that a run can apply"
        raise BadInput("eraser", what, "derive it from VectorEraser or AttributeEraser")
    if isinstance(eraser, RoundEraser):
        check_rounds(federation, eraser)
        erasing = InRounds.of(federation, eraser, data, keys)
        state, line = erasing.run(state)
        if told is not None:
            told.append(line)
        return state
    fleet = federation.fleet
    users, vectors = user_vectors(fleet, eraser.weights(fleet.model))
    request = request_of(data, eraser, users)
    draws = Draws.at(kept, vectors) if eraser.secret else Draws(keys)
    forgotten(fleet, eraser, users, eraser.forget(vectors, request, draws), eraser.moved(request))
    return state


def request_of(data: Interactions, eraser: AttributeEraser, users: Tensor | None = None) -> Request:
    """A request for all users of a log, or some: the eraser's attributes, or all that have classes.

    Raises:
        BadInput: Where there are none, or none of that name.
    """
    if not data.attributes:
        raise BadInput("eraser.attributes", f"{data.name} has no attribute with classes", "choose other data")
    who = torch.arange(data.n_users) if users is None else users
    counts = {name: len(names) for name, names in data.classes.items()}
    labels = {name: label[who] for name, label in data.attributes.items()}
    return Request(labels, counts, tags=id_hashes(data.user_ids)[who]).only(eraser.attributes)


def user_vectors(fleet: Fleet, weights: list[str]) -> tuple[Tensor, Tensor]:
    """``[n]`` the users whose devices ever took part, and ``[n, width]`` the vector of each.

    They come by the number of the device, wherever it lives and whenever it began.
    """
    users, rows = [], []
    for some in fleet.devices.clients().sort().values.split(BLOCK):
        seats = fleet.clients.seats[some]
        held = fleet.devices.get(some, weights)
        flat = torch.cat([held[name].reshape(*seats.shape, -1) for name in weights], -1)
        users.append(seats[seats >= 0].cpu())
        rows.append(flat[seats >= 0].cpu())
    return torch.cat(users), torch.cat(rows)


def forgotten(fleet: Fleet, eraser: AttributeEraser, users: Tensor, vectors: Tensor, moved: Tensor) -> None:
    """Give devices the vectors after an eraser, and forget how those that changed were stepped before."""
    weights, place = eraser.weights(fleet.model), torch.full((int(users.max()) + 1,), -1)
    place[users] = torch.arange(len(users))
    for some in fleet.devices.clients().split(BLOCK):
        held, seats = fleet.devices.get(some), fleet.clients.seats[some].cpu()
        taken = seats >= 0
        row = place[seats.clamp(min=0)]
        changed = taken & moved[row]
        _put(held, weights, vectors[row], changed)
        for count in [held[f"t/{name}"] for name in weights if f"t/{name}" in held]:
            count[(changed == taken).all(1).to(count.device)] = 0
        fleet.devices.put(some, held)


def _put(held: Params, weights: list[str], vectors: Tensor, changed: Tensor) -> None:
    """Replace the rows that changed ``[c, seats]``, and set the moments of their optimiser to zero."""
    begin = 0
    for name in weights:
        weight = held[name]
        width = weight[0, 0].numel()
        fresh = vectors[..., begin : begin + width].reshape(weight.shape).to(weight)
        there = changed.to(weight.device)
        weight[there] = fresh[there]
        for kind in "mv":
            if f"{kind}/{name}" in held:
                held[f"{kind}/{name}"][there] = 0
        begin += width


def check_rounds(federation: Federation, eraser: RoundEraser) -> None:
    """Refuse a federation in which an eraser cannot take rounds.

    Raises:
        BadInput: Saying what stands against it.
    """
    name, fleet = type(eraser).__name__, federation.fleet
    if not isinstance(fleet, InProcess):
        what = f"{name} trains devices, and those of this run live in other processes"
        raise BadInput("eraser", what, "run it in one process")
    if eraser.needs_silos and fleet.clients.n_seats == 1:
        what = f"{name} compares users within a silo, and each client has one user"
        raise BadInput("eraser", what, 'set data.silos, or eraser.statistics = "sums"')
    if overrides(fleet.protocol, Protocol, "learn"):
        what = f"{name} trains devices, and those of {type(fleet.protocol).__name__} do not train"
        raise BadInput("eraser", what, "choose one that needs vectors alone, such as AegisCS")
    noise = (*fleet.protocol.declares(fleet.model), *fleet.defence.declares(fleet.model, fleet.protocol))
    if eraser.items and noise:
        what = "uploads of its rounds would spend more than the ledger says"
        raise BadInput("eraser.items", what, "let items stay: then nothing is uploaded")


@dataclass(frozen=True)
class InRounds:
    """Rounds of an eraser, on devices that have trained.

    Attributes:
        federation: Whose state it is.
        fleet: The same devices, under the eraser's plan and with draws of their own.
        eraser, request: What is done, and what is asked of the users of devices that ever took part.
        users, before: Those users, and their vectors.
        moved: ``[n]`` which of them it may change; all that others hold stays as it is.
        clients: ``[c]`` those devices.
    """

    federation: Federation
    fleet: InProcess
    eraser: RoundEraser
    request: Request
    users: Tensor
    before: Tensor
    moved: Tensor
    clients: Tensor

    @classmethod
    def of(cls, federation: Federation, eraser: RoundEraser, data: Interactions, keys: Keys) -> InRounds:
        """The rounds of an eraser before the first."""
        fleet = federation.fleet
        assert isinstance(fleet, InProcess)
        own = replace(fleet, plan=_plan(fleet.plan, eraser), keys=keys.fold("rounds"))
        own.devices = fleet.devices
        users, before = user_vectors(fleet, eraser.weights(fleet.model))
        clients, request = fleet.devices.clients().sort().values, request_of(data, eraser, users)
        return cls(federation, own, eraser, request, users, before, eraser.moved(request), clients)

    def run(self, state: State) -> tuple[State, dict[str, Any]]:
        """The state after the last round, and what is to be said of them."""
        eraser, fleet, first = self.eraser, self.fleet, state.round
        number = fleet.clients.number[self.clients]
        roster = Roster(fleet.clients.tags, number)
        traffic = Traffic(fleet.form.sheet, int(number.max()) + 1, fleet.clients.n_seats)
        now, change, rounds, up, down = self.before, float("inf"), 0, 0, 0
        with fleet.working():
            while rounds < eraser.rounds and change >= eraser.until:
                cohort = sample(fleet.plan, fleet.keys, roster, rounds)
                state = self._trained(state, cohort, rounds, traffic)
                down += 0 if eraser.items else len(cohort) * self._letter * bool(eraser.recommend)
                after, more_up, more_down = self._between(cohort, rounds)
                up, down = up + more_up, down + more_down
                way = (after - now)[self.moved].double().square().sum(1)
                change = float(way.mean().sqrt()) if len(way) else 0.0
                now, rounds = after, rounds + 1
        sent = traffic.summary()
        line = {
            "name": type(eraser).__name__,
            "rounds": rounds,
            "settled": change < eraser.until,
            "change": change,
            "until": eraser.until,
            "up": up + sent["up"]["total"],
            "down": down + sent["down"]["total"],
        }
        return replace(state, round=first), line

    def _trained(self, state: State, cohort: Tensor, round: int, traffic: Traffic) -> State:
        """The state after the clients of a round have trained; items that stay are not sent up."""
        eraser, fleet = self.eraser, self.fleet
        if not eraser.recommend:
            return state
        letter = self.federation.server.send(state, cohort, fleet.keys)
        clients = torch.searchsorted(fleet.clients.number, cohort)
        trains = {part_of(name) for name in eraser.weights(fleet.model)}
        held = fleet.devices.get(clients)
        if eraser.items:
            parts = fleet.model.parts.items()
            trains |= {n for n, part in parts if part.scope is Scope.SHARED and not part.helper}
            fold = fleet.round(letter, cohort, Terms(fleet.plan.forwards, (traffic,), trains))
            keys = fleet.keys.fold("finish").fold(round)
            state = self.federation.server.finish(state, fold, keys, ignore)
        else:
            fleet.train_alone(letter, clients, trains)
            state = replace(state, round=state.round + 1)
        self._put_back(clients, held)
        return state

    def _put_back(self, clients: Tensor, held: Params) -> None:
        """Give users who may not change what they had before a round, and how they were stepped."""
        fleet = self.fleet
        still = torch.zeros(fleet.clients.n_seats * len(clients), dtype=torch.bool).unflatten(
            0, (len(clients), -1)
        )
        for seats, own in zip(still, self._rows(clients), strict=True):
            seats[: len(own)] = ~self.moved[own]
        if bool(still.any()):
            now, there = fleet.devices.get(clients), still.to(fleet.keys.value.device)
            for name in self.eraser.weights(fleet.model):
                for whole in (key for key in (name, f"m/{name}", f"v/{name}") if key in now):
                    now[whole][there] = held[whole][there]
            fleet.devices.put(clients, now)

    @property
    def _letter(self) -> int:
        """The bytes of a letter to a client that trains."""
        schema = self.fleet.form.sheet
        return codec.size(schema, {name: spec.table or 0 for name, spec in schema.items()})

    def _between(self, cohort: Tensor, round: int) -> tuple[Tensor, int, int]:
        """The vectors of all users after a round's clients were changed, and bytes up and down."""
        fleet, eraser = self.fleet, self.eraser
        _, held = user_vectors(fleet, eraser.weights(fleet.model))
        rows, now = self._rows(torch.searchsorted(fleet.clients.number, cohort)), held.clone()
        some = [Present(now[own].double(), self.before[own].double(), self.request.of(own)) for own in rows]
        draws = Draws(fleet.keys.fold("between").fold(round))
        found, up, down = eraser.between(some, draws)
        for own, vectors in zip(rows, found, strict=True):
            now[own] = torch.where(self.moved[own][:, None], vectors.to(now.dtype), now[own])
        forgotten(fleet, eraser, self.users, now, (now != held).any(1))
        return now, up, down

    def _rows(self, clients: Tensor) -> list[Tensor]:
        """Of each client, where its users are among all."""
        place = torch.full((int(self.users.max()) + 1,), -1)
        place[self.users] = torch.arange(len(self.users))
        seats = self.fleet.clients.seats[clients].cpu()
        return [place[own[own >= 0]] for own in seats]


def _plan(plan: Plan, eraser: RoundEraser) -> Plan:
    """The plan of an eraser's rounds: that of the run, but for their number, their clients and rates."""
    by = eraser.recommend
    rates = {n: by * r for n, r in plan.lr.items()} if isinstance(plan.lr, Mapping) else by * plan.lr
    own = replace(plan, rounds=eraser.rounds, passes=0, budget=0.0, order="sample", cohort=eraser.share)
    return replace(own, epochs=eraser.epochs, lr=rates)
