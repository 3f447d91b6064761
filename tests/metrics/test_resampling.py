"""Intervals cover, p-values are uniform where nothing leaks, and runs pair up user by user."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from tests.results import ends
from veilrec.base.keys import Keys
from veilrec.errors import BadInput
from veilrec.metrics.inference import auc, judge, r2
from veilrec.metrics.measures import Measure, difference
from veilrec.metrics.resampling import (
    Measured,
    combine,
    dealt,
    mean,
    summary,
    weights,
)

ALARM = 1e-6  # of a false one, for each statistic of the weights; the seeds are fixed
TAGS = Keys.seed(3).words(400)


def measured(value: float, replicates: list[float] | Tensor) -> Measured:
    return summary(value, torch.as_tensor(replicates, dtype=torch.float64))


def p_of(truth: Tensor, scores: Tensor, keys: Keys, permutations: int = 1000) -> float:
    return dealt(truth, scores, keys, permutations).p


def leaning(found: Measured, chance: float = 0.5) -> str:
    return Measure(*found[:3]).leaning(chance)


def leak(keys: Keys, n: int, strength: float, noise: float = 1.0) -> tuple[Tensor, Tensor]:
    """Two classes whose scores lie `strength` apart, in units of the noise if that is 1."""
    truth = keys.fold("truth").integers(2, n)
    return truth, truth * strength + noise * keys.fold("noise").normal(n, dtype=torch.float64)


def test_weights_are_poisson() -> None:
    counts = weights(TAGS, 1000)
    assert counts.shape == (1000, 400)
    seen = torch.bincount(counts.flatten().long(), minlength=8)
    expected = 400_000 * stats.poisson.pmf(np.arange(7), 1)
    observed = np.append(seen[:7].numpy(), int(seen[7:].sum()))
    assert stats.chisquare(observed, np.append(expected, 400_000 - expected.sum())).pvalue > ALARM
    halves = counts.double() - 1
    for a, b in [(halves[1:], halves[:-1]), (halves[:, 1:], halves[:, :-1])]:  # resamples, and users
        assert abs(float((a * b).mean())) < 4.9 / math.sqrt(a.numel())
    assert abs(float(halves.mean(1).var()) * 400 - 1) < 4.9 * math.sqrt(2 / 1000)  # no resample is favoured
    assert abs(float(halves.mean(0).var()) * 1000 - 1) < 4.9 * math.sqrt(2 / 400)  # and no user


def test_weights_belong_to_the_user() -> None:
    counts = weights(TAGS, 50)
    mixed = Keys.seed(9).order(400)
    assert torch.equal(weights(TAGS[mixed], 50), counts[:, mixed])
    assert torch.equal(weights(TAGS[7:9], 50), counts[:, 7:9])
    assert torch.equal(weights(TAGS, 20), counts[:20])
    assert torch.equal(weights(TAGS, 50), counts)
    assert not torch.equal(weights(TAGS + 1, 50), counts)
    assert weights(TAGS[:0], 5).shape == (5, 0)
    assert weights(TAGS, 0).shape == (0, 400)


def test_means_of_resamples() -> None:
    values = torch.tensor([1.0, 2.0, 6.0])
    assert mean(values).tolist() == [3.0]
    assert mean(values, torch.tensor([[0, 2, 0], [1, 0, 1], [0, 0, 0]])).tolist() == [2.0, 3.5, 3.0]
    assert mean(values, weights(torch.arange(3), 0)).tolist() == []


def test_a_run_on_the_same_people_has_the_same_replicates() -> None:
    truth, score = leak(Keys.seed(1), 400, 1.0)
    mixed = Keys.seed(2).order(400)
    table = torch.stack([-score, score], 1)
    one = judge(truth, table, weights(TAGS, 100))
    other = judge(truth[mixed], table[mixed], weights(TAGS[mixed], 100))
    for name in one:
        torch.testing.assert_close(one[name].replicates, other[name].replicates, atol=1e-12, rtol=0)


def test_intervals_are_percentiles() -> None:
    found = summary(50.0, torch.arange(101, dtype=torch.float64))
    assert found.plain() == pytest.approx({"value": 50.0, "low": 2.5, "high": 97.5})
    alone = summary(0.7, torch.zeros(0, dtype=torch.float64))
    assert alone.plain() == {"value": 0.7, "low": 0.7, "high": 0.7}


@pytest.mark.parametrize("strength", [0.0, 1.0])
def test_the_interval_covers_the_truth(strength: float) -> None:
    """400 samples of 200 users; 95 % of the intervals should hold the area that a normal law has."""
    ideal, counts, covered = stats.norm.cdf(strength / math.sqrt(2)), weights(TAGS[:200], 300), 0
    for trial in range(400):
        truth, score = leak(Keys.seed(trial), 200, strength)
        found = summary(0.0, auc(truth, score, counts))
        covered += found.low <= ideal <= found.high
    assert 0.91 < covered / 400 < 0.98


def test_weights_that_vary_too_little_would_be_caught() -> None:
    """The twin of the test above: a fifth of the spread, and the intervals cover too little."""
    counts, covered = 4 + weights(TAGS[:200], 300).double(), 0
    for trial in range(200):
        truth, score = leak(Keys.seed(trial), 200, 1.0)
        found = summary(0.0, auc(truth, score, counts))
        covered += found.low <= stats.norm.cdf(1 / math.sqrt(2)) <= found.high
    assert covered / 200 < 0.5


@pytest.mark.parametrize("kind", ["two classes", "four classes", "values", "ties"])
def test_p_values_are_uniform_where_nothing_leaks(kind: str) -> None:
    found = []
    for trial in range(200):
        keys = Keys.seed(trial).fold(kind)
        classes = 4 if kind == "four classes" else 2
        truth = keys.fold("truth").integers(classes, 40)
        scores = keys.fold("scores").normal(40, classes, dtype=torch.float64)
        if kind == "values":
            truth, scores = keys.fold("truth").normal(40), scores[:, :1]
        scores = (scores * 8).round() if kind == "ties" else scores
        p = p_of(truth, scores, keys, 199)
        found.append(p - float(keys.uniform()) / 200)  # p has steps of 1/200: spread each over its step
    assert stats.kstest(found, "uniform").pvalue > 1e-3


def test_p_values_are_small_where_something_leaks() -> None:
    for sign in (1, -1):
        truth, score = leak(Keys.seed(5), 300, 1.0)
        assert p_of(truth, sign * score, Keys.seed(6)) == 1 / 1001
        assert p_of(score, (sign * truth.double())[:, None], Keys.seed(6), 99) == 1 / 100
    three = Keys.seed(7).integers(3, 300)
    table = torch.nn.functional.one_hot(three, 3) + Keys.seed(8).normal(300, 3)
    assert p_of(three, table, Keys.seed(6), 499) == p_of(three, -table, Keys.seed(6), 499) == 1 / 500


def test_p_values_against_all_permutations() -> None:
    truth = torch.tensor([0, 1, 2, 2, 1, 0])
    scores = torch.tensor([[3, 1, 0], [0, 2, 2], [1, 1, 2], [0, 1, 1], [0, 2, 1], [2, 2, 1]]).double()
    far = [abs(float(auc(truth[list(order)], scores)) - 0.5) for order in itertools.permutations(range(6))]
    exact = sum(distance >= far[0] - 1e-12 for distance in far) / len(far)
    assert 0.01 < exact < 0.5
    sampled = p_of(truth, scores, Keys.seed(1), 20_000)
    assert abs(sampled - exact) < 4.5 * math.sqrt(exact * (1 - exact) / 20_000)


def test_p_values_of_nothing() -> None:
    same, keys = torch.zeros(30, dtype=torch.long), Keys.seed(0)
    assert p_of(same, torch.arange(30.0), keys, 50) == 1
    assert p_of(torch.arange(30) % 2, torch.zeros(30, 2), keys, 50) == 1
    assert p_of(torch.ones(30), torch.arange(30.0)[:, None], keys, 50) == 1
    assert p_of(torch.tensor([1]), torch.zeros(1, 3), keys, 50) == 1
    assert p_of(torch.arange(30) % 2, torch.arange(30.0), keys, 0) == 1
    with pytest.raises(BadInput, match="no numbers"):
        p_of(torch.tensor([0, 1]), torch.tensor([math.nan, 1.0]), keys)


def test_p_values_come_from_the_keys() -> None:
    truth, score = leak(Keys.seed(4), 50, 0.3)
    first = p_of(truth, score, Keys.seed(1), 300)
    assert p_of(truth, score, Keys.seed(1), 300) == first
    assert len({p_of(truth, score, Keys.seed(k), 300) for k in range(10)}) > 1


def test_a_flipped_leak_leans_below() -> None:
    """RELIABILITY G6: an area of 0.30 is a leak of 0.20."""
    truth, score = leak(Keys.seed(3), 1500, -math.sqrt(2) * stats.norm.ppf(0.7))
    found = judge(truth, torch.stack([-score, score], 1), weights(torch.arange(1500), 300))["auc"]
    assert found.value == pytest.approx(0.30, abs=0.03)
    assert leaning(found) == "below"
    assert p_of(truth, score, Keys.seed(1), 199) == 1 / 200
    assert leaning(measured(0.7, [0.6, 0.8])) == "above"
    assert leaning(measured(0.5, [0.4, 0.6])) == "none"
    assert leaning(Measured(0.6, 0.5, 0.7, torch.zeros(0))) == "none"
    assert leaning(measured(-0.2, [-0.3, -0.1]), chance=0.0) == "below"
    assert leaning(measured(0.2, [0.1, 0.3]), chance=0.0) == "above"


def test_one_measurement_combines_to_itself() -> None:
    one = measured(0.6, [0.5, 0.7])
    assert combine([one]) is one
    with pytest.raises(BadInput, match="nothing to combine"):
        combine([])


def test_seeds_are_drawn_with_replacement() -> None:
    """Two seeds without doubt about users: both the first, one of each, or both the second."""
    found = combine([measured(0.0, [0.0] * 4000), measured(1.0, [1.0] * 4000)])
    assert found.value == 0.5
    counts = [int((found.replicates == value).sum()) for value in (0.0, 0.5, 1.0)]
    assert stats.chisquare(counts, [1000, 2000, 1000]).pvalue > ALARM
    assert torch.equal(
        found.replicates, combine([measured(0.0, [0.0] * 4000), measured(1.0, [1.0] * 4000)]).replicates
    )


def test_a_replicate_stays_with_its_resample() -> None:
    replicates = torch.arange(100, dtype=torch.float64)
    found = combine([measured(0.1, replicates), measured(0.2, replicates), measured(0.3, replicates[:80])])
    torch.testing.assert_close(found.replicates, replicates[:80])
    assert found.value == pytest.approx(0.2)


def test_two_runs_draw_the_same_seeds() -> None:
    """Each seed leaks 0.1 more in run a: that is sure, however much the seeds differ."""
    values = [0.55, 0.7, 0.85]
    a = combine([measured(value + 0.1, torch.full((500,), value + 0.1)) for value in values])
    b = combine([measured(value, torch.full((500,), value)) for value in values])
    assert a.high - a.low > 0.15
    assert paired(a, b) == pytest.approx((0.1, 0.1, 0.1))


def paired(a: Measured, b: Measured) -> tuple[float, float, float]:
    """How much larger a is than b, as two runs of one seed are compared."""
    first, second = (Measure(one.value, replicates=one.replicates.double().numpy()) for one in (a, b))
    return ends(difference({0: first}, {0: second}))


def claims(a: list[Measured], b: list[Measured]) -> bool:
    """Whether a difference would be printed."""
    first, second = combine(a), combine(b)
    _, low, high = paired(first, second)
    return low > 0 or high < 0


def attacked(keys: Keys, signal: Tensor, truth: Tensor, counts: Tensor, noise: float = 0.7) -> Measured:
    score = signal + noise * keys.normal(len(truth), dtype=torch.float64)
    rows = torch.cat([torch.ones(1, len(truth), dtype=counts.dtype), counts])
    found = auc(truth, score, rows)
    return summary(float(found[0]), found[1:])


def test_the_null_twin() -> None:
    """RELIABILITY G8: the same defence twice, with noise of its own, is rarely called a difference."""
    counts, found = weights(TAGS[:300], 300), 0
    for trial in range(200):
        keys = Keys.seed(trial).fold("twin")
        truth, signal = leak(keys, 300, 1.0)
        a, b = (attacked(keys.fold(name), signal, truth, counts) for name in "ab")
        found += claims([a], [b])
    assert found / 200 <= 0.08


def test_a_difference_is_found_that_separate_intervals_miss() -> None:
    counts, found, apart = weights(TAGS[:300], 300), 0, 0
    for trial in range(50):
        keys = Keys.seed(trial).fold("power")
        truth, signal = leak(keys, 300, 1.0)
        a = attacked(keys.fold("a"), signal, truth, counts, noise=0.1)
        b = attacked(keys.fold("b"), signal, truth, counts, noise=1.1)
        found += claims([a], [b])
        apart += a.low > b.high or b.low > a.high
    assert found >= 35
    assert apart <= 10


def test_replicates_that_do_not_pair_lose_the_difference() -> None:
    """The twin: run b was resampled by other keys, so the luck of the resamples no longer cancels."""
    truth, signal = leak(Keys.seed(1), 300, 1.0)
    widths = []
    for tags in (TAGS[:300], TAGS[:300] + 1):
        a = attacked(Keys.seed(2), signal, truth, weights(TAGS[:300], 300), noise=0.1)
        b = attacked(Keys.seed(3), signal, truth, weights(tags, 300), noise=0.3)
        _, low, high = paired(a, b)
        widths.append(high - low)
    assert widths[1] > 2 * widths[0]


def test_three_seeds_are_no_ground_for_a_claim() -> None:
    """What `combine` says of itself: where all doubt is about seeds, equal runs differ in over a quarter."""
    found = 0
    for trial in range(600):
        values = Keys.seed(trial).fold("few").normal(2, 3, dtype=torch.float64).tolist()
        a, b = ([measured(value, torch.full((300,), value)) for value in run] for run in values)
        found += claims(a, b)
    assert 0.25 < found / 600 < 0.35


def test_paired_is_the_interval_of_the_differences() -> None:
    a, b = measured(0.65, [0.5, 0.6, 0.7, 0.9]), measured(0.55, [0.4, 0.6, 0.5])
    found, low, high = paired(a, b)
    assert found == pytest.approx(0.1)
    assert (low, high) == pytest.approx(tuple(np.quantile([0.1, 0.0, 0.2], [0.025, 0.975])), abs=1e-15)
    assert paired(b, a) == pytest.approx((-found, -high, -low), abs=1e-15)
    assert difference({0: Measure(0.5)}, {0: Measure(0.4)}) is None, "nothing was resampled"


def test_an_outlier_does_not_make_the_others_constant() -> None:
    truth = torch.tensor([1.0, 2.0, 3.0, 1e9])
    without = torch.tensor([[1, 1, 1, 0]])
    assert float(r2(truth, truth, without)) == 1
    assert float(r2(truth, truth.flip(0).clamp(max=3), without)) < 0
