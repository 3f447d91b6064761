"""Tiny defences, one for each place where a defence may act, and a federation to try them in."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from tests.worlds import checkerboard, federation, phones
from veilrec.base.keys import Keys
from veilrec.base.params import Message, Params, Part, Scope, map_values
from veilrec.clients import Clients
from veilrec.defence import Defence, HelperSteps, Posting
from veilrec.model import Device, Recommender, with_part
from veilrec.models.fedmf import FedMF
from veilrec.protocol import State
from veilrec.protocols.fedavg import FedAvg
from veilrec.rounds import Federation
from veilrec.wire.codec import Spec

LR = 0.5


def fed_of(
    defence: Defence | None = None,
    clients: Clients | None = None,
    protocol: FedAvg | None = None,
    **plan: Any,
) -> Federation:
    """One local step a round for everyone, unless told otherwise: the checkerboard has ten events a user."""
    clients = clients or phones(checkerboard())
    settings = {"lr": LR, "batch": 100, "chunk": 7, **plan}
    return federation(clients, FedMF(24, clients.n_seats, dim=4), protocol, defence, **settings)


def part(model: Recommender, name: str) -> Tensor:
    """A part that is one tensor."""
    found = getattr(model, name)
    assert isinstance(found, Tensor)
    return found


@dataclass(frozen=True)
class Forget(Defence):
    """Devices lose the events of the items at and above a number."""

    below: int = 12

    def prepare(self, clients: Clients, keys: Keys) -> Clients:
        return replace(clients, log=clients.log.take(clients.log.item < self.below))


@dataclass(frozen=True)
class Scramble(Defence):
    """Devices believe in an attribute drawn from their keys."""

    def prepare(self, clients: Clients, keys: Keys) -> Clients:
        drawn = keys.fold(clients.tags).integers(1000)
        return replace(clients, log=replace(clients.log, attributes={"gender": drawn}))


@dataclass(frozen=True)
class Attached(Defence):
    """A vector of a given scope, drawn by a penalty towards 3 for odd people and 1 for even ones."""

    scope: Scope = Scope.SHARED
    name: str = "extra"

    def attach(self, model: Recommender) -> Recommender:
        return with_part(model, self.name, nn.Parameter(torch.zeros(2)), Part(self.scope))

    def penalty(self, model: Recommender, device: Device) -> Tensor:
        goal = 1.0 + 2 * device.batch.attributes["gender"][0]
        return 0.5 * (part(model, self.name) - goal).square().sum()


def goals(protocol_lr: float = LR) -> Tensor:
    """``[24, 2]`` where one step from zero leads."""
    return protocol_lr * (1.0 + 2 * (torch.arange(24) % 2))[:, None].expand(24, 2)


@dataclass(frozen=True)
class Classifying(Defence):
    """A shared classifier of the user vector; its gradient tells everybody's gender."""

    def attach(self, model: Recommender) -> Recommender:
        head = nn.Sequential(nn.Linear(model.dim, 8), nn.ReLU(), nn.Linear(8, 2))
        return with_part(model, "adversary", head, Part(Scope.SHARED))

    def penalty(self, model: Recommender, device: Device) -> Tensor:
        logits = model.get_submodule("adversary")(model.represent(device.batch))
        return nn.functional.cross_entropy(logits, device.batch.attributes["gender"])


@dataclass(frozen=True)
class Idle(Defence):
    """A shared part that no loss ever reads."""

    def attach(self, model: Recommender) -> Recommender:
        return with_part(model, "idle", nn.Parameter(torch.zeros(2)), Part(Scope.SHARED))


@dataclass(frozen=True)
class Push(Defence):
    """Pushes the user vector along a fixed direction."""

    by: float = 2.0

    def penalty(self, model: Recommender, device: Device) -> Tensor:
        return self.by * model.represent(device.batch).sum()


@dataclass(frozen=True)
class Helped(Defence):
    """A probe that a helper loss draws towards (3, 4) plus the person's gender; nothing else may move."""

    helpers: ClassVar[HelperSteps] = HelperSteps(lr=0.1)
    scope: Scope = Scope.PRIVATE

    def attach(self, model: Recommender) -> Recommender:
        return with_part(model, "probe", nn.Parameter(torch.zeros(2)), Part(self.scope, helper=True))

    def helper_loss(self, model: Recommender, device: Device) -> Tensor:
        goal = torch.tensor([3.0, 4.0]) + device.batch.attributes["gender"][0]
        touch = 0.0 * model.represent(device.batch).sum()
        return 0.5 * (part(model, "probe") - goal).square().sum() + touch

    def penalty(self, model: Recommender, device: Device) -> Tensor:
        return 7.0 * part(model, "probe").sum()  # helpers stand still here


@dataclass(frozen=True)
class Guided(Helped):
    """The probe pushes the user vector."""

    def penalty(self, model: Recommender, device: Device) -> Tensor:
        return part(model, "probe").sum() * model.represent(device.batch).sum()


@dataclass(frozen=True)
class Open(Defence):
    """Consenting users post their vector and their class; a penalty reads what was posted."""

    def posts(self, model: Recommender, dtype: torch.dtype = torch.float32) -> Posting:
        def make(model: Recommender, device: Device) -> Params:
            return {"vector": model.represent(device.batch), "label": device.batch.attributes["gender"]}

        schema = {"vector": Spec((model.dim,), dtype), "label": Spec((), torch.int64)}
        return Posting(tuple(model.classes or ()), schema, make)

    def penalty(self, model: Recommender, device: Device) -> Tensor:
        if "vector" not in device.public:
            return torch.zeros(())
        return len(device.public["vector"]) * model.represent(device.batch).sum()


@dataclass(frozen=True)
class Add(Defence):
    """Adds something to the weights after every epoch."""

    by: float = 1.0
    noise: float = 0.0

    def after_epoch(self, params: Params, device: Device) -> Params:
        return {n: w + self.by + self.noise * device.keys.fold(n).normal(*w.shape) for n, w in params.items()}


@dataclass(frozen=True)
class Blur(Defence):
    """Normal noise on everything that leaves."""

    scale: float = 1.0

    def on_upload(self, upload: Message, device: Device) -> Message:
        return map_values(upload, lambda n, v: v + self.scale * device.keys.fold(n).normal(*v.shape))


@dataclass(frozen=True)
class StopAfter(Defence):
    rounds: int = 2
    histories: list[list[float]] = field(default_factory=list)

    def stop(self, state: State, history: list[dict[str, float]]) -> bool:
        self.histories.append([row["round"] for row in history])
        return state.round >= self.rounds


@dataclass(frozen=True)
class Everywhere(Defence):
    """Counts its calls and changes nothing."""

    helpers: ClassVar[HelperSteps] = HelperSteps(lr=0.0)
    calls: Counter[str] = field(default_factory=Counter)

    def prepare(self, clients: Clients, keys: Keys) -> Clients:
        self.calls["prepare"] += 1
        return clients

    def attach(self, model: Recommender) -> Recommender:
        self.calls["attach"] += 1
        return with_part(model, "probe", nn.Parameter(torch.zeros(1)), Part(Scope.PRIVATE, helper=True))

    def posts(self, model: Recommender, dtype: torch.dtype = torch.float32) -> Posting:
        def make(model: Recommender, device: Device) -> Params:
            self.calls["posts"] += 1
            return {"one": torch.ones(len(device.batch.attributes["gender"]))}

        return Posting(tuple(model.classes or ()), {"one": Spec(())}, make)

    def helper_loss(self, model: Recommender, device: Device) -> Tensor:
        self.calls["helper_loss"] += 1
        return part(model, "probe").sum()

    def penalty(self, model: Recommender, device: Device) -> Tensor:
        self.calls["penalty"] += 1
        return 0.0 * model.represent(device.batch).sum()

    def after_epoch(self, params: Params, device: Device) -> Params:
        self.calls["after_epoch"] += 1
        return params

    def on_upload(self, upload: Message, device: Device) -> Message:
        self.calls["on_upload"] += 1
        return upload

    def stop(self, state: State, history: list[dict[str, float]]) -> bool:
        self.calls["stop"] += 1
        return False


@dataclass(frozen=True)
class Times(Defence):
    by: float = 3.0

    def on_upload(self, upload: Message, device: Device) -> Message:
        return map_values(upload, lambda n, v: v * self.by)

    def after_epoch(self, params: Params, device: Device) -> Params:
        return {n: w * self.by for n, w in params.items()}


@dataclass(frozen=True)
class NoisyPenalty(Defence):
    """A push in a random direction."""

    def penalty(self, model: Recommender, device: Device) -> Tensor:
        user = model.represent(device.batch)
        return (device.keys.fold("push").normal(*user.shape) * user).sum()
