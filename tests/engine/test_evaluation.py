"""Evaluation equals a brute-force oracle, refuses what is not a number, and does not depend on its blocks."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from tests.worlds import federation, log_of, phones, ragged, run, silos
from veilrec.base.keys import Keys
from veilrec.clients import Clients
from veilrec.engine.evaluation import Evaluation, Scored, candidates, distinct, evaluate, popularity
from veilrec.engine.workers import workers
from veilrec.errors import BadInput
from veilrec.interactions import Interactions
from veilrec.metrics.ranking import METRICS
from veilrec.models.fedmf import FedMF
from veilrec.models.fedncf import FedNCF

KS = (1, 3, 10)


def judge(
    clients: Clients, table: Tensor, which: str = "test", pool: Tensor | None = None, **options: Any
) -> Scored:
    """Evaluate a table of scores ``[users, items]``."""
    evaluation = Evaluation(
        candidates=0 if pool is None else pool.shape[1],
        ks=KS,
        select="hr@1",
        **{"metrics": tuple(METRICS), **options},
    )

    def score(cohort: Tensor, items: Tensor | None) -> Tensor:
        own = table[clients.seats[cohort].clamp(min=0)]
        return own if items is None else own.gather(-1, items)

    with workers(1) as one:
        return evaluate(evaluation, clients, which, score, pool, one)


def oracle(clients: Clients, table: Tensor, which: str, pool: Tensor | None) -> dict[int, dict[str, float]]:
    """Every metric of every user, from the definitions."""
    found: dict[int, dict[str, float]] = {}
    for client, seats in enumerate(clients.seats.tolist()):
        for seat, user in enumerate(seats):
            target = int((clients.test if which == "test" else clients.validation)[client, seat])
            if user < 0 or target < 0:
                continue
            seen = set(clients.log.item[clients.log.user == user].tolist())
            if which == "test":
                seen.add(int(clients.validation[client, seat]))
            rivals = [i for i in range(clients.log.n_items) if i not in seen and i != target]
            rivals = rivals if pool is None else pool[user].tolist()
            greater = sum(bool(table[user, i] > table[user, target]) for i in rivals)
            tied = sum(bool(table[user, i] == table[user, target]) for i in rivals)
            places = range(greater + 1, greater + tied + 2)
            worth: dict[str, Callable[[int, int], float]] = {
                "hr": lambda p, k: 1.0,
                "recall": lambda p, k: 1.0,
                "precision": lambda p, k: 1 / k,
                "ndcg": lambda p, k: 1 / math.log2(p + 1),
                "mrr": lambda p, k: 1 / p,
            }
            found[user] = {
                f"{name}@{k}": math.fsum(gain(p, k) for p in places if p <= k) / (tied + 1)
                for name, gain in worth.items()
                for k in KS
            }
    return found


@settings(max_examples=60)
@given(
    sizes=st.lists(st.integers(1, 8), min_size=2, max_size=7),
    levels=st.integers(1, 6),
    seed=st.integers(0, 999),
    which=st.sampled_from(["test", "validation"]),
    sampled=st.sampled_from([0, 3]),
    n=st.sampled_from([0, 2]),
)
def test_against_brute_force(
    sizes: list[int], levels: int, seed: int, which: str, sampled: int, n: int
) -> None:
    log = ragged(sizes, 15)
    clients = silos(log, n) if n else phones(log)
    table = Keys.seed(seed).integers(levels, len(sizes), 15).double()  # few levels: many ties
    pool = candidates(clients, sampled, seed) if sampled else None
    scored, expected = judge(clients, table, which, pool), oracle(clients, table, which, pool)
    assert scored.user.tolist() == sorted(expected)
    for place, user in enumerate(scored.user.tolist()):
        for name, value in expected[user].items():
            assert abs(float(scored.values[name][place]) - value) < 1e-12, (user, name)


def test_a_constant_scorer_gets_what_chance_gives() -> None:
    clients = phones(ragged((5, 8, 20, 1), 200))
    pool = candidates(clients, 99)
    means = judge(clients, torch.zeros(4, 200), pool=pool).means()
    assert means["hr@10"] == pytest.approx(0.10, abs=1e-12)
    full = judge(clients, torch.zeros(4, 200))
    untouched = torch.tensor([200 - n - 1 for n in (5, 8, 20, 1)])  # the target among them
    assert torch.allclose(full.values["hr@10"], 10 / untouched.double(), atol=1e-12)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("sampled", [0, 3])
def test_scores_that_are_no_numbers_are_refused(bad: float, sampled: int, checkerboard: Interactions) -> None:
    clients = phones(checkerboard)
    table = torch.zeros(24, 24)
    pool = candidates(clients, sampled) if sampled else None
    table[3, int(clients.test[3, 0])] = bad
    with pytest.raises(BadInput, match="not finite"):
        judge(clients, table, pool=pool)


def test_what_was_seen_never_ranks() -> None:
    """Training items, and for the test the validation item, may score as high as they like."""
    clients = phones(ragged((6, 9, 3), 30))
    table = torch.zeros(3, 30)
    for user in range(3):
        table[user, clients.log.item[clients.log.user == user]] = 9.0
        table[user, clients.validation[user]] = 8.0
        table[user, clients.test[user]] = 1.0
    assert judge(clients, table).means()["hr@1"] == 1.0
    table[torch.arange(3), clients.test[:, 0]] = 9.5
    assert judge(clients, table, "validation").means()["mrr@3"] == 0.5  # the test item is not yet seen


@pytest.mark.parametrize("n", [0, 3])
@pytest.mark.parametrize("sampled", [0, 4])
def test_blocks_change_nothing(
    n: int, sampled: int, checkerboard: Interactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    clients = silos(checkerboard, n) if n else phones(checkerboard)
    table = Keys.seed(0).normal(24, 24)
    pool = candidates(clients, sampled) if sampled else None
    results = []
    for block in (1, 5, 64, 10**6):
        monkeypatch.setattr("veilrec.engine.evaluation.BLOCK", block)
        results.append(judge(clients, table, pool=pool))
    assert all(torch.equal(results[0].values[m], r.values[m]) for r in results for m in r.values)
    assert results[0].user.tolist() == list(range(24))


def test_silos_are_judged_user_by_user(checkerboard: Interactions) -> None:
    table = Keys.seed(0).normal(24, 24)
    pools = [candidates(c, 5) for c in (phones(checkerboard), silos(checkerboard, 5))]
    assert torch.equal(*pools)
    for pool in (None, pools[0]):
        alone = judge(phones(checkerboard), table, pool=pool)
        together = judge(silos(checkerboard, 5), table, pool=pool)
        assert all(torch.equal(alone.values[m], together.values[m]) for m in alone.values)


@given(
    sizes=st.lists(st.integers(1, 8), min_size=1, max_size=6), n=st.integers(1, 5), seed=st.integers(0, 99)
)
def test_candidates_are_distinct_and_untouched(sizes: list[int], n: int, seed: int) -> None:
    log = ragged(sizes, 15)
    clients = phones(log)
    pool = candidates(clients, n, seed)
    assert pool.shape == (len(sizes), n)
    for user, items in enumerate(pool.tolist()):
        assert len(set(items)) == n
        assert not set(items) & set(log.item[log.user == user].tolist())
        assert all(0 <= i < 15 for i in items)


def test_candidates_are_uniform_and_keyed_by_person() -> None:
    log = log_of(*((u, i, i) for u in range(4000) for i in (0, 3, 9)), items=12)
    pool = candidates(phones(log), 4)
    counts = torch.bincount(pool.flatten(), minlength=12)
    assert counts[[0, 3, 9]].tolist() == [0, 0, 0]
    assert (
        stats.chisquare(counts[counts > 0].numpy()).pvalue > 1e-6
    )  # conservative: draws without replacement
    assert torch.equal(pool, candidates(phones(log), 4))
    assert not torch.equal(pool, candidates(phones(log), 4, split_seed=1))
    fewer = log_of(*((u, i, i) for u in range(50) for i in (0, 3, 9)), items=12)
    assert torch.equal(candidates(phones(fewer), 4), pool[:50])  # who else is there does not matter


def test_too_many_candidates_are_refused(checkerboard: Interactions) -> None:
    assert candidates(phones(checkerboard), 12).shape == (24, 12)
    with pytest.raises(BadInput, match="person 0 has 12 untouched"):
        candidates(phones(checkerboard), 13)


def test_distinct_numbers() -> None:
    high = torch.tensor([5, 9, 100])
    drawn = distinct(Keys.seed(0).fold(torch.arange(3)), high, 5)
    assert sorted(drawn[0].tolist()) == list(range(5))
    assert all(len(set(row)) == 5 for row in drawn.tolist())
    assert bool((drawn < high[:, None]).all())
    assert bool((drawn >= 0).all())


def test_every_subset_is_as_likely() -> None:
    drawn = distinct(Keys.seed(4).fold(torch.arange(30_000)), torch.full((30_000,), 5), 2).sort(1).values
    counts = torch.bincount(drawn[:, 0] * 5 + drawn[:, 1], minlength=25)
    assert stats.chisquare(counts[counts > 0].numpy()).pvalue > 1e-6
    assert int((counts > 0).sum()) == 10


def test_the_popularity_floor() -> None:
    log = log_of(
        *((u, i, i) for u in range(6) for i in range(6 - u)), (5, 6, 9), (5, 7, 10), users=6, items=8
    )
    clients = phones(log)
    counts = torch.bincount(clients.log.item, minlength=8)
    score = popularity(counts, clients.n_seats)
    assert torch.equal(score(torch.tensor([0, 3]), None), counts.double().expand(2, 1, -1))
    items = torch.tensor([[[1, 4]], [[0, 7]]])
    assert torch.equal(score(torch.tensor([0, 3]), items), counts.double()[items])
    with workers(1) as one:
        scored = evaluate(Evaluation(ks=KS, select="hr@1"), clients, "test", score, None, one)
    expected = oracle(clients, counts.expand(6, -1), "test", None)
    assert scored.values["ndcg@3"].tolist() == pytest.approx(
        [expected[u]["ndcg@3"] for u in scored.user.tolist()]
    )


@pytest.mark.parametrize("model", [FedMF, FedNCF])
@pytest.mark.parametrize("sampled", [0, 5])
@pytest.mark.parametrize("n", [0, 4])
def test_the_engine_shows_what_the_model_scores(
    model: Any, sampled: int, n: int, checkerboard: Interactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    clients = silos(checkerboard, n) if n else phones(checkerboard)
    judges = Evaluation(candidates=sampled, ks=KS, select="hr@1")
    feds = [
        federation(clients, model(24, clients.n_seats, dim=4), evaluation=judges, workers=w, cohort=0.5)
        for w in (1, 2)
    ]
    state = run(feds[0], 2)
    feds[1].fleet.devices = feds[0].fleet.devices
    second = feds[1].evaluate(state)
    monkeypatch.setattr("veilrec.engine.evaluation.BLOCK", 5)
    first = feds[0].evaluate(state)
    assert all(torch.equal(first.values[m], second.values[m]) for m in first.values)
    own = feds[0].fleet.devices.get(torch.arange(len(clients)))
    table = torch.zeros(24, 24)
    for client, seats in enumerate(clients.seats.tolist()):
        whole = {**state.server, **{name: value[client] for name, value in own.items()}}
        loaded = model(24, clients.n_seats, dim=4)
        loaded.load_state_dict(whole)
        with torch.no_grad():
            scores = loaded.scores(None)
        for seat, user in enumerate(seats):
            if user >= 0:
                table[user] = scores[seat]
    expected = oracle(clients, table, "test", candidates(clients, sampled) if sampled else None)
    assert first.values["ndcg@10"].tolist() == pytest.approx(
        [expected[u]["ndcg@10"] for u in range(24)], abs=1e-9
    )


@pytest.mark.parametrize(
    ("options", "where"),
    [
        ({"metrics": ("hitt",)}, "evaluation.metrics"),
        ({"candidates": -1}, "evaluation.candidates"),
        ({"ks": ()}, "evaluation.ks"),
        ({"ks": (0, 10)}, "evaluation.ks"),
        ({"select": "ndcg@7"}, "evaluation.select"),
        ({"select": "auc"}, "evaluation.select"),
    ],
)
def test_impossible_protocols_are_refused(options: dict[str, Any], where: str) -> None:
    with pytest.raises(BadInput, match=where):
        Evaluation(**options)


def test_nobody_to_judge() -> None:
    clients = phones(log_of((0, 0, 0), (1, 1, 0), items=5))
    with pytest.raises(BadInput, match="no user has a test item"):
        judge(clients, torch.zeros(2, 5))


def test_the_protocol_in_words() -> None:
    assert "99 untouched items" in Evaluation(candidates=99).describe()
    assert "all untouched items" in Evaluation().describe()
    assert Evaluation().describe() != Evaluation(candidates=99).describe()
