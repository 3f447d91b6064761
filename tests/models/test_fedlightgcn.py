"""FedLightGCN: its loss by hand, and a device alone and in a cohort."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.contract import Scene
from tests.worlds import federation, largest, phones, ragged, silos, uploads_of
from veilrec.clients import Clients
from veilrec.models.fedlightgcn import FedLightGCN
from veilrec.rounds import Federation
from veilrec.wire.codec import one

LOG = ragged((1, 3, 5, 6, 9, 14), 30)


def world(place: str) -> Clients:
    return phones(LOG) if place == "phones" else silos(LOG, 2)


def user_of(scene: Scene, k: int, seat: int) -> Tensor:
    own = scene.params["user"][k, seat]
    items = [scene.params["item"][k, i] for i in scene.device.batch.history[k, seat].tolist() if i >= 0]
    return sum(items, torch.zeros_like(own)) / max(1, len(items)) / 2 + own / 2


@pytest.mark.parametrize("place", ["phones", "silos"])
def test_the_loss_by_hand(place: str) -> None:
    """Binary cross-entropy of products of an item and half a user's own vector and half the mean item."""
    clients = world(place)
    scene = Scene.of(FedLightGCN(30, clients.n_seats, dim=4), clients)
    batch, losses = scene.device.batch, scene.mapped(lambda m, d: m.loss(d))
    for k, weights in enumerate(batch.weight.tolist()):
        each = []
        for b in (b for b, weight in enumerate(weights) if weight):
            seat = int(batch.user[k, b])
            user = user_of(scene, k, seat)
            signs = [(int(batch.item[k, b]), 1), *((i, -1) for i in batch.negative[k, b].tolist())]
            each += [
                math.log1p(math.exp(-sign * float(user @ scene.params["item"][k, i]))) for i, sign in signs
            ]
        assert float(losses[k]) == pytest.approx(sum(each) / len(each), abs=1e-12)


def fed_of(place: str = "phones", head: tuple[int, ...] = (), **plan: Any) -> Federation:
    clients = world(place)
    settings = {"lr": 0.5, "batch": 4, "precision": "float64", **plan}
    model = FedLightGCN(30, clients.n_seats, dim=4, head=head, user="exposed", scale=0.3)
    return federation(clients, model, **settings)


@pytest.mark.parametrize("place", ["phones", "silos"])
@pytest.mark.parametrize("head", [(), (8, 4)])
def test_one_device_after_the_other(place: str, head: tuple[int, ...]) -> None:
    """Histories of one to fourteen items: together they are padded, alone they are not."""
    alone, together = (fed_of(place, head, epochs=2, chunk=chunk) for chunk in (1, 9))
    first, second = uploads_of(alone, 3), uploads_of(together, 3)
    assert all(largest(v, second[0].server[n]) < 1e-12 for n, v in first[0].server.items())
    for client, (exchange, k) in first[1].items():
        other, there = second[1][client]
        ours, theirs = (one(e.received.values, p)["user"] for e, p in ((exchange, k), (other, there)))
        assert isinstance(ours, Tensor)
        assert isinstance(theirs, Tensor)
        assert largest(ours, theirs) < 1e-12
