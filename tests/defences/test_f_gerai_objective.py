"""F-GERAI, its second stage: the objective is tilted once and for all, by noise of a known law."""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from scipy.stats import kstest
from torch import Tensor

from tests.noisy import correlation
from tests.worlds import (
    checkerboard,
    federation,
    held,
    largest,
    phones,
    run,
    silos,
    uploads_of,
)
from veilrec.base.params import Scope
from veilrec.clients import Clients
from veilrec.defence import Defence
from veilrec.defences.common.kept_noise import kept_keys
from veilrec.defences.f_gerai import FGERAI
from veilrec.interactions import Interactions, Split
from veilrec.model import Device, bind
from veilrec.models.fedgcn import FedGCN
from veilrec.models.fedmf import FedMF
from veilrec.protocols.fedavg import FedAvg
from veilrec.rounds import Federation

PLAIN = FGERAI(ridge=0.0)


def crowd(n: int, events: int = 4) -> Clients:
    """Many users with the same few items, none held out: one step holds all examples of a user."""
    log = Interactions.build(
        torch.arange(n).repeat_interleave(events),
        torch.arange(events).repeat(n),
        [f"u{k}" for k in range(n)],
        [f"i{k}" for k in range(events + 1)],
        time=torch.arange(events).repeat(n),
    )
    nobody = torch.full((n,), -1)
    return Clients.phones(Split(log, nobody, nobody))


def fed_of(clients: Clients, defence: Defence | None = None, **plan: Any) -> Federation:
    settings = {"lr": 0.5, "batch": 100, "precision": "float64", **plan}
    return federation(clients, FedMF(clients.log.n_items, clients.n_seats, dim=16), None, defence, **settings)


def tilt(clients: Clients, defence: Defence, events: int = 4) -> Tensor:
    """``[clients, 1, dim]`` η: by how much more the user vectors move in one step than without a defence."""
    plain, tilted = (held(f, run(f))["user"] for f in (fed_of(clients), fed_of(clients, defence)))
    return (plain - tilted) / 0.5 * events


@pytest.mark.parametrize(("epsilon", "sensitivity"), [(1.0, 1.0), (0.4, 2.0)])
def test_the_tilt_is_laplace_and_each_users_own(epsilon: float, sensitivity: float) -> None:
    noise = (
        tilt(crowd(400), FGERAI(objective_epsilon=epsilon, sensitivity=sensitivity, ridge=0.0))
        * epsilon
        / sensitivity
    )
    assert kstest(noise.flatten().numpy(), "laplace").pvalue > 1e-4
    n = noise.numel()
    assert abs(float(noise.abs().mean()) - 1) < 4.5 / math.sqrt(n)
    assert abs(correlation(noise[:-1], noise[1:])) < 4.5 / math.sqrt(n)
    assert abs(correlation(noise[..., :-1], noise[..., 1:])) < 4.5 / math.sqrt(n)
    assert len({tuple(row.tolist()) for row in noise.flatten(1)}) == 400


def test_planted_a_tilt_of_another_law_is_noticed() -> None:
    noise = tilt(crowd(400), FGERAI(objective_epsilon=0.8, ridge=0.0))
    assert kstest(noise.flatten().numpy(), "laplace").pvalue < 1e-4


def test_the_tilt_hangs_neither_on_who_else_is_there_nor_on_the_chunk() -> None:
    whole = tilt(crowd(40), PLAIN)
    assert largest(whole[:5], tilt(crowd(5), PLAIN)) < 1e-12
    feds = [fed_of(crowd(40), PLAIN, chunk=chunk) for chunk in (3, 40)]
    few, many = (held(fed, run(fed))["user"] for fed in feds)
    assert largest(few, many) < 1e-12


def moments(fed: Federation, rounds: int = 3) -> list[Tensor]:
    """The gradient of one device's penalty at its user vector, before training and after some rounds."""
    found = []
    batch: Any = SimpleNamespace(history=torch.arange(4)[None], weight=torch.ones(4).double())
    for done in range(rounds):
        state = run(fed, done) if done else fed.start()
        keys = fed.fleet.client_keys(torch.tensor(2), done).fold("step").fold(done)
        device = Device(batch, {}, {}, keys, torch.tensor(done), torch.tensor(done))
        own = {n: w[2] for n, w in held(fed, state).items() if n in fed.model.names()}
        user = own["user"].detach().requires_grad_()
        term = bind(fed.model, {**state.server, **own, "user": user}, fed.defence.penalty, device)
        found.append(torch.autograd.grad(term, [user])[0])
    return found


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_the_tilt_is_the_same_in_every_round(optimiser: str) -> None:
    first, *later = moments(fed_of(crowd(6), PLAIN, optimiser=optimiser))
    assert float(first.abs().min()) > 0
    assert all(torch.equal(first, other) for other in later)


def test_planted_a_tilt_drawn_anew_is_noticed() -> None:
    @dataclass(frozen=True)
    class Anew(FGERAI):
        def penalty(self, model: Any, device: Device) -> Tensor:
            user: Tensor = model.represent(device.batch)
            return (device.keys.laplace(*user.shape, dtype=user.dtype) * user).sum() / 4

    first, *later = moments(fed_of(crowd(6), Anew()))
    assert not any(torch.equal(first, other) for other in later)


@pytest.mark.parametrize("start", ["small", "normal"])
def test_every_device_keeps_another_key_and_training_leaves_it(start: Any) -> None:
    model = FedGCN(24, dim=4, head=(4,), start=start)
    fed = federation(phones(checkerboard()), model, None, PLAIN, lr=0.01, optimiser="adam")
    key = "f_gerai.key"
    assert fed.model.names(Scope.PRIVATE) == [key]
    before, after = held(fed, fed.start())[key], held(fed, run(fed, 2))[key]
    assert torch.equal(before, after)
    assert len({tuple(row.tolist()) for row in before}) == 24


def test_the_ridge_pulls_the_user_vector_back() -> None:
    """4 deviations of √2 · Δ/ε, times the slope 2z of a square."""
    clients = crowd(5)
    begun = held(fed_of(clients), fed_of(clients).start())["user"]
    alone, ridged = (tilt(clients, FGERAI(objective_epsilon=0.5, ridge=r)) for r in (0.0, 4.0))
    assert largest(ridged - alone, 2 * 4 * math.sqrt(2) / 0.5 * begun) < 1e-12


def test_the_term_is_divided_by_all_examples_of_the_device() -> None:
    """Two events a user instead of four: the same η counts twice as much."""
    assert largest(tilt(crowd(5, 4), PLAIN, 4), tilt(crowd(5, 2), PLAIN, 2)) < 1e-12


@pytest.mark.parametrize("batch", [1, 3, 4])
def test_a_gradient_holds_the_tilt_over_the_examples_whatever_the_steps(batch: int) -> None:
    """Of a user vector that all share, measured and not moved: the mean slope, and η over all examples."""
    model = FedGCN(5, dim=4, head=(4,))
    settings: dict[str, Any] = {"batch": batch, "precision": "float64", "negatives": 0}
    sends = FedAvg(sends="gradients", server="sgd")
    feds = [
        federation(crowd(3), model, sends, d, **settings) for d in (None, FGERAI(sensitivity=30.0, ridge=0.0))
    ]
    plain, tilted = (uploads_of(fed)[1][0][0].received.values["user.joint.bias"] for fed in feds)
    assert isinstance(plain, Tensor)
    assert isinstance(tilted, Tensor)
    fed, state = feds[1], feds[1].start()
    own = {n: w[0] for n, w in held(fed, state).items()}
    noise = bind(fed.model, {**state.server, **own}, lambda m: kept_keys(m, "f_gerai").laplace(1, 4))
    batch_of = fed.clients.batch(
        torch.tensor([0]), history=-1, rows=torch.arange(5)[None], dtype=torch.float64
    )
    user = bind(
        fed.model, state.server, lambda m: m.represent(batch_of._replace(history=batch_of.history[0]))
    )
    expected = 30 * noise[0] / 4 * (user[0] > 0)  # through the ReLU
    assert float(expected.abs().max()) > 0
    assert largest(tilted[0] - plain[0], expected) < 1e-6


def test_in_a_silo_empty_seats_are_not_tilted() -> None:
    clients = silos(checkerboard(), 5)  # the last seats of some silos are empty
    plain, tilted = (held(f, run(f))["user"] for f in (fed_of(clients), fed_of(clients, PLAIN, batch=1000)))
    moved = ((plain - tilted).abs() > 0).any(-1)
    assert torch.equal(moved, clients.seats >= 0)
    assert not bool(moved.all())
