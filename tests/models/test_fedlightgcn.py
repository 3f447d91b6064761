"""FedLightGCN with edges that are dropped in training: by hand, and where nothing may be dropped."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.contract import Scene
from tests.worlds import federation, held, largest, phones, ragged, run, silos, uploads_of
from veilrec.base.keys import Keys
from veilrec.clients import Clients
from veilrec.engine.probe import user_vectors
from veilrec.errors import BadInput
from veilrec.models.fedlightgcn import FedLightGCN
from veilrec.rounds import Federation
from veilrec.wire.codec import one

LOG = ragged((1, 3, 5, 6, 9, 14), 30)


def world(place: str) -> Clients:
    return phones(LOG) if place == "phones" else silos(LOG, 2)


def left_over(scene: Scene, k: int, seat: int, share: float) -> list[int]:
    """The items of a user that stay: the j-th from the end goes by the j-th number of its device."""
    history = [i for i in scene.device.batch.history[k, seat].tolist() if i >= 0]
    keys = Keys(scene.device.keys.value[k]).fold("thinned")
    drawn = keys.uniform(len(history), len(scene.device.batch.history[k]))[:, seat].tolist()
    return [item for item, number in zip(history[::-1], drawn, strict=True) if number >= share]


def user_of(scene: Scene, k: int, seat: int, kept: list[int]) -> Tensor:
    own = scene.params["user"][k, seat]
    return (
        sum((scene.params["item"][k, i] for i in kept), torch.zeros_like(own)) / max(1, len(kept)) / 2
        + own / 2
    )


@pytest.mark.parametrize("place", ["phones", "silos"])
@pytest.mark.parametrize("share", [0.3, 0.9])
def test_the_loss_of_what_is_left_by_hand(place: str, share: float) -> None:
    """Binary cross-entropy of products; a user of whose items none is left is half its own vector."""
    clients, emptied = world(place), 0
    scene = Scene.of(FedLightGCN(30, clients.n_seats, dim=4, edge_dropout=share), clients)
    batch, losses = scene.device.batch, scene.mapped(lambda m, d: m.loss(d))
    for k, weights in enumerate(batch.weight.tolist()):
        each = []
        for b in (b for b, weight in enumerate(weights) if weight):
            seat = int(batch.user[k, b])
            kept = left_over(scene, k, seat, share)
            emptied += not kept
            user = user_of(scene, k, seat, kept)
            signs = [(int(batch.item[k, b]), 1), *((i, -1) for i in batch.negative[k, b].tolist())]
            each += [
                math.log1p(math.exp(-sign * float(user @ scene.params["item"][k, i]))) for i, sign in signs
            ]
        assert float(losses[k]) == pytest.approx(sum(each) / len(each), abs=1e-12)
    assert emptied or share < 0.9


@pytest.mark.parametrize("head", [(), (8, 4)])
def test_other_items_are_dropped_in_each_step(head: tuple[int, ...]) -> None:
    clients = world("phones")
    scene = Scene.of(FedLightGCN(30, dim=4, head=head, edge_dropout=0.5), clients)
    first, second = (
        scene.model.cohort_loss(scene.params, scene.device._replace(keys=scene.device.keys.fold(step)))
        for step in (0, 1)
    )
    assert largest(first, second) > 1e-3


def fed_of(place: str = "phones", head: tuple[int, ...] = (), share: float = 0.5, **plan: Any) -> Federation:
    clients = world(place)
    settings = {"lr": 0.5, "batch": 4, "precision": "float64", **plan}
    model = FedLightGCN(30, clients.n_seats, dim=4, head=head, user="exposed", scale=0.3, edge_dropout=share)
    return federation(clients, model, **settings)


@pytest.mark.parametrize("place", ["phones", "silos"])
@pytest.mark.parametrize("head", [(), (8, 4)])
def test_one_device_after_the_other(place: str, head: tuple[int, ...]) -> None:
    """Histories of one to fourteen items: together they are padded, alone they are not."""
    alone, together, bare = (
        fed_of(place, head, epochs=2, **some) for some in ({"chunk": 1}, {"chunk": 9}, {"share": 0.0})
    )
    first, second = uploads_of(alone, 3), uploads_of(together, 3)
    assert all(largest(v, second[0].server[n]) < 1e-12 for n, v in first[0].server.items())
    for client, (exchange, k) in first[1].items():
        other, there = second[1][client]
        ours, theirs = (one(e.received.values, p)["user"] for e, p in ((exchange, k), (other, there)))
        assert isinstance(ours, Tensor)
        assert isinstance(theirs, Tensor)
        assert largest(ours, theirs) < 1e-12
    assert largest(first[0].server["item"], run(bare, 3).server["item"]) > 1e-3


@pytest.mark.parametrize("head", [(), (8, 4)])
@pytest.mark.parametrize("place", ["phones", "silos"])
def test_nothing_is_dropped_where_nothing_is_learned(place: str, head: tuple[int, ...]) -> None:
    """What stands for a user, what is scored and what is attacked: the same bits as without."""
    dropping, bare = fed_of(place, head), fed_of(place, head, 0.0)
    state, scene = run(dropping, 2), Scene.of(dropping.model, dropping.clients)
    without = Scene.of(bare.model, bare.clients)
    for what in ("represent", "scoring_user", "scores"):
        ours, theirs = (each.mapped(lambda m, d, w=what: getattr(m, w)(d.batch)) for each in (scene, without))
        assert torch.equal(ours, theirs)
    bare.fleet.devices = dropping.fleet.devices
    assert dropping.evaluate(state).means() == bare.evaluate(state).means()
    assert torch.equal(user_vectors(dropping, state), user_vectors(bare, state))
    assert largest(held(dropping, state)["user"], held(bare, run(bare, 2))["user"]) > 1e-4


@pytest.mark.parametrize("share", [-0.1, 1.0, 1.5, math.nan])
def test_shares_that_will_not_do(share: float) -> None:
    what = r"^model\.edge_dropout: .* is (too small|too large|no amount); give a number from 0 to below 1$"
    with pytest.raises(BadInput, match=what):
        FedLightGCN(3, edge_dropout=share)
