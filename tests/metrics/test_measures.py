"""Numbers over seeds and their differences, against values computed by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilrec.metrics.measures import Measure, difference, pool, read

FLAT = np.linspace(-0.02, 0.02, 401)  # its 2.5th and 97.5th percentiles are ±0.019
share = st.floats(0, 1)


def test_null_is_no_measure() -> None:
    assert read(None) is None
    assert read({"value": None, "low": 0.1, "high": 0.2}) is None
    assert read({"value": math.nan}) is None
    assert read(True) is None
    assert read({"value": 0.5, "low": 0.4, "high": 0.6}) == Measure(0.5, 0.4, 0.6)


def test_a_bare_number_takes_its_interval_from_replicates() -> None:
    found = read(0.3, (0.3 + FLAT).tolist())
    assert found is not None
    assert (found.low, found.high) == pytest.approx((0.281, 0.319))
    assert not Measure(0.3).sure


@pytest.mark.parametrize(
    ("measure", "leaning", "folded"),
    [
        (Measure(0.7, 0.6, 0.8), "above", (0.7, 0.6, 0.8)),
        (Measure(0.3, 0.2, 0.4), "below", (0.7, 0.6, 0.8)),
        (Measure(0.48, 0.4, 0.55), "none", (0.52, 0.5, 0.6)),
        (Measure(0.53, 0.46, 0.58), "none", (0.53, 0.5, 0.58)),
    ],
)
def test_below_chance_is_leakage_too(measure: Measure, leaning: str, folded: tuple[float, ...]) -> None:
    assert measure.leaning(0.5) == leaning
    found = measure.folded(0.5)
    assert (found.value, found.low, found.high) == pytest.approx(folded)


def test_two_seeds_by_hand() -> None:
    """Mean 0.7; users ±0.019; seeds: 12.706 times 0.1 / √2 = 0.0707, over √2."""
    seeds = [Measure(value, replicates=value + FLAT) for value in (0.65, 0.75)]
    found, half = pool(seeds, "correction"), math.hypot(0.019, 12.706 * 0.05)
    assert (found.value, found.low, found.high) == pytest.approx((0.7, 0.7 - half, 0.7 + half))
    without = pool([Measure(0.65, 0.631, 0.669), Measure(0.75, 0.731, 0.769)], "correction")
    assert (without.value, without.low, without.high) == pytest.approx((0.7, 0.7 - half, 0.7 + half))


def test_no_interval_ends_where_its_score_cannot_be() -> None:
    """Two seeds far apart: 0.5 ± 6.4 times their distance."""
    seeds = [Measure(value, value, value) for value in (0.2, 0.8)]
    ends = {"auc": (0.0, 1.0), "hr@10": (0.0, 1.0), "spearman": (-1.0, 1.0), "mae": (0.0, 0.5 + 12.706 * 0.3)}
    for score, (low, high) in ends.items():
        found = pool(seeds, score)
        assert (found.low, found.high) == pytest.approx((low, high))
    assert not pool([Measure(0.2), Measure(0.8)], "auc").sure


def test_one_seed_stays_as_it_is() -> None:
    only = Measure(0.7, 0.6, 0.8)
    assert pool([only], "auc") is only


@given(st.lists(share, min_size=1, max_size=5))
def test_a_mean_lies_inside_its_interval(values: list[float]) -> None:
    found = pool([Measure(value, value - 0.1, value + 0.1) for value in values], "correction")
    assert min(values) - 1e-9 <= found.value <= max(values) + 1e-9
    assert found.low <= found.value - 0.1 + 1e-9
    assert found.high >= found.value + 0.1 - 1e-9


def test_what_both_share_cancels_in_a_difference() -> None:
    """Two runs that rise and fall together differ surely, although their intervals overlap."""
    luck = np.random.default_rng(0).normal(scale=0.05, size=400)
    first = {seed: Measure(0.72, replicates=0.72 + luck) for seed in range(3)}
    second = {seed: Measure(0.7, replicates=0.7 + luck) for seed in range(3)}
    found = difference(first, second)
    assert found is not None
    assert (found.value, found.low, found.high) == pytest.approx((0.02, 0.02, 0.02))
    assert pool(list(first.values()), "auc").low < 0.7


def test_only_common_seeds_are_compared() -> None:
    one = {0: Measure(0.7, replicates=0.7 + FLAT), 1: Measure(0.9, replicates=0.9 + FLAT)}
    other = {1: Measure(0.8, replicates=0.8 + FLAT), 2: Measure(0.1, replicates=0.1 + FLAT)}
    found = difference(one, other)
    assert found is not None
    assert found.value == pytest.approx(0.1)
    assert difference(one, {5: other[2]}) is None
    assert difference(one, {0: Measure(0.5, 0.4, 0.6)}) is None


def test_the_same_defence_twice_is_rarely_called_different() -> None:
    """Two hundred pairs of arms that differ by luck alone: a claim in one of twenty at most (G8)."""
    rng, claims = np.random.default_rng(7), 0
    for _ in range(200):
        users = rng.normal(scale=0.015, size=300)
        arms = [
            {
                seed: Measure(value, replicates=value + users + rng.normal(scale=0.005, size=300))
                for seed, value in enumerate(0.7 + rng.normal(scale=0.02, size=3))
            }
            for _ in range(2)
        ]
        found = difference(*arms)
        assert found is not None
        claims += found.low > 0 or found.high < 0
    assert claims <= 10
