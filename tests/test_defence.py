"""The places of a defence before and after training: reached, and doing exactly what one computes by hand."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import pytest
import torch
from torch import Tensor

from tests.hooks import LR, Attached, Everywhere, Forget, Idle, Open, Push, Scramble, StopAfter, fed_of, goals
from tests.worlds import checkerboard, federation, held, largest, phones, run, silos, uploads_of
from veilrec.base.params import Params, Scope
from veilrec.defence import Defence, Posting
from veilrec.model import Device, Recommender
from veilrec.models.fedmf import FedMF
from veilrec.protocols.fedavg import FedAvg
from veilrec.wire.codec import Spec, one


def test_prepare_changes_what_devices_hold() -> None:
    fed = fed_of(Forget(), protocol=FedAvg(weigh="examples"))
    counts = torch.bincount(fed.clients.log.user, minlength=24)
    assert fed.clients.sizes == counts.tolist()
    assert int(fed.clients.log.item.max()) < 12
    _, seen = uploads_of(fed)
    told = {client: e.received.values["examples"] for client, (e, _) in seen.items()}
    assert all(int(told[client][k]) == counts[client] for client, (_, k) in seen.items())  # type: ignore[index]
    assert phones(checkerboard()).sizes == [10] * 24


def test_prepare_draws_from_the_seed() -> None:
    first, again, other = (
        federation(phones(checkerboard()), FedMF(24), None, Scramble(), seed=s).clients.log.attributes[
            "gender"
        ]
        for s in (0, 0, 1)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("scope", Scope)
def test_attached_parts_are_stored_sent_and_averaged_by_their_scope(scope: Scope) -> None:
    fed = fed_of(Attached(scope))
    state, seen = uploads_of(fed)
    uploaded = {client: one(e.received.values, k) for client, (e, k) in seen.items()}
    assert ("extra" in state.server) == (scope is Scope.SHARED)
    assert ("extra" in held(fed, state)) == (scope is not Scope.SHARED)
    assert all(("extra" in upload) == (scope is not Scope.PRIVATE) for upload in uploaded.values())
    if scope is Scope.SHARED:
        assert largest(state.server["extra"], goals().mean(0)) < 1e-6
    else:
        assert largest(held(fed, state)["extra"], goals()) < 1e-6
    if scope is not Scope.PRIVATE:
        assert all(
            largest(torch.as_tensor(upload["extra"]), goals()[k]) < 1e-6 for k, upload in uploaded.items()
        )


def test_attaching_leaves_the_original_model_alone() -> None:
    model = FedMF(24)
    wider = Attached().attach(model)
    assert set(wider.parts) - set(model.parts) == {"extra"}
    assert not hasattr(model, "extra")


@pytest.mark.parametrize(
    "protocol", [FedAvg(), FedAvg(sends="gradients", server="sgd", server_lr=LR)], ids=str
)
def test_a_shared_part_travels_under_every_way_of_averaging(protocol: FedAvg) -> None:
    state = run(fed_of(Attached(Scope.SHARED), protocol=protocol))
    assert largest(state.server["extra"], goals().mean(0)) < 1e-6


@pytest.mark.parametrize("protocol", [FedAvg(), FedAvg(sends="gradients", server="adam")], ids=str)
def test_a_part_that_nothing_reads_stands_still(protocol: FedAvg) -> None:
    state, plain = run(fed_of(Idle(), protocol=protocol), 2), run(fed_of(protocol=protocol), 2)
    assert not state.server["idle"].any()
    assert torch.equal(state.server["item"], plain.server["item"])


@pytest.mark.parametrize("epochs", [1, 3])
def test_the_penalty_is_added_to_the_loss(epochs: int) -> None:
    fed, plain = (
        fed_of(Push(), epochs=epochs, lr={"user": LR, "default": 0.0}),
        fed_of(epochs=epochs, lr={"user": LR, "default": 0.0}),
    )
    pushed, free = held(fed, run(fed))["user"], held(plain, run(plain))["user"]
    if epochs == 1:
        assert largest(free - pushed, torch.full_like(free, LR * 2.0)) < 1e-6
    else:  # the item rows stand still, but the loss of later steps sees the moved user
        assert bool((free - pushed > LR * 2.0 * (epochs - 1)).all())
    rows = [next(iter(f.rounds(f.start(), until=9)))[1]["loss"] for f in (fed, plain)]
    assert rows[0] != rows[1]  # what is reported is what was minimised


class Once(Everywhere):
    """Its penalty is one of a round."""

    penalty_is: ClassVar[Literal["step", "round"]] = "round"


def test_a_penalty_of_a_round_is_added_in_its_first_step_alone() -> None:
    defence = Once()
    run(fed_of(defence, phones(checkerboard(), 0.5), epochs=3, batch=5, chunk=12), 2)
    assert (defence.calls["penalty"], defence.calls["after_epoch"]) == (2 * 2, 2 * 2 * 3)


@pytest.mark.parametrize("n", [0, 5])
def test_only_consenting_users_post(n: int) -> None:
    log = checkerboard()
    clients = silos(log, n, 0.4) if n else phones(log, 0.4)
    fed = fed_of(Open(), clients)
    state = run(fed)
    client, seat = clients.consents["gender"].nonzero(as_tuple=True)
    assert 0 < len(client) < 24
    assert state.posts.owner.tolist() == (client * clients.n_seats + seat).tolist()
    assert torch.equal(state.posts.values["vector"], held(fed, state)["user"][client, seat])
    assert torch.equal(state.posts.values["label"], clients.seats[client, seat] % 2)


def test_nobody_posts_without_consent() -> None:
    state = run(fed_of(Open(), phones(checkerboard(), 0.0)), 2)
    assert len(state.posts.owner) == 0


def test_without_attributes_there_is_nothing_to_consent_to() -> None:
    @dataclass(frozen=True)
    class Loud(Defence):
        def posts(self, model: Recommender, dtype: torch.dtype = torch.float32) -> Posting:
            def make(model: Recommender, device: Device) -> Params:
                return {"vector": model.represent(device.batch)}

            return Posting(tuple(model.classes or ()), {"vector": Spec((model.dim,), dtype)}, make)

    clients = phones(replace(checkerboard(), attributes={}), 1.0)
    assert len(run(fed_of(Loud(), clients)).posts.owner) == 0


def test_a_later_post_replaces_the_earlier_one() -> None:
    fed = fed_of(Open(), phones(checkerboard(), 1.0), cohort=0.4)
    latest: dict[int, Tensor] = {}
    for state, _ in fed.rounds(fed.start(), until=4):
        for client in fed.sample(state.round - 1).tolist():
            latest[client] = held(fed, state)["user"][client, 0]
        assert state.posts.owner.tolist() == sorted(latest)
        assert torch.equal(state.posts.values["vector"], torch.stack([latest[k] for k in sorted(latest)]))


def test_devices_read_what_was_posted_before_this_round() -> None:
    clients = phones(checkerboard(), 0.4)
    posts = int(clients.consents["gender"].sum())
    fed, plain = (
        fed_of(Open(), clients, lr={"user": LR, "default": 0.0}),
        fed_of(None, clients, lr={"user": LR, "default": 0.0}),
    )
    first, free = run(fed), run(plain)
    assert torch.equal(held(fed, first)["user"], held(plain, free)["user"])  # nothing was posted yet
    second, free = run(fed, 2), run(plain, 2)
    moved = held(plain, free)["user"] - held(fed, second)["user"]
    assert largest(moved, torch.full_like(moved, LR * posts)) < 1e-5


def test_stop_ends_training() -> None:
    defence = StopAfter(3)
    fed = fed_of(defence, rounds=10)
    assert [state.round for state, _ in fed.rounds(fed.start())] == [1, 2, 3]
    assert defence.histories == [[1], [1, 2], [1, 2, 3]]
