"""Failures name who, when and where; what cannot work is refused; small problems stay finite."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.worlds import (
    SHORT,
    checkerboard,
    federation,
    held,
    log_of,
    phones,
    ragged,
    run,
    silos,
)
from veilrec.base.params import Message, Params, Part, Scope, map_values
from veilrec.clients import Clients
from veilrec.defence import Defence
from veilrec.errors import BadInput, ClientFailed, VeilrecError
from veilrec.examples import Portion
from veilrec.interactions import Interactions
from veilrec.model import Device
from veilrec.models.fedmf import FedMF
from veilrec.models.fedncf import FedNCF

WORLD = ragged(SHORT, 120)


def marked() -> Interactions:
    """The checkerboard, where everyone has a class of their own: by class 5 the saboteurs know user 5."""
    log = checkerboard()
    return replace(log, attributes={"class": torch.arange(24)})


class Sabotaged(FedMF):
    """Its training fails on one device."""

    def cohort_loss(self, params: Params, devices: Device) -> Tensor:
        if 5 in devices.batch.attributes["class"]:
            raise ZeroDivisionError("planted")
        return super().cohort_loss(params, devices)


@dataclass(frozen=True)
class Poison(Defence):
    """One device uploads what is not a number."""

    def on_upload(self, upload: Message, device: Device) -> Message:
        bad = (device.batch.attributes["class"] == 5).any()
        return map_values(upload, lambda name, value: torch.where(bad, float("nan"), value))


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("chunk", [1, 5, 100])
def test_a_failure_in_training_names_user_round_and_phase(workers: int, chunk: int) -> None:
    fed = federation(phones(marked()), Sabotaged(24, dim=2), workers=workers, chunk=chunk)
    with pytest.raises(
        ClientFailed, match="user person 5, round 1, training: ZeroDivisionError: planted"
    ) as error:
        run(fed)
    assert (error.value.user, error.value.round, error.value.phase) == ("person 5", 1, "training")
    assert isinstance(error.value.__cause__, ZeroDivisionError)


def test_a_failure_in_a_later_round_and_in_the_upload() -> None:
    fed = federation(phones(marked()), FedMF(24, dim=2), None, Poison(), cohort=0.3, chunk=4)
    first = next(round for round in itertools.count() if 5 in fed.sample(round).tolist())
    with pytest.raises(ClientFailed, match=f"user person 5, round {first + 1}, upload: .*not finite"):
        run(fed, first + 1)


def test_a_failure_while_drawing(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Portion.draw

    def draw(clients: Any, cohort: Tensor, *arguments: Any, **rest: Any) -> Portion:
        if 5 in cohort:
            raise IndexError("planted")
        return original(clients, cohort, *arguments, **rest)

    monkeypatch.setattr(Portion, "draw", draw)
    with pytest.raises(ClientFailed, match="user person 5, round 1, drawing examples: IndexError: planted"):
        run(federation(phones(marked()), FedMF(24, dim=2), chunk=7))


class Crowded(FedMF):
    """Fails in company only, so that nobody in particular is at fault."""

    fault: Exception = LookupError("planted")

    def cohort_loss(self, params: Params, devices: Device) -> Tensor:
        if len(devices.keys.value) > 1:
            raise self.fault
        return super().cohort_loss(params, devices)


def test_a_failure_of_nobody_in_particular_names_the_chunk() -> None:
    fed = federation(phones(marked()), Crowded(24, dim=2), chunk=6)
    with pytest.raises(ClientFailed, match="user one of 6, first person 0, round 1, training: LookupError"):
        run(fed)


@pytest.mark.parametrize("workers", [1, 2])
def test_where_memory_runs_out_nobody_is_blamed(monkeypatch: pytest.MonkeyPatch, workers: int) -> None:
    monkeypatch.setattr(Crowded, "fault", MemoryError("planted"))
    fed = federation(phones(marked()), Crowded(24, dim=2), workers=workers, chunk=6)
    with pytest.raises(ClientFailed, match=r"^round 1, training: out of memory; ") as error:
        run(fed)
    assert error.value.code == 3
    assert "person" not in str(error.value)


def test_a_failing_silo_is_named() -> None:
    clients = silos(marked(), 4)
    (where,) = (clients.seats == 5).any(1).nonzero().squeeze(1).tolist()
    with pytest.raises(ClientFailed, match=f"user silo {where}, round 1, training"):
        run(federation(clients, Sabotaged(24, clients.n_seats, dim=2)))


@pytest.mark.parametrize("model", [FedMF, FedNCF])
def test_divergence_is_told_in_one_line(model: Any) -> None:
    fed = federation(phones(WORLD), model(120, dim=4), lr=1e30, batch=4, chunk=100, rounds=20)
    with pytest.raises(VeilrecError, match="not finite; lower the learning rate") as error:
        run(fed, 20)
    assert "\n" not in str(error.value)
    assert error.value.code == 2  # a setting that cannot be right, and no bug


def everything_touched() -> Clients:
    log = log_of((0, 0, 0), (0, 1, 1), (0, 2, 2))
    return Clients.phones(log.leave_one_out()._replace(train=log))


def nothing_left() -> Clients:
    log = log_of((0, 0, 0), items=3)
    return phones(log.take(torch.zeros(1, dtype=torch.bool)))


def exposed() -> FedMF:
    model = FedMF(120)
    model.parts = {**model.parts, "item": Part(Scope.EXPOSED, rows="item")}
    return model


@pytest.mark.parametrize(
    ("clients", "model", "what"),
    [
        (lambda: phones(WORLD), exposed(), "item table 'item' is exposed; item tables are shared or private"),
        (everything_touched, FedMF(3), "user u0 has touched every item"),
        (nothing_left, FedMF(3), "no user has an event"),
    ],
)
def test_what_cannot_work_is_refused_before_any_work(
    clients: Callable[[], Clients], model: FedMF, what: str
) -> None:
    with pytest.raises(BadInput, match=what):
        federation(clients(), model)


def test_a_user_who_has_touched_everything_can_go_without_negatives() -> None:
    state = run(federation(everything_touched(), FedMF(3, dim=2), negatives=0), 2)
    assert state.server["item"].isfinite().all()


@settings(max_examples=40)
@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    n_items=st.integers(7, 9),
    model=st.sampled_from([FedMF, FedNCF]),
    objective=st.sampled_from(["bce", "bpr"]),
    lr=st.sampled_from([0.0, 0.1, 1.0]),
    optimiser=st.sampled_from(["sgd", "adam"]),
    negatives=st.integers(1, 3),
    batch=st.sampled_from([1, 3, 100]),
)
def test_small_problems_stay_finite(
    sizes: list[int],
    n_items: int,
    model: Any,
    objective: str,
    lr: float,
    optimiser: str,
    negatives: int,
    batch: int,
) -> None:
    """RELIABILITY H7: one user, one event, one step, however it comes."""
    fed = federation(
        phones(ragged(sizes, n_items)),
        model(n_items, dim=2, objective=objective),
        lr=lr,
        optimiser=optimiser,
        negatives=negatives,
        batch=batch,
    )
    state = run(fed, 3)
    assert all(w.isfinite().all() for w in (*state.server.values(), *held(fed, state).values()))
    assert all(0 <= value <= 1 for value in fed.evaluate(state).means().values())
