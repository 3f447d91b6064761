"""Rounds: same seed, same bits; nobody's draws depend on anybody else."""

from __future__ import annotations

import gc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from scipy import stats
from torch import Tensor

from tests.worlds import (
    SHORT,
    begin,
    contents,
    digest,
    federation,
    held,
    largest,
    log_of,
    phones,
    ragged,
    resume,
    run,
    silos,
    uploads_of,
)
from veilrec.base.keys import Keys
from veilrec.base.params import Message, Rows
from veilrec.engine.devices.store import Store
from veilrec.engine.evaluation import Evaluation
from veilrec.interactions import Interactions
from veilrec.models.fedmf import FedMF
from veilrec.models.fedncf import FedNCF
from veilrec.protocols.fedavg import FedAvg
from veilrec.rounds import Federation
from veilrec.wire.codec import one
from veilrec.wire.uploads import Exchange

WORLD = ragged(SHORT, 120)


PLAN: dict[str, Any] = {"lr": 0.5, "batch": 16, "chunk": 3}


def fedncf(**plan: Any) -> Federation:
    return federation(phones(WORLD), FedNCF(120, dim=6, head=(8,)), **{**PLAN, **plan})


MODES: dict[str, dict[str, Any]] = {
    "sgd": {},
    "adam": {"optimiser": "adam", "lr": 0.01, "epochs": 2},
    "sampled": {"cohort": 0.5},
    "gradients": {"protocol": FedAvg(sends="gradients", server="adam", server_lr=0.01)},
}


def of_mode(mode: str, **plan: Any) -> Federation:
    chosen = {**PLAN, **MODES[mode], **plan}
    return federation(phones(WORLD), FedNCF(120, dim=6, head=(8,)), chosen.pop("protocol", None), **chosen)


@pytest.mark.parametrize("mode", MODES)
def test_same_seed_same_bits_with_any_number_of_workers(mode: str) -> None:
    digests = {digest(run(of_mode(mode, workers=workers), 3)) for workers in (1, 1, 2, 3)}
    assert len(digests) == 1


def test_twenty_runs_of_a_seed_and_of_twenty_seeds() -> None:
    assert len({digest(run(fedncf(), 2)) for _ in range(20)}) == 1
    models = {digest(run(fedncf(seed=seed), 1)) for seed in range(20)}
    assert len(models) == 20


@pytest.mark.parametrize("mode", MODES)
def test_chunks_change_no_draw_and_results_only_by_rounding(mode: str) -> None:
    whole, seen = uploads_of(of_mode(mode, chunk=100), 3)
    for chunk in (1, 2, 7):
        state, other = uploads_of(of_mode(mode, chunk=chunk), 3)
        assert seen.keys() == other.keys()
        for client in seen:
            a, b = upload_of(seen, client), upload_of(other, client)
            assert rows_of(a, "item") == rows_of(b, "item")  # the same events and the same negatives
        bound = 1e-6 if mode in ("sgd", "sampled") else 1e-4  # Adam amplifies rounding
        assert all(largest(whole.server[n], state.server[n]) <= bound for n in whole.server)


def upload_of(seen: dict[int, tuple[Exchange, int]], client: int) -> Message:
    exchange, place = seen[client]
    return one(exchange.received.values, place)


def rows_of(message: Message, name: str) -> list[int]:
    rows = message[name]
    assert isinstance(rows, Rows)
    return rows.row[rows.row >= 0].tolist()


def test_who_else_is_sampled_changes_no_draw() -> None:
    _, everyone = uploads_of(fedncf())
    _, some = uploads_of(fedncf(cohort=0.4))
    assert 0 < len(some) < len(everyone)
    for client in some:
        a, b = upload_of(everyone, client), upload_of(some, client)
        assert rows_of(a, "item") == rows_of(b, "item")
        for name, value in a.items():
            other = b[name]
            if isinstance(value, Rows) and isinstance(other, Rows):
                assert largest(value.value[value.row >= 0], other.value[other.row >= 0]) <= 1e-6
            elif isinstance(value, Tensor) and isinstance(other, Tensor):
                assert largest(value, other) <= 1e-6


def test_other_people_in_the_data_change_no_draw() -> None:
    """A client's examples in a world with half of the people are its examples in the whole world."""
    half = WORLD.take(WORLD.user % 2 == 0)
    feds = [federation(phones(log), FedMF(120, dim=4), **PLAN) for log in (WORLD, half)]
    (_, whole), (_, part) = (uploads_of(fed) for fed in feds)
    assert all(rows_of(upload_of(whole, k), "item") == rows_of(upload_of(part, k), "item") for k in part)


@pytest.mark.parametrize("n", [0, 3])
def test_shuffled_input_rows_change_no_bit(n: int) -> None:
    def bits(order: Tensor) -> str:
        assert WORLD.time is not None
        log = Interactions.build(
            WORLD.user[order],
            WORLD.item[order],
            WORLD.user_ids,
            WORLD.item_ids,
            time=WORLD.time[order] // 3,  # with ties
            attributes=WORLD.attributes,
        )
        clients = silos(log, n) if n else phones(log)
        return digest(run(federation(clients, FedMF(120, clients.n_seats, dim=4), **PLAN), 3))

    orders = [torch.arange(len(WORLD)), torch.arange(len(WORLD)).flip(0), Keys.seed(1).order(len(WORLD))]
    assert len({bits(order) for order in orders}) == 1


def test_a_run_continues_where_it_stopped() -> None:
    fed = of_mode("adam", cohort=0.5)
    whole = digest(run(fed, 5))
    state = run(fed, 2)
    store = Store(len(fed.clients), fed.fleet.devices.fresh)
    store.restore(contents(fed.fleet.devices))
    assert digest(resume(fed, replace(state, devices=store), 5)) == whole


def test_no_rounds_are_no_rounds() -> None:
    fed = fedncf()
    state = fed.start()
    assert fed.run(state, rounds=0) is state
    assert fed.run(state, rounds=2).round == 2
    assert fed.run(state).round == fed.plan.rounds == 1
    assert list(fed.rounds(state, until=0)) == []


def test_a_round_leaves_the_servers_old_state_alone() -> None:
    for mode in MODES:
        fed = of_mode(mode)
        first = fed.start()
        copies = {n: w.clone() for n, w in {**first.server, **first.memory}.items()}
        run(fed, 2)
        list(fed.rounds(first, until=2))
        assert all(torch.equal({**first.server, **first.memory}[n], w) for n, w in copies.items())


@pytest.mark.parametrize(("share", "expected"), [(1.0, 8), (0.5, 4), (0.1, 1), (0.001, 1), (0.3, 2)])
def test_the_sampled_share(share: float, expected: int) -> None:
    fed = fedncf(cohort=share)
    for round in range(5):
        cohort = fed.sample(round)
        assert len(set(cohort.tolist())) == len(cohort) == expected
        assert cohort.tolist() == sorted(cohort.tolist())


def test_sampling_is_fair_and_changes_every_round() -> None:
    clients = phones(ragged((1,) * 40, 10))
    fed = federation(clients, FedMF(10, dim=2), cohort=0.25)
    cohorts = [tuple(fed.sample(round).tolist()) for round in range(400)]
    assert len(set(cohorts)) == 400
    counts = torch.bincount(torch.tensor(cohorts).flatten(), minlength=40)
    assert stats.chisquare(counts.numpy()).pvalue > 1e-6
    both = sum(0 in cohort and 1 in cohort for cohort in cohorts)
    assert 8 < both < 45  # 400 · (10 · 9) / (40 · 39) = 23 together


def test_clients_without_events_are_never_sampled() -> None:
    log = log_of((1, 0, 0), (1, 1, 1), (1, 2, 2), (3, 0, 0), (3, 4, 1), (3, 5, 2), users=6, items=9)
    fed = federation(phones(log), FedMF(9, dim=2), cohort=1.0)
    assert fed.sample(0).tolist() == [1, 3]
    run(fed, 2)
    assert fed.fleet.devices.used == 2


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
@pytest.mark.parametrize(
    "protocol", [FedAvg(), FedAvg(sends="gradients", server="sgd")], ids=["weights", "gradients"]
)
@pytest.mark.parametrize("names", ["user", "item", "item mlp1", ""])
def test_only_the_parts_named_move(names: str, protocol: FedAvg, optimiser: Any) -> None:
    trains = set(names.split())
    fed = federation(
        phones(WORLD), FedNCF(120, dim=4, head=(4,)), protocol, **{**PLAN, "optimiser": optimiser}
    )
    before = begin(fed)
    after = run(fed, 2, trains=trains)
    moved = {n for n, w in after.server.items() if not torch.equal(w, before.server[n])}
    own = {n for n in ("user",) if not torch.equal(held(fed, after)[n], held(fed, before)[n])}
    assert {name.split(".")[0] for name in moved | own} == trains


def test_rows_say_what_was_measured() -> None:
    judge = Evaluation(ks=(5,), select="hr@5", candidates=10)
    fed = federation(phones(WORLD), FedMF(120, dim=4), evaluation=judge, rounds=5, evaluate_every=2, **PLAN)
    rows = [row for _, row in fed.rounds(fed.start())]
    assert [row["round"] for row in rows] == [1, 2, 3, 4, 5]
    assert all(row["clients"] == 8 for row in rows)
    assert ["ndcg@5" in row for row in rows] == [False, True, False, True, True]  # and after the last
    assert abs(rows[0]["loss"] - 0.6931) < 1e-3  # ln 2 where all scores are near zero


def test_every_sampled_client_is_seen_once_a_round() -> None:
    seen: list[tuple[int, int]] = []

    def watch(exchange: Exchange) -> None:
        seen.extend((exchange.round, client) for client in exchange.received.cohort.tolist())
        assert len(exchange.received.cohort) <= 3
        assert exchange.sent.all.keys() == {"item"}

    fed = federation(phones(WORLD), FedMF(120, dim=4), cohort=0.6, workers=2, **PLAN)
    run(fed, 3, watch=[watch])
    assert sorted(seen) == [(round + 1, k) for round in range(3) for k in fed.sample(round).tolist()]


def test_precision_reaches_every_weight() -> None:
    fed = of_mode("adam", precision="float64")
    state = run(fed, 1)
    assert {w.dtype for w in (*state.server.values(), *fed.fleet.devices.values.values())} == {torch.float64}


@pytest.mark.slow
def test_memory_stays_flat_over_runs() -> None:
    pages = Path("/proc/self/statm")
    if not pages.exists():
        pytest.skip("no /proc on this system")

    def resident() -> int:
        gc.collect()
        return int(pages.read_text().split()[1]) * 4096

    after = []
    for seed in range(6):
        run(of_mode("adam", seed=seed, workers=2), 3)
        after.append(resident())
    assert after[-1] - after[0] < 20 * 2**20
