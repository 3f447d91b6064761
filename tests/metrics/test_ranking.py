"""Metrics equal the mean over every order of the tied candidates."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import pytest
import torch

from veilrec.base.keys import Keys
from veilrec.metrics.ranking import METRICS, ranking

KS = (1, 2, 3, 5, 10)


def gain(name: str, place: int, k: int) -> float:
    """What an item at a place (from 1) is worth in a list of `k`."""
    if place > k:
        return 0.0
    return {"hr": 1.0, "recall": 1.0, "precision": 1 / k, "mrr": 1 / place, "ndcg": 1 / math.log2(place + 1)}[
        name
    ]


def enumerated(name: str, scores: list[int], k: int) -> float:
    """The mean over all orders that sort the scores; item 0 is the held-out one."""
    orders = itertools.permutations(range(len(scores)))
    places = [
        order.index(0) + 1
        for order in orders
        if all(scores[a] >= scores[b] for a, b in itertools.pairwise(order))
    ]
    return math.fsum(gain(name, place, k) for place in places) / len(places)


@pytest.mark.parametrize("name", METRICS)
def test_every_order_of_ties_counts_once(name: str) -> None:
    for case in itertools.product(range(3), repeat=4):
        scores = [1, *case]
        greater = torch.tensor([sum(s > 1 for s in case)])
        tied = torch.tensor([sum(s == 1 for s in case)])
        for k in KS:
            value = float(ranking(greater, tied, [name], [k])[f"{name}@{k}"])
            assert abs(value - enumerated(name, scores, k)) < 1e-12, (case, k)


def test_against_a_sum_over_places() -> None:
    """RELIABILITY H5: 1,000 random cases with long runs of ties."""
    keys = Keys.seed(2)
    greater, tied = keys.fold("g").integers(40, 1000), keys.fold("t").integers(60, 1000)
    values = ranking(greater, tied, list(METRICS), KS)
    for case, (g, t) in enumerate(zip(greater.tolist(), tied.tolist(), strict=True)):
        for name, k in itertools.product(METRICS, KS):
            expected = math.fsum(gain(name, place, k) for place in range(g + 1, g + t + 2)) / (t + 1)
            assert abs(float(values[f"{name}@{k}"][case]) - expected) < 1e-12


def test_a_constant_scorer_hits_by_chance() -> None:
    value = ranking(torch.tensor([0]), torch.tensor([99]), ["hr"], [10])["hr@10"]
    assert Fraction(float(value)).limit_denominator(1000) == Fraction(1, 10)


def test_types_and_names() -> None:
    values = ranking(torch.tensor([0, 3]), torch.tensor([0, 0]), ["hr", "mrr"], [1, 5])
    assert list(values) == ["hr@1", "hr@5", "mrr@1", "mrr@5"]
    assert all(v.dtype == torch.float64 and v.shape == (2,) for v in values.values())
    assert values["mrr@5"].tolist() == pytest.approx([1.0, 0.25], abs=1e-12)
