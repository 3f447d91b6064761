"""A second truth to hold the engine against: FedAvg one client at a time, full tables, ordinary autograd.

It shares no code with the engine: hashing is done on Python's whole numbers, untouched items are listed and
counted, models and losses are written out, devices and server step with `torch.optim`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from veilrec.base.plan import Plan
from veilrec.clients import Clients
from veilrec.protocols.fedavg import FedAvg

WORD = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15

Weights = dict[str, Tensor]


def mix(x: int) -> int:
    """The finaliser of splitmix64."""
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & WORD
    return x ^ (x >> 31)


def hash_of(text: str) -> int:
    """FNV-1a of the UTF-8 bytes, mixed."""
    word = 0xCBF29CE484222325
    for byte in text.encode():
        word = ((word ^ byte) * 0x100000001B3) & WORD
    return mix(word)


def fold(key: int, *tags: str | int) -> int:
    """A key for a purpose: strings and whole numbers in a row."""
    for tag in tags:
        key = mix((key + (hash_of(tag) if isinstance(tag, str) else mix((tag + GOLDEN) & WORD))) & WORD)
    return key


def word(key: int, place: int) -> int:
    """The random 64-bit word at a place."""
    return mix((key + (place + 1) * GOLDEN) & WORD)


def below(key: int, place: int, high: int) -> int:
    """A whole number from 0 to high - 1."""
    return ((word(key, place) >> 32) * high) >> 32


@dataclass(frozen=True)
class Shape:
    """Which of the recommenders, and how large; ``kind`` is mf, mlp or neumf."""

    kind: str = "mf"
    dim: int = 8
    head: tuple[int, ...] = (8, 4)
    objective: str = "bce"
    private_head: bool = False

    def weights(self, n_items: int, n_seats: int) -> dict[str, tuple[int, ...]]:
        """The shape of each weight."""
        shapes: dict[str, tuple[int, ...]] = {"user": (n_seats, self.dim), "item": (n_items, self.dim)}
        if self.kind == "neumf":
            shapes |= {"mlp_user": shapes["user"], "mlp_item": shapes["item"]}
        if self.kind != "mf":
            sizes = [2 * self.dim, *self.head, *([1] if self.kind == "mlp" else [])]
            for k, (a, b) in enumerate(pairwise(sizes), 1):
                shapes |= {f"mlp{k}.weight": (a, b), f"mlp{k}.bias": (b,)}
        if self.kind == "neumf":
            shapes |= {"predict.weight": (self.dim + self.head[-1], 1), "predict.bias": (1,)}
        return shapes

    def kept(self, name: str) -> bool:
        """Whether a device keeps a weight of its own."""
        return "user" in name or (self.private_head and "item" not in name)

    def score(self, w: Weights, seat: Tensor, item: Tensor) -> Tensor:
        """Seats and items of one shape to scores of that shape."""
        product = w["user"][seat] * w["item"][item]
        if self.kind == "mf":
            return product.sum(-1)
        tower = "mlp_" if self.kind == "neumf" else ""
        x = torch.cat([w[f"{tower}user"][seat], w[f"{tower}item"][item]], -1)
        layers = len(self.head) + (self.kind == "mlp")
        for k in range(1, layers + 1):
            x = x @ w[f"mlp{k}.weight"] + w[f"mlp{k}.bias"]
            if k < layers or self.kind == "neumf":
                x = torch.relu(x)
        if self.kind == "neumf":
            x = torch.cat([product, x], -1) @ w["predict.weight"] + w["predict.bias"]
        return x.squeeze(-1)

    def loss(self, w: Weights, seat: Tensor, item: Tensor, negative: Tensor) -> Tensor:
        """The mean over the examples of a batch."""
        touched = self.score(w, seat, item)
        untouched = self.score(w, seat[:, None].expand_as(negative), negative)
        if self.objective == "bpr":
            return -F.logsigmoid(touched[:, None] - untouched).mean()
        scores = torch.cat([touched[:, None], untouched], 1)
        labels = torch.zeros_like(scores)
        labels[:, 0] = 1
        return F.binary_cross_entropy_with_logits(scores, labels)


class Upload(NamedTuple):
    """What one client tells the server."""

    values: Weights  # weights or gradients, whole tables
    touched: list[int]  # the rows that are meant
    examples: int


class Reference:
    """A federation in slow motion."""

    def __init__(self, clients: Clients, shape: Shape, plan: Plan, protocol: FedAvg, seed: int = 0) -> None:
        self.shape, self.plan, self.protocol = shape, plan, protocol
        self.n_items, self.n_seats = clients.log.n_items, clients.n_seats
        self.names = [clients.name(k) for k in range(len(clients))]
        items: dict[int, list[int]] = {}
        for user, item in zip(clients.log.user.tolist(), clients.log.item.tolist(), strict=True):
            items.setdefault(user, []).append(item)
        self.events = [
            [(seat, item) for seat, user in enumerate(seats) for item in items.get(user, [])]
            for seats in clients.seats.tolist()
        ]
        self.key, self.rounds = mix(seed), 0
        self.shapes = shape.weights(self.n_items, self.n_seats)
        self.server = {n: self.initial(n, fold(self.key, "server")) for n in self.shapes if not shape.kept(n)}
        self.begin = {name: weight.clone() for name, weight in self.server.items()}
        self.devices: dict[int, Weights] = {}
        self.optimisers: dict[int, torch.optim.Optimizer] = {}
        self.server_optimiser: torch.optim.Optimizer | None = None
        if protocol.server != "none":
            self.server_optimiser = optimiser(protocol.server, self.server, protocol.server_lr)

    def initial(self, name: str, key: int) -> Tensor:
        """Tables N(0, 0.01²), matrices after Glorot, biases zero; float32 numbers in every precision."""
        shape, key = self.shapes[name], fold(key, name)
        words = [word(key, place) for place in range(math.prod(shape))]
        if "user" in name or "item" in name:
            radius = torch.tensor([((x >> 32) + 0.5) * 2.0**-32 for x in words], dtype=torch.float64)
            angle = torch.tensor(
                [(x & 0xFFFFFFFF) * (2 * math.pi * 2.0**-32) for x in words], dtype=torch.float64
            )
            values = 0.01 * ((-2 * radius.log()).sqrt() * angle.cos()).float()
        elif len(shape) == 2:
            uniform = torch.tensor([((x >> 41) + 0.5) * 2.0**-23 for x in words])
            values = (2 * uniform - 1) * math.sqrt(6 / sum(shape))
        else:
            values = torch.zeros(len(words))
        return values.reshape(shape).to(self.plan.dtype)

    def device(self, client: int) -> Weights:
        """What a device holds, made when it is first asked for."""
        if client not in self.devices:
            key = fold(self.key, "device", hash_of(self.names[client]))
            alike = fold(self.key, "alike")  # perceptrons that are kept begin as everybody's do
            own = {
                n: self.initial(n, key if "user" in n else alike).requires_grad_()
                for n in self.shapes
                if self.shape.kept(n)
            }
            self.devices[client] = own
            self.optimisers[client] = optimiser(self.plan.optimiser, own, self.plan.lr)
        return self.devices[client]

    def cohort(self) -> list[int]:
        """The clients of the next round: those with the smallest draws."""
        able = [k for k, events in enumerate(self.events) if events]
        key = fold(self.key, "sample", self.rounds)
        draws = {
            k: (fold(key, hash_of(self.names[k])) ^ (1 << 63)) for k in able
        }  # compared as signed numbers
        n = max(1, int(self.plan.cohort * len(able) + 0.5))
        return sorted(sorted(able, key=lambda k: draws[k])[:n])

    def passes(self, client: int) -> list[tuple[list[int], list[list[int]]]]:
        """For each local epoch the order of the events, and the negatives of each event."""
        events, q = self.events[client], self.plan.negatives
        touched = [{i for s, i in events if s == seat} for seat in range(self.n_seats)]
        free = [[i for i in range(self.n_items) if i not in seen] for seen in touched]
        drawn = []
        for epoch in range(self.plan.epochs):
            key = fold(self.key, "client", self.rounds, hash_of(self.names[client]), "epoch", epoch)
            order, negatives = fold(key, "order"), fold(key, "negatives")
            shuffled = sorted(range(len(events)), key=lambda e: word(order, e) >> 20)
            drawn.append(
                (
                    shuffled,
                    [
                        [free[s][below(negatives, e * q + j, len(free[s]))] for j in range(q)]
                        for e, (s, _) in enumerate(events)
                    ],
                )
            )
        return drawn

    def learn(self, client: int) -> Upload:
        """One client's round."""
        still = self.protocol.sends == "gradients"
        events, own = self.events[client], self.device(client)
        shared = {n: w.clone().requires_grad_() for n, w in self.server.items()}
        weights, steps = {**shared, **own}, [self.optimisers[client]]
        if not still:
            steps.append(optimiser(self.plan.optimiser, shared, self.plan.lr))
        gradient = {n: torch.zeros_like(w) for n, w in shared.items()}
        touched = {item for _, item in events}
        for order, negatives in self.passes(client):
            touched |= {item for some in negatives for item in some}
            for begin in range(0, len(events), self.plan.batch):
                part = order[begin : begin + self.plan.batch]
                seat, item = torch.tensor([events[e] for e in part]).T
                negative = torch.tensor([negatives[e] for e in part])
                for weight in weights.values():
                    weight.grad = None
                self.shape.loss(weights, seat, item, negative).backward()
                share = len(part) / (len(events) * self.plan.epochs)
                for name, weight in shared.items():
                    gradient[name] += share * weight.grad  # type: ignore[operator]
                for step in steps:
                    step.step()
        values = gradient if still else {n: w.detach() for n, w in shared.items()}
        return Upload(values, sorted(touched), len(events))

    def round(self) -> dict[int, Upload]:
        """One round: every sampled client learns, the server averages. What was uploaded, by client."""
        uploads = {client: self.learn(client) for client in self.cohort()}
        means = {name: self.mean(name, uploads) for name in self.server}
        for name, weight in self.server.items():
            if self.server_optimiser is None:
                weight += means[name].to(weight.dtype)
            else:
                sign = 1 if self.protocol.sends == "gradients" else -1
                weight.grad = (sign * means[name]).to(weight.dtype)
        if self.server_optimiser is not None:
            self.server_optimiser.step()
        self.rounds += 1
        return uploads

    def mean(self, name: str, uploads: dict[int, Upload]) -> Tensor:
        """The mean change (or gradient) of one weight, in float64."""
        total = torch.zeros(self.server[name].shape, dtype=torch.float64)
        count = torch.zeros(len(total), dtype=torch.float64)
        for upload in uploads.values():
            change = upload.values[name].double()
            if self.protocol.sends == "weights":
                change = change - self.server[name].double()
            weight = upload.examples if self.protocol.weigh == "examples" else 1
            total += weight * change
            rows = upload.touched if "item" in name and self.protocol.weigh == "touched" else slice(None)
            count[rows] += weight
        return total / count.clamp(min=1).reshape(-1, *(1 for _ in total.shape[1:]))


def optimiser(kind: str, weights: Weights, rates: object) -> torch.optim.Optimizer:
    """An ordinary optimiser with a rate for each part."""
    groups = []
    for name, weight in weights.items():
        rate = rates
        if isinstance(rates, dict):
            rate = rates.get(name.split(".")[0], rates.get("default", 0.0))
        groups.append({"params": [weight], "lr": rate})
    return (
        torch.optim.Adam(groups, foreach=False) if kind == "adam" else torch.optim.SGD(groups, foreach=False)
    )
