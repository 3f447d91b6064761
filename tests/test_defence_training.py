"""The places of a defence on a device: helpers, after an epoch, and last thing before the wire."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from tests.hooks import LR, Add, Blur, Guided, Helped, fed_of, part
from tests.worlds import checkerboard, everyone, federation, held, largest, phones, ragged, run, uploads_of
from veilrec.base.keys import Keys
from veilrec.base.params import Params, Rows, Scope
from veilrec.defence import Defence, HelperSteps, chain
from veilrec.defences.none import Undefended
from veilrec.errors import BadInput
from veilrec.model import Device, Recommender
from veilrec.models.fedmf import FedMF
from veilrec.models.fedncf import FedNCF
from veilrec.protocols.fedavg import FedAvg
from veilrec.wire.codec import one


def by_hand(steps: HelperSteps, rounds: int, per_round: int) -> Tensor:
    """``[24, 2]`` the probe after SGD with momentum, clipped, in every n-th round."""
    probes = []
    for gender in (torch.arange(24) % 2).tolist():
        probe, velocity = torch.zeros(2), torch.zeros(2)
        for round in range(rounds):
            for _ in range(steps.times * per_round if round % steps.every == 0 else 0):
                slope = probe - (torch.tensor([3.0, 4.0]) + gender)
                if steps.clip:
                    slope = slope * min(1.0, steps.clip / float(slope.norm()))
                velocity = steps.momentum * velocity + slope
                probe = probe - steps.lr * velocity
        probes.append(probe)
    return torch.stack(probes)


@pytest.mark.parametrize(
    "steps",
    [
        HelperSteps(lr=0.1),
        HelperSteps(lr=0.05, momentum=0.9),
        HelperSteps(lr=0.1, clip=1.0),
        HelperSteps(lr=0.1, times=3),
        HelperSteps(lr=0.1, momentum=0.5, clip=2.0, every=2, times=2),
    ],
    ids=["plain", "momentum", "clip", "times", "all"],
)
@pytest.mark.parametrize(
    ("optimiser", "batch"),
    [
        ("sgd", 4),
        *(pytest.param(*one, marks=pytest.mark.slow) for one in (("sgd", 100), ("adam", 4), ("adam", 100))),
    ],
)
def test_helpers_follow_their_own_loss_at_their_own_pace(
    steps: HelperSteps, batch: int, optimiser: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Helped, "helpers", steps)
    fed, plain = (fed_of(d, batch=batch, optimiser=optimiser, lr=0.05) for d in (Helped(), None))
    state, free = run(fed, 3), run(plain, 3)
    per_round = -(-10 // batch)
    assert largest(held(fed, state)["probe"], by_hand(steps, 3, per_round)) < 1e-5
    assert torch.equal(state.server["item"], free.server["item"])  # nobody else has moved by it
    assert torch.equal(held(fed, state)["user"], held(plain, free)["user"])


def test_a_penalty_sees_helpers_after_their_step() -> None:
    fed, plain = (fed_of(d, lr={"user": LR, "default": 0.0}) for d in (Guided(), None))
    moved = held(plain, run(plain))["user"] - held(fed, run(fed))["user"]
    pushed = LR * by_hand(HelperSteps(lr=0.1), 1, 1).sum(1)
    assert largest(moved, pushed[:, None, None].expand_as(moved)) < 1e-6


@dataclass(frozen=True)
class Lucky(Helped):
    """Its probe goes up by what is drawn."""

    helpers: ClassVar[HelperSteps] = HelperSteps(lr=1.0, times=3)

    def helper_loss(self, model: Recommender, device: Device) -> Tensor:
        return -(part(model, "probe") * device.keys.normal(2)).sum()


@pytest.mark.parametrize("chunk", [1, 7])
def test_each_pass_draws_anew_and_the_first_from_the_keys_of_the_step(chunk: int) -> None:
    """Also where some devices have fewer steps than others: their probes stand still when they are done."""
    clients = phones(ragged((2, 5, 9, 12), 40))
    fed = federation(clients, FedMF(40, dim=4), None, Lucky(), batch=5, chunk=chunk)
    found = held(fed, run(fed))["probe"]
    for client, steps in enumerate((1, 1, 2, 3)):
        own, total = Keys(fed.fleet.client_keys(torch.tensor([client]), 0).value[0]), torch.zeros(2)
        for keys in (own.fold("step").fold(step) for step in range(steps)):
            total = total + keys.normal(2) + sum(keys.fold("pass").fold(k).normal(2) for k in (1, 2))
        assert largest(found[client], total) < 1e-5


def test_a_chain_is_stepped_as_often_as_its_one_pace_says(monkeypatch: pytest.MonkeyPatch) -> None:
    twice = chain(Blur(), Helped(), Undefended())
    monkeypatch.setattr(Helped, "helpers", HelperSteps(lr=0.1, times=2))
    fed = fed_of(twice)
    assert largest(held(fed, run(fed))["probe"], by_hand(HelperSteps(lr=0.1, times=2), 1, 1)) < 1e-5
    with pytest.raises(BadInput, match="each at another pace"):
        chain(Lucky(), Helped())


@pytest.mark.parametrize("protocol", [FedAvg(), FedAvg(sends="gradients", server="sgd")], ids=str)
def test_private_helpers_never_leave(protocol: FedAvg) -> None:
    state, seen = uploads_of(fed_of(Helped(), protocol=protocol), 2)
    assert all("probe" not in e.received.values for e, _ in seen.values())
    assert "probe" not in state.server


def test_shared_helpers_are_averaged() -> None:
    state = run(fed_of(Helped(scope=Scope.SHARED)))
    assert largest(state.server["probe"], by_hand(HelperSteps(lr=0.1), 1, 1).mean(0)) < 1e-6


def test_exposed_helpers_are_seen() -> None:
    fed = fed_of(Helped(scope=Scope.EXPOSED))
    state, seen = uploads_of(fed)
    for client, (exchange, k) in seen.items():
        assert largest(one(exchange.received.values, k)["probe"], held(fed, state)["probe"][client]) == 0  # type: ignore[arg-type]


@pytest.mark.parametrize("epochs", [1, 3])
def test_after_each_epoch_the_weights_change(epochs: int) -> None:
    fed = fed_of(Add(), lr=0.0, epochs=epochs)
    start = fed.start()
    user = held(fed, start)["user"]
    state, seen = uploads_of(fed)
    assert largest(held(fed, state)["user"], user + epochs) < 1e-5
    for exchange, place in seen.values():
        rows = one(exchange.received.values, place)["item"]
        assert isinstance(rows, Rows)
        kept = rows.row >= 0
        assert largest(rows.value[kept], start.server["item"][rows.row[kept]] + epochs) < 1e-5


def test_training_goes_on_from_the_changed_weights() -> None:
    """Two epochs with a change in between: what was pushed far away gets another gradient."""
    fed, plain = (fed_of(d, epochs=2, lr={"user": LR, "default": 0.0}) for d in (Add(by=50.0), None))
    far, near = held(fed, run(fed))["user"], held(plain, run(plain))["user"]
    assert bool(((far - near) > 50).all())
    assert not torch.allclose(far - near, torch.tensor(100.0), atol=1e-3)


@dataclass(frozen=True)
class Lift(Defence):
    """Changes the item table and nothing else."""

    def after_epoch(self, params: Params, device: Device) -> Params:
        return {**params, "item": params["item"] + 1.0}


@pytest.mark.parametrize("sends", ["weights", "gradients"])
def test_a_batched_loss_reads_the_changed_weights(sends: Any) -> None:
    states = []
    for slow in (False, True):
        model = FedNCF(24, dim=4, head=(6,))
        methods = {"cohort_loss": Recommender.cohort_loss} if slow else {}
        model.__class__ = type("Twin", (FedNCF,), methods)
        protocol = FedAvg(sends=sends, server="sgd")
        plan: dict[str, Any] = {"lr": LR, "batch": 4, "epochs": 2, "precision": "float64"}
        states.append(run(federation(phones(checkerboard()), model, protocol, Lift(), **plan)))
    assert all(largest(states[0].server[n], states[1].server[n]) < 1e-9 for n in states[0].server)


def test_noise_after_an_epoch_is_each_clients_own() -> None:
    one_by_one, together = (fed_of(Add(0.0, 1.0), lr=0.0, epochs=2, chunk=chunk) for chunk in (1, 100))
    first, second = (held(f, run(f))["user"] for f in (one_by_one, together))
    assert torch.equal(first, second)
    assert len({round(float(u[0, 0]), 5) for u in first}) == 24
    keys = together.fleet.client_keys(everyone(together), 0)
    expected = sum(keys.fold("after").fold(e).fold("user").normal(1, 4) for e in range(2))
    assert largest(first, held(together, together.start())["user"] + expected) < 1e-5


@pytest.mark.parametrize("chunk", [1, 7, 100])
def test_noise_on_an_upload_is_what_the_keys_say(chunk: int) -> None:
    fed = federation(
        phones(checkerboard()), FedMF(24, dim=4, user="exposed"), None, Blur(), lr=0.0, chunk=chunk
    )
    start = fed.start()
    own = held(fed, start)["user"]
    state, seen = uploads_of(fed)
    total, count = torch.zeros(24, 4, dtype=torch.float64), 24
    for client, (exchange, place) in seen.items():
        keys = Keys(fed.fleet.client_keys(torch.tensor([client]), 0).value[0]).fold("upload")
        upload = one(exchange.received.values, place)
        rows, user = upload["item"], upload["user"]
        assert isinstance(rows, Rows)
        assert isinstance(user, Tensor)
        row = rows.row[rows.row >= 0]
        noise = keys.fold("item").normal(len(row), 4)
        assert largest(rows.value[: len(row)], start.server["item"][row] + noise) < 1e-6
        assert largest(user, own[client] + keys.fold("user").normal(1, 4)) < 1e-6
        total[row] += noise
    assert largest(state.server["item"], start.server["item"] + total / count) < 1e-6
    assert torch.equal(held(fed, state)["user"], own)  # the device keeps what it has


def test_noise_is_fresh_every_round() -> None:
    uploads = [uploads_of(fed_of(Blur(), lr=0.0), rounds)[1] for rounds in (1, 2)]
    first, second = (one(seen[3][0].received.values, seen[3][1])["item"] for seen in uploads)
    assert isinstance(first, Rows)
    assert isinstance(second, Rows)
    assert not torch.allclose(first.value[0], second.value[0], atol=1e-3)
