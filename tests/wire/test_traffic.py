"""Traffic is counted as it would travel, to the byte."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial

import pytest
import torch

from tests.forking import Showing
from tests.worlds import federation, phones, ragged, silos
from veilrec.interactions import Interactions
from veilrec.model import Recommender
from veilrec.models.fedmf import FedMF
from veilrec.models.fedncf import FedNCF
from veilrec.rounds import Federation
from veilrec.wire import codec
from veilrec.wire.traffic import Traffic
from veilrec.wire.uploads import Exchange

MODELS: dict[str, Callable[..., Recommender]] = {
    "mf": partial(FedMF, dim=4, user="exposed"),
    "ncf": partial(FedNCF, dim=4, head=(8, 4)),
    "neumf": partial(FedNCF, dim=4, head=(8,), kind="neumf", tower_dim=3),
}


def counter(fed: Federation) -> Traffic:
    down = fed.protocol.letter(fed.model, fed.plan.dtype)
    return Traffic(down, len(fed.clients), fed.clients.n_seats)


def weigh(exchange: Exchange, up: Counter[int]) -> None:
    """What each upload of a chunk weighs when it is really encoded."""
    received = exchange.received
    for k, client in enumerate(received.cohort.tolist()):
        up[client] += len(codec.encode(codec.one(received.values, k)))


@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("name", MODELS)
def test_the_size_of_real_uploads(name: str, precision: str) -> None:
    clients = phones(ragged((1, 2, 7, 40, 400), 500))
    fed = federation(clients, MODELS[name](500, 1), rounds=2, chunk=2, precision=precision)
    traffic, up = counter(fed), Counter[int]()
    letter = {**fed.start().server, "round": torch.tensor(0, dtype=torch.int32)}
    fed.run(fed.start(), watch=[traffic, lambda exchange: weigh(exchange, up)])
    assert traffic.up.tolist() == [up[k] for k in range(5)]
    assert traffic.down.tolist() == [2 * len(codec.encode(dict(letter)))] * 5


def rounds(fed: Federation) -> tuple[Traffic, list[dict[str, int]]]:
    traffic = counter(fed)
    rows = [traffic.finish() for _ in fed.rounds(fed.start(), watch=[traffic])]
    return traffic, rows


def test_rows_and_summary_add_up(checkerboard: Interactions) -> None:
    fed = federation(phones(checkerboard), FedMF(24, 1, dim=4), rounds=3, cohort=0.5, evaluate_every=9)
    traffic, rows = rounds(fed)
    table = traffic.summary()
    assert table["messages"] == 3 * 12
    for way in ("up", "down"):
        assert (
            table[way]["total"]
            == sum(row[f"{way}_bytes"] for row in rows)
            == sum(table["by_kind"][way].values())
        )
        assert table[way]["mean"] == table[way]["total"] / 36
        assert table[way]["mean"] <= table[way]["max"] <= table[way]["total"]
    assert int(traffic.up.sum()) == table["up"]["total"]
    assert table["clients"] == int((traffic.up > 0).sum())
    assert table["by_kind"]["up"]["posts"] == table["by_kind"]["down"]["posts"] == 0


@pytest.mark.parametrize("n", [0, 3])
def test_posts_are_messages_of_their_own(checkerboard: Interactions, n: int) -> None:
    clients = silos(checkerboard, n, consent=0.5) if n else phones(checkerboard, consent=0.5)
    fed = federation(
        clients, FedMF(24, clients.n_seats, dim=4), defence=Showing(), rounds=2, evaluate_every=9
    )
    traffic, rows = rounds(fed)
    consenting = clients.consents["gender"].sum(1)
    assert 0 < int(consenting.sum()) < 24
    own = [len(codec.encode({"vector": torch.zeros(k, 4)})) if k else 0 for k in consenting.tolist()]
    everybody = len(codec.encode({"vector": torch.zeros(int(consenting.sum()), 4)}))
    kinds = traffic.summary()["by_kind"]
    assert kinds["up"]["posts"] == 2 * sum(own)
    assert (
        kinds["down"]["posts"] == len(clients) * everybody
    )  # in the second round: before, nobody had posted
    assert rows[1]["down_bytes"] - rows[0]["down_bytes"] == len(clients) * everybody


def test_counters_survive(checkerboard: Interactions) -> None:
    fed = federation(phones(checkerboard, consent=0.5), FedMF(24, 1, dim=4), defence=Showing(), rounds=4)
    whole, rows = rounds(fed)
    first, second = counter(fed), counter(fed)
    found = [(state, first.finish()) for state, _ in fed.rounds(fed.start(), until=2, watch=[first])]
    second.restore({name: value.clone() for name, value in first.state().items()})
    told = [second.finish() for _ in fed.rounds(found[-1][0], watch=[second])]
    assert [row for _, row in found] + told == rows
    assert second.summary() == whole.summary()
