"""Shares: what a rank is sent is the data of its own clients, and nothing of anybody else's."""

from __future__ import annotations

import queue
from dataclasses import replace

import pytest
import torch

from tests.engine.ranks.pipes import Pipe
from tests.worlds import checkerboard, phones, silos
from veilrec.clients import Clients
from veilrec.engine.features import with_features
from veilrec.engine.ranks import shares
from veilrec.engine.ranks.shares import lean, receive, send


def sent(clients: Clients) -> Clients:
    """Some clients, as the rank has them that they are sent to."""
    queues = {(a, b): queue.Queue() for a in range(2) for b in range(2)}
    send(Pipe(0, 2, queues), 1, clients)
    found = receive(Pipe(1, 2, queues))
    assert queues[0, 1].empty()
    return found


WORLDS = {
    "phones": lambda: phones(checkerboard(), 0.5),
    "features": lambda: with_features(phones(checkerboard(), 0.5), private=True),
    "silos": lambda: silos(checkerboard(), 5, 0.5),
}


@pytest.mark.parametrize("size", [1 << 20, 24])
@pytest.mark.parametrize("name", WORLDS)
def test_some_clients_arrive_as_they_are(name: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shares, "BYTES", size)
    clients = WORLDS[name]()
    mine = lean(clients).only(torch.tensor([0, 2, 3]))
    found = sent(mine)
    for field in ("seats", "validation", "test", "tags", "number", "people"):
        assert torch.equal(getattr(found, field), getattr(mine, field)), field
    for field in ("consents", "log"):
        ours = getattr(mine, field) if field == "consents" else mine.log.attributes
        theirs = getattr(found, field) if field == "consents" else found.log.attributes
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(value, theirs[name]) for name, value in ours.items())
    assert torch.equal(found.log.user, mine.log.user)
    assert torch.equal(found.log.item, mine.log.item)
    assert list(found.log.user_ids) == list(mine.log.user_ids)
    assert (found.log.n_items, found.log.n_users) == (clients.log.n_items, len(mine.people))
    assert found.sizes == [clients.sizes[k] for k in (0, 2, 3)]
    if mine.log.features is not None:
        assert torch.equal(found.log.features, mine.log.features)
        assert list(found.log.feature_names) == list(mine.log.feature_names)


def test_every_rank_knows_all_classes() -> None:
    """Also those of which it has nobody, and where classes have no names."""
    clients = phones(checkerboard())
    bare = replace(clients, log=replace(clients.log, classes={}))
    for whole, names in ((clients, ["even", "odd"]), (bare, ["0", "1"])):
        found = sent(lean(whole).only(torch.tensor([0, 2])))
        assert found.log.attributes["gender"].unique().tolist() == [0]
        assert found.log.classes["gender"] == names


def test_what_no_device_reads_stays_with_the_leader() -> None:
    found = sent(lean(phones(checkerboard())).only(torch.tensor([1])))
    assert found.log.time is None
    assert found.log.rating is None
    assert set(found.log.item_ids) == {""}
