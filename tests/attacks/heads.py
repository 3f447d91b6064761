"""Classifier heads on user vectors, a defence that uploads one, and what a server then sees."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.worlds import federation, phones, run
from veilrec.attack import Seen, Task
from veilrec.base.keys import Keys
from veilrec.base.params import Message, Part, Scope, part_of
from veilrec.clients import Clients
from veilrec.datasets.synthetic import synthetic
from veilrec.defence import Defence, chain
from veilrec.engine.probe import see
from veilrec.interactions import Interactions
from veilrec.model import Device, Recommender, with_part
from veilrec.models.common.layers import Dense
from veilrec.models.fedmf import FedMF
from veilrec.protocols.fedavg import FedAvg

CLASSES = {"gender": 2, "age": 3, "region": 7}


class Noisy(nn.Module):
    """FedAU²'s head, Eq. (10): means and spreads from a last layer without bias, and noise on both."""

    draws = True

    def __init__(self, dim: int, hidden: int, classes: int, variance: float = 2.0) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(dim, hidden), nn.Linear(hidden, 2 * classes, bias=False)
        self.variance = variance

    def forward(self, x: Tensor, keys: Keys) -> Tensor:
        mean, spread = self.last(self.first(x).relu()).chunk(2, -1)
        around = 1 + self.variance**0.5 * keys.fold("around").normal(*mean.shape)
        return mean * around + spread.exp() * keys.fold("beside").normal(*mean.shape)


def head_of(kind: str, dim: int, hidden: int, classes: int) -> nn.Module:
    """A head by name: which layers it has decides which way its matrices lie."""
    match kind:
        case "linear":
            return nn.Sequential(nn.Linear(dim, hidden), nn.ReLU(), nn.Linear(hidden, classes))
        case "no bias":
            return nn.Sequential(nn.Linear(dim, hidden), nn.ReLU(), nn.Linear(hidden, classes, bias=False))
        case "dense":
            return nn.Sequential(Dense(dim, hidden), nn.ReLU(), Dense(hidden, classes))
        case "noisy":
            return Noisy(dim, hidden, classes)
    raise ValueError(kind)


@dataclass(frozen=True)
class Watched(Defence):
    """Devices train a shared classifier of an attribute on their user vector, which it leaves alone.

    With `lies`, that share of the people give it another class than their own.
    """

    attribute: str = "gender"
    kind: str = "linear"
    hidden: int = 32
    lies: float = 0.0

    def attach(self, model: Recommender) -> Recommender:
        head = head_of(self.kind, model.dim, self.hidden, CLASSES[self.attribute])
        return with_part(model, "adversary", head, Part(Scope.SHARED))

    def penalty(self, model: Recommender, device: Device) -> Tensor:
        vector, head = model.represent(device.batch).detach(), model.get_submodule("adversary")
        logits = head(vector, device.keys) if self.kind == "noisy" else head(vector)
        return F.cross_entropy(logits, device.batch.attributes[self.attribute])

    def prepare(self, clients: Clients, keys: Keys) -> Clients:
        told = self.told(clients.log.attributes[self.attribute])
        return replace(clients, log=replace(clients.log, attributes={self.attribute: told}))

    def told(self, truth: Tensor) -> Tensor:
        """``[users]`` what each says: the truth, or the next class."""
        lie = Keys.seed(5).fold("lie").uniform(len(truth)) < self.lies
        return torch.where(lie, (truth + 1) % CLASSES[self.attribute], truth)


@dataclass(frozen=True)
class Muffled(Defence):
    """Makes the head's gradient smaller and adds noise; of weights, the change since they were sent."""

    keep: float = 0.0
    noise: float = 0.0
    weights: bool = False

    def on_upload(self, upload: Message, device: Device) -> Message:
        def changed(name: str, value: Any) -> Any:
            if part_of(name) != "adversary":
                return value
            start = device.sent[name] if self.weights else torch.zeros_like(value)
            return (
                start + self.keep * (value - start) + self.noise * device.keys.fold(name).normal(*value.shape)
            )

        return {name: changed(name, value) for name, value in upload.items()}


GRADIENTS = FedAvg(sends="gradients", server="adam", server_lr=0.01)
WEIGHTS = FedAvg()


def world(users: int) -> Interactions:
    return synthetic(users=users, items=60)


def seen_after(
    users: int,
    *defences: Defence,
    protocol: FedAvg = GRADIENTS,
    rounds: int = 3,
    dim: int = 8,
    clients: Clients | None = None,
    **plan: Any,
) -> Seen:
    """What the server of a small federation has seen after some rounds."""
    people = clients or phones(world(users))
    settings = {"lr": 0.5, "batch": 1000, **plan}
    model = FedMF(60, people.n_seats, dim=dim)
    fed = federation(people, model, protocol, chain(*defences), **settings)
    return see(fed, run(fed, rounds) if rounds else fed.start())


def task_of(users: int, attribute: str = "gender", seed: int = 0) -> Task:
    """Nobody's label is known."""
    return Task(torch.full((users,), -1), CLASSES[attribute], seed, attribute)


def share_right(scores: Tensor, truth: Tensor) -> float:
    """How often the highest score is the truth."""
    return float((scores.argmax(1) == truth).double().mean())
