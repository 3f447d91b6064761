"""Inference metrics equal loops over pairs and users, on every resample, and stay finite whatever is left."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics as outside
from torch import Tensor

from veilrec.base.keys import Keys
from veilrec.errors import BadInput
from veilrec.metrics import resampling
from veilrec.metrics.inference import (
    auc,
    floors,
    judge,
    mean_absolute_error,
    r2,
    spearman,
    tpr_at,
)
from veilrec.metrics.resampling import weights

Found = dict[str, Tensor]  # a score's value, and those of the resamples
NAMES = ("auc", "balanced_accuracy", "macro_f1", "micro_f1", "tpr")  # in the order of the loops
CLOSE = 1e-12
GENDER = [1709, 4331]
AGE = [222, 1103, 2096, 1193, 550, 496, 380]
OCCUPATION = [759, *[264] * 19, 265]  # 21 classes of 6,040 users, the largest as in MovieLens-1M


def loop_auc(truth: list[int], scores: list[list[float]]) -> float:
    """Every pair of a member and an outsider, for every class."""
    areas = []
    for label in [1] if len(scores[0]) == 2 else sorted(set(truth)):
        inside = [row[label] for row, own in zip(scores, truth, strict=True) if own == label]
        outside_of = [row[label] for row, own in zip(scores, truth, strict=True) if own != label]
        won = [(a > b) + 0.5 * (a == b) for a in inside for b in outside_of]
        areas += [math.fsum(won) / len(won)] if won else []
    return math.fsum(areas) / len(areas) if areas else 0.5


def loop_confusion(truth: list[int], guess: list[int]) -> tuple[float, float, float]:
    """Balanced accuracy, macro-F1 and micro-F1, from right, missed and wrong guesses of each class."""
    recalls, f1s, totals = [], [], [0, 0, 0]
    for label in range(max(truth + guess) + 1):
        both = list(zip(truth, guess, strict=True))
        right = sum(t == label == g for t, g in both)
        missed = sum(t == label != g for t, g in both)
        wrong = sum(g == label != t for t, g in both)
        totals = [a + b for a, b in zip(totals, (right, missed, wrong), strict=True)]
        if right + missed:
            recalls.append(right / (right + missed))
            f1s.append(2 * right / (2 * right + missed + wrong))
    micro = 2 * totals[0] / (2 * totals[0] + totals[1] + totals[2])
    return math.fsum(recalls) / len(recalls), math.fsum(f1s) / len(f1s), micro


def loop_tpr(truth: list[int], score: list[float], fpr: float) -> float:
    """Walk the ROC curve from the highest score down, and stop where the line crosses `fpr`."""
    right, wrong = truth.count(1), truth.count(0)
    x, y = 0, 0
    if not right or not wrong:
        return fpr
    for value in sorted(set(score), reverse=True):
        tied = [t for t, s in zip(truth, score, strict=True) if s == value]
        if x + tied.count(0) > fpr * wrong + 1e-9:
            return (y + tied.count(1) * max(0.0, fpr * wrong - x) / tied.count(0)) / right
        x, y = x + tied.count(0), y + tied.count(1)
    return 1.0


def cases(count: int = 1000) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Truth, scores and two resamples: few users, many ties, classes that nobody has, resamples of nobody."""
    source = np.random.default_rng(4)
    for _ in range(count):
        n, classes = int(source.integers(1, 16)), int(source.choice([2, 2, 3, 5]))
        shares = source.dirichlet(np.full(classes, 0.7))
        scores = source.normal(size=(n, classes)).round(int(source.choice([0, 1, 8])))
        truth = source.choice(classes, size=n, p=shares)
        weight = source.poisson(1, size=(2, n)) * source.integers(0, 2, size=(2, 1))
        yield torch.tensor(truth), torch.tensor(scores), torch.tensor(weight, dtype=torch.uint8)


def judged(name: str) -> Callable[..., Tensor]:
    """A metric of guesses ``[n]``, as the judge gives it of scores: ``[b]``, or ``[1]`` without weights."""

    def metric(truth: Tensor, guess: Tensor, classes: int, weight: Tensor | None = None) -> Tensor:
        found = judge(truth, torch.nn.functional.one_hot(guess, classes).double(), weight)[name]
        return found.replicates.new_tensor([found.value]) if weight is None else found.replicates

    return metric


balanced_accuracy, macro_f1, micro_f1 = map(judged, ("balanced_accuracy", "macro_f1", "micro_f1"))


def drawn(weight: Tensor) -> list[int]:
    """The users of a resample, each as often as counted; everybody if nobody is."""
    return [user for user, count in enumerate(weight.tolist()) for _ in range(count)] or [*range(len(weight))]


def scored(truth: Tensor, scores: Tensor, weight: Tensor) -> Found:
    """What `judge` finds, and another rate."""
    found = judge(truth, scores, weight)
    told = {
        name: torch.cat([torch.tensor([one.value], dtype=torch.float64), one.replicates])
        for name, one in found.items()
    }
    rows = torch.cat([torch.ones(1, len(truth), dtype=torch.uint8), weight])
    return told | ({"tpr": tpr_at(truth, scores, 0.2, rows)} if scores.shape[1] == 2 else {})


def compare(score: Callable[[Tensor, Tensor, Tensor], Found] = scored, count: int = 1000) -> None:
    """RELIABILITY H5: every metric on the sample and on resamples against the loops."""
    for truth, scores, weight in cases(count):
        guess, found = scores.argmax(1), score(truth, scores, weight)
        names = [name for name in NAMES if name in found]
        for b, row in enumerate([torch.ones_like(weight[0]), *weight]):
            users = drawn(row)
            own, table = truth[users].tolist(), scores[users].tolist()
            expected = [loop_auc(own, table), *loop_confusion(own, guess[users].tolist())]
            expected += [loop_tpr(own, [line[1] for line in table], 0.2)] if len(table[0]) == 2 else []
            assert [float(found[name][b]) for name in names] == pytest.approx(expected, abs=CLOSE, rel=0)


@pytest.mark.parametrize("count", [200, pytest.param(1000, marks=pytest.mark.slow)])
def test_against_loops(count: int) -> None:
    compare(count=count)


def wins_only(truth: Tensor, scores: Tensor, weight: Tensor) -> Found:
    """A planted bug: a tie is a defeat."""
    nudged = scores - 1e-6 * torch.nn.functional.one_hot(truth, scores.shape[1])
    return scored(truth, scores, weight) | {"auc": scored(truth, nudged, weight)["auc"]}


def over_all_classes(truth: Tensor, scores: Tensor, weight: Tensor) -> Found:
    """A planted bug: a class that nobody has counts as a failure."""
    found, classes = scored(truth, scores, weight), scores.shape[1]
    rows = torch.cat([torch.ones(1, len(truth)), weight])
    there = torch.stack([(rows[:, truth == label] > 0).any(1) for label in range(classes)]).sum(0)
    return found | {"macro_f1": found["macro_f1"] * there / classes}


def unweighted(truth: Tensor, scores: Tensor, weight: Tensor) -> Found:
    """A planted bug: every replicate is the sample."""
    return scored(truth, scores, weight) | {"auc": auc(truth, scores).expand(1 + len(weight))}


@pytest.mark.parametrize("planted", [wins_only, over_all_classes, unweighted])
def test_planted_bugs_are_caught(planted: Callable[[Tensor, Tensor, Tensor], Found]) -> None:
    with pytest.raises(AssertionError):
        compare(planted, count=60)


@pytest.mark.parametrize("classes", [2, 3, 7])
def test_against_scikit_learn(classes: int) -> None:
    source = np.random.default_rng(classes)
    for digits in (1, 12):  # with many ties and with none
        truth, scores = source.integers(classes, size=400), source.random((400, classes)).round(digits)
        scores[np.arange(400), truth] += 0.1
        given_truth, table = torch.tensor(truth), torch.tensor(scores)
        guess = table.argmax(1)
        areas = [outside.roc_auc_score(truth == label, scores[:, label]) for label in range(classes)]
        area = areas[1] if classes == 2 else np.mean(areas)
        assert float(auc(given_truth, table)) == pytest.approx(area, abs=CLOSE)
        found = judge(given_truth, table)
        for name, value in {
            "balanced_accuracy": outside.balanced_accuracy_score(truth, guess),
            "macro_f1": outside.f1_score(truth, guess, average="macro", labels=np.unique(truth)),
            "micro_f1": outside.f1_score(truth, guess, average="micro"),
        }.items():
            assert found[name].value == pytest.approx(value, abs=CLOSE)
        assert found["micro_f1"].value == pytest.approx(outside.accuracy_score(truth, guess), abs=CLOSE)


def test_resamples_against_scikit_learn() -> None:
    source = np.random.default_rng(8)
    truth, scores = source.integers(2, size=300), source.normal(size=300).round(1)
    weight = weights(torch.arange(300), 20)
    found = auc(torch.tensor(truth), torch.tensor(scores), weight)
    for b, row in enumerate(weight.numpy()):
        assert float(found[b]) == pytest.approx(
            outside.roc_auc_score(truth, scores, sample_weight=row), abs=CLOSE
        )


def test_the_rate_at_one_per_cent() -> None:
    truth = torch.tensor([1] * 10 + [0] * 200)
    score = torch.cat(
        [torch.arange(10) * 10.0 + 100, torch.linspace(-200, 0, 197), torch.tensor([125.0, 145, 165])]
    )
    assert float(tpr_at(truth, score)) == 0.7  # two of 200 may be accused, the third stands at 125
    assert float(tpr_at(truth, score, 0.005)) == 0.5
    assert float(tpr_at(truth, score, 0.0)) == 0.3
    assert float(tpr_at(truth, -score)) == 0
    assert float(tpr_at(truth, torch.zeros(210))) == pytest.approx(0.01, abs=CLOSE)
    with pytest.raises(BadInput, match="two classes only"):
        tpr_at(truth, torch.zeros(210, 3))


@pytest.mark.parametrize("digits", [0, 6])
def test_values_against_others(digits: int) -> None:
    source = np.random.default_rng(digits)
    truth = source.normal(40, 12, size=200).round(digits)
    guess = (0.5 * truth + source.normal(0, 12, size=200)).round(digits)
    weight = torch.cat([torch.ones(1, 200, dtype=torch.uint8), weights(torch.arange(200), 10)])
    given_truth, given_guess = torch.tensor(truth), torch.tensor(guess)
    found = [metric(given_truth, given_guess, weight) for metric in (r2, mean_absolute_error, spearman)]
    for b, row in enumerate(weight):
        a, c = truth[drawn(row)], guess[drawn(row)]
        expected = [
            outside.r2_score(a, c),
            outside.mean_absolute_error(a, c),
            stats.spearmanr(a, c).statistic,
        ]
        assert [float(value[b]) for value in found] == pytest.approx(expected, abs=CLOSE)


LEVELS = st.integers(-5, 5).map(float)
ROWS = st.lists(st.tuples(st.integers(0, 1), LEVELS), min_size=1, max_size=40)


@given(rows=ROWS, seed=st.integers(0, 99))
@settings(max_examples=80, deadline=None)
def test_only_the_order_of_scores_matters(rows: list[tuple[int, float]], seed: int) -> None:
    truth, score = torch.tensor([t for t, _ in rows]), torch.tensor([s for _, s in rows])
    tags = torch.arange(len(rows))
    weight = weights(tags, 5)
    area, rate = auc(truth, score, weight), tpr_at(truth, score, 0.1, weight)
    for changed in (score.exp(), 3 * score + 1, score**3):
        assert torch.equal(auc(truth, changed, weight), area)
        assert torch.equal(tpr_at(truth, changed, 0.1, weight), rate)
    mixed = Keys.seed(seed).order(len(rows))
    torch.testing.assert_close(
        auc(truth[mixed], score[mixed], weights(tags[mixed], 5)), area, atol=CLOSE, rtol=0
    )
    torch.testing.assert_close(auc(truth, -score, weight), 1 - area, atol=CLOSE, rtol=0)
    torch.testing.assert_close(auc(1 - truth, score, weight), 1 - area, atol=CLOSE, rtol=0)
    assert bool(((area >= 0) & (area <= 1) & (rate >= 0) & (rate <= 1)).all())


@given(
    truth=st.lists(st.integers(0, 3), min_size=1, max_size=25),
    seed=st.integers(0, 999),
    flat=st.booleans(),
    classes=st.sampled_from([4, 6]),
)
@settings(max_examples=80, deadline=None)
def test_whatever_is_left_the_numbers_are_finite(
    truth: list[int], seed: int, flat: bool, classes: int
) -> None:
    scores = Keys.seed(seed).normal(len(truth), classes) * (0 if flat else 1)
    labels, weight = torch.tensor(truth), weights(torch.arange(len(truth)) + seed, 8)
    found = [*judge(labels, scores, weight).values(), *judge(labels.double(), scores[:, :1], weight).values()]
    found += judge(labels.clamp(max=1), scores[:, :2], weight).values()
    for one in found:
        assert all(map(math.isfinite, (one.value, one.low, one.high, *one.replicates.tolist())))
        assert one.low <= one.high
        assert len(one.replicates) == 8


@pytest.mark.parametrize("score", [0.0, 0.5, -math.inf])
def test_equal_scores_are_chance(score: float) -> None:
    truth = torch.tensor([0, 1, 1, 2] * 20)
    weight = weights(torch.arange(80), 50)
    assert auc(truth, torch.full((80, 3), score), weight).tolist() == [0.5] * 50
    assert auc(truth.clamp(max=1), torch.full((80, 2), score), weight).tolist() == [0.5] * 50


def test_one_user_and_one_class() -> None:
    alone = judge(torch.tensor([1]), torch.tensor([[0.2, 0.8]]), weights(torch.tensor([5]), 30))
    assert {name: one.plain() for name, one in alone.items()} == {
        name: {"value": value, "low": value, "high": value}
        for name, value in {
            "auc": 0.5,
            "balanced_accuracy": 1.0,
            "macro_f1": 1.0,
            "micro_f1": 1.0,
            "tpr_at_1": 0.01,
        }.items()
    }
    assert float(auc(torch.zeros(9, dtype=torch.long), torch.arange(9.0))) == 0.5


def test_a_class_that_a_resample_lacks_is_left_out_of_it() -> None:
    truth, guess = torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 1, 0])
    scores = torch.nn.functional.one_hot(guess, 3).double()
    weight = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0], [0, 0, 3, 0], [0, 0, 0, 0]])
    found = judge(truth, scores, weight)
    assert found["balanced_accuracy"].replicates.tolist() == [0.5, 0.75, 1, 0.5]
    assert found["macro_f1"].replicates.tolist() == pytest.approx([7 / 18, 2 / 3, 1, 7 / 18])
    first = [0.5, 5 / 6, 0.5]  # of the classes 0, 1 and 2 in the whole sample
    assert auc(truth, scores, weight).tolist() == pytest.approx([sum(first) / 3, 0.75, 0.5, sum(first) / 3])


def test_constant_values() -> None:
    flat, other = torch.full((20,), 7.3), torch.arange(20.0)
    weight = weights(torch.arange(20), 40)
    assert r2(flat, other, weight).tolist() == [0.0] * 40
    assert r2(flat, flat, weight).tolist() == [0.0] * 40
    assert spearman(flat, other, weight).tolist() == spearman(other, flat, weight).tolist() == [0.0] * 40
    assert r2(other, other, weight).tolist() == [1.0] * 40
    mixed = torch.tensor([1e6, 1e6, 1e6, 3.7])
    assert r2(mixed, other[:4], torch.tensor([[2, 1, 3, 0], [0, 0, 0, 5]])).tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("truth", "scores", "words"),
    [
        (torch.tensor([0, 1]), torch.tensor([[0.1, math.nan], [0.5, 0.5]]), "no numbers"),
        (torch.tensor([0, 1]), torch.zeros(3, 2), "3 rows for 2 users"),
        (torch.tensor([0, 2]), torch.zeros(2, 2), "a label outside 0 … 1"),
        (torch.tensor([-1, 1]), torch.zeros(2, 2), "a label outside"),
        (torch.zeros(0, dtype=torch.long), torch.zeros(0, 2), "0 rows for 0 users"),
        (torch.tensor([0.5, 1.0]), torch.tensor([[math.inf], [1.0]]), "no numbers"),
        (torch.tensor([0.5, math.nan]), torch.zeros(2, 1), "no numbers"),
        (torch.tensor([0.5, 1.0]), torch.zeros(2, 3), "3 columns for a continuous"),
        (torch.tensor([0, 1]), torch.zeros(2), "give \\[users, classes\\]"),
    ],
)
def test_what_cannot_be_judged_is_refused(truth: Tensor, scores: Tensor, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        judge(truth, scores)
    with pytest.raises(BadInput, match="for 2 users"):
        auc(torch.tensor([0, 1]), torch.zeros(2, 2), torch.ones(4, 3))


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    truth, scores = Keys.seed(1).integers(3, 90), Keys.seed(2).normal(90, 3)
    weight = weights(torch.arange(90), 70)
    whole = [one.replicates for one in judge(truth, scores, weight).values()]
    monkeypatch.setattr(resampling, "BLOCK", 1000)
    assert torch.equal(weights(torch.arange(90), 70), weight)
    parts = [one.replicates for one in judge(truth, scores, weight).values()]
    assert all(torch.equal(a, b) for a, b in zip(whole, parts, strict=True))


def test_judge_says_what_it_measured() -> None:
    truth, scores = Keys.seed(1).integers(3, 200), Keys.seed(2).normal(200, 3)
    found = judge(truth, scores, weights(torch.arange(200), 100))
    assert list(found) == ["auc", "balanced_accuracy", "macro_f1", "micro_f1"]
    assert list(judge(truth.clamp(max=1), scores[:, :2])) == [*found, "tpr_at_1"]
    assert list(judge(truth.double(), scores[:, :1])) == ["r2", "mae", "spearman"]
    for one in found.values():
        assert one.low < one.value < one.high
        assert (one.low, one.high) == pytest.approx(
            tuple(np.quantile(one.replicates.numpy(), [0.025, 0.975]))
        )
    assert found["auc"].value == float(auc(truth, scores))
    assert found["micro_f1"].value == float((truth == scores.argmax(1)).double().mean())
    plain = judge(truth, scores)["auc"]
    assert plain.low == plain.value == plain.high


def labels(counts: list[int]) -> Tensor:
    return torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))


@pytest.mark.parametrize(("counts", "majority"), [(GENDER, 0.7171), (AGE, 0.3470), (OCCUPATION, 0.1257)])
def test_floors_of_movielens(counts: list[int], majority: float) -> None:
    """RELIABILITY G5: 0.7171, 0.3470 and 0.1257, whoever is known."""
    everyone = labels(counts)
    assert len(everyone) == 6040
    found = floors(everyone[::5], everyone, len(counts))
    assert round(found["majority"]["micro_f1"], 4) == majority
    assert found["majority"]["balanced_accuracy"] == pytest.approx(1 / len(counts))
    assert found["uniform"]["micro_f1"] == pytest.approx(1 / len(counts))
    assert found["uniform"]["balanced_accuracy"] == pytest.approx(1 / len(counts))
    assert found["random"]["balanced_accuracy"] == pytest.approx(1 / len(counts))
    assert all(metrics["auc"] == 0.5 for metrics in found.values())
    exact = floors(everyone, everyone, len(counts))["random"]["micro_f1"]
    assert exact == pytest.approx(sum((count / 6040) ** 2 for count in counts))


@pytest.mark.parametrize("name", ["majority", "random", "uniform"])
def test_floors_are_what_guessing_gives(name: str) -> None:
    known, truth = labels([50, 90, 20]), labels([3000, 2500, 900])
    found, keys = floors(known, truth, 3)[name], Keys.seed(7)
    guesses = {
        "majority": lambda k: torch.ones_like(truth),
        "random": lambda k: known[keys.fold(k).integers(len(known), len(truth))],
        "uniform": lambda k: keys.fold(k).integers(3, len(truth)),
    }
    judged = [judge(truth, torch.nn.functional.one_hot(guesses[name](k), 3)) for k in range(40)]
    for metric in ("micro_f1", "balanced_accuracy", "macro_f1"):
        mean = sum(one[metric].value for one in judged) / 40
        assert found[metric] == pytest.approx(mean, abs=0.003 if name != "majority" else CLOSE)


def test_floors_where_little_is_known() -> None:
    tied = floors(torch.tensor([2, 1, 1, 2, -1, -1, -1]), torch.tensor([0, 1, 2, 2]), 3)
    assert tied["majority"]["micro_f1"] == 0.25  # class 1, the lower of two equals
    absent = floors(torch.tensor([3, 3]), torch.tensor([0, 1, 1]), 4)
    assert (
        absent["majority"]
        == absent["random"]
        == {
            "micro_f1": 0.0,
            "balanced_accuracy": 0.0,
            "macro_f1": 0.0,
            "auc": 0.5,
        }
    )
    nothing = floors(torch.full((5,), -1), torch.tensor([0, 1]), 2)
    assert nothing["random"] == nothing["uniform"]


def test_floors_of_values() -> None:
    known, truth = torch.tensor([20.0, 30.0, 70.0, math.nan]), torch.tensor([40.0, 50.0])
    found = floors(known, truth, 0)
    assert found["mean"] == {"r2": pytest.approx(1 - 100 / 50), "mae": 5.0, "spearman": 0.0}  # always 40
    assert found["median"] == {"r2": pytest.approx(1 - 500 / 50), "mae": 15.0, "spearman": 0.0}  # always 30
    with pytest.raises(BadInput, match="no value is known"):
        floors(torch.tensor([math.nan]), truth, 0)


def test_every_pair_of_small_classes_once() -> None:
    """All ways to rank two members and two outsiders with up to three levels, by hand."""
    truth = torch.tensor([1, 1, 0, 0])
    for levels in itertools.product((0.0, 1.0, 2.0), repeat=4):
        won = [(a > b) + 0.5 * (a == b) for a in levels[:2] for b in levels[2:]]
        assert float(auc(truth, torch.tensor(levels))) == sum(won) / 4
