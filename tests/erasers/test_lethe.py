"""Lethe: classes end as far apart as random users are, by sums alone, and nobody else moves."""

from __future__ import annotations

import pytest
import torch
from scipy import stats
from torch import Tensor

from tests.canary import Canaries
from tests.erasers.worlds import KEYS, by_silos, covariances, keyed, means, told, whole
from veilrec.base.draws import Draws
from veilrec.eraser import Request
from veilrec.erasers.common import null, ranks, sums
from veilrec.erasers.common.gauss import power
from veilrec.erasers.common.null import OntoNull, Survey, null_covariance
from veilrec.erasers.common.ranks import Coordinates, Lengths, RankStep, level_of
from veilrec.erasers.common.sums import Held
from veilrec.erasers.lethe import Lethe
from veilrec.metrics.inference import auc

ALARM = 1e-6  # of a false one, for each statistic below; the seeds are fixed


def held_of(vectors: Tensor, label: Tensor, draws: Draws | None = None) -> Held:
    everybody = torch.ones(len(label), dtype=torch.bool)
    tags = torch.arange(len(label))
    return Held(vectors, label, everybody, everybody, int(label.max()) + 1, draws or keyed(), tags)


def surveyed(held: Held) -> dict[str, Tensor]:
    return Survey().fit(Survey().statistics(held, {}), {}, held.draws)


def noise(users: int, width: int, seed: int, *, tails: float = 0.0) -> Tensor:
    keys = KEYS.fold("noise").fold(seed)
    long = (tails * keys.fold("long").normal(users, 1, dtype=torch.float64)).exp()
    return long * keys.normal(users, width, dtype=torch.float64)


def distances(counts: tuple[int, int], width: int, *, apart: float) -> list[float]:
    """Of 200 draws, squared distances of two means after it, in units of what random users would show."""
    found = []
    for seed in range(200):
        vectors, label = told(counts, width, seed, apart=apart)
        after = whole(Lethe(), vectors, label, keyed(seed))
        inside = after - means(after, label)[label]
        first, second = means(after, label) @ power(inside.T @ inside / (sum(counts) - 2), -0.5)
        found.append(float((first - second).square().sum()) / (1 / counts[0] + 1 / counts[1]))
    return found


@pytest.mark.parametrize("apart", [0.0, pytest.param(1.0, marks=pytest.mark.slow)], ids=["noise", "told"])
def test_means_end_as_far_apart_as_those_of_random_users(apart: float) -> None:
    """χ² with an axis for each column; Hotelling's law, a little wider, is not told apart from it here."""
    assert stats.kstest(distances((60, 140), 4, apart=apart), stats.chi2(4).cdf).pvalue > ALARM


def test_a_drawn_covariance_is_that_of_so_many_users() -> None:
    """Its trace is χ² with an axis for each user and column, but for the user that a mean costs."""
    users, width = 12, 5
    drawn = torch.stack([null_covariance(users, width, keyed(seed)) for seed in range(400)])
    trace = users * drawn.diagonal(dim1=1, dim2=2).sum(1)
    assert stats.kstest(trace.numpy(), stats.chi2((users - 1) * width).cdf).pvalue > ALARM
    expected = (users - 1) / users * torch.eye(width, dtype=torch.float64)
    assert torch.allclose(drawn.mean(0), expected, atol=0.1)  # five standard errors
    assert bool((torch.linalg.eigvalsh(drawn) > 0).all())


def test_shapes_end_at_the_moments_that_were_drawn() -> None:
    """The equations: after the map, mean and covariance of each class's shapes are those of the draw."""
    vectors, label = told((40, 60, 30), 4)
    held = held_of(vectors, label)
    letter = surveyed(held)
    step = OntoNull()
    sums_ = step.statistics(held, letter)
    letter = step.fit(sums_, letter, held.draws)
    long = null.lengths(null.about(vectors, letter), letter)
    after = null.about(step.apply(letter, held), letter) / long
    own = null.about(vectors, letter) / long
    inside = own - means(own, label)[label]
    spread = power(inside.T @ inside / 127, 0.5)
    mean = held.draws.normal("mean", 3, 4) @ spread / torch.tensor([40.0, 60.0, 30.0]).sqrt()[:, None]
    assert torch.allclose(means(after, label), own.mean(0) + mean, atol=1e-8)
    for k, users in enumerate((40, 60, 30)):
        axes = letter["axes"]
        inner = power(axes.T @ spread @ spread @ axes, 0.5)
        drawn = axes @ inner @ null_covariance(users, 4, held.draws.fold(str(k))) @ inner @ axes.T
        assert torch.allclose(covariances(after, label)[k], drawn, atol=1e-4)  # up to the ridge


@pytest.mark.parametrize("step", [Lengths(), Coordinates()], ids=lambda one: type(one).__name__)
def test_ranks_give_each_class_the_distribution_of_its_lot(step: RankStep) -> None:
    """Along every axis the shares below any edge agree with those of the lot, to less than a bin."""
    vectors, label = told((300, 700), 3)
    held = held_of(vectors, label)
    letter = surveyed(held)
    before = step.statistics(held, letter)
    letter = step.fit(before, letter, held.draws)
    after = step.statistics(held._replace(vectors=step.apply(letter, held)), letter)
    own, was, lot = (one.double().cumsum(-1) for one in (after["own"], before["own"], before["lot"]))
    own, was, lot = (one / one[..., -1:] for one in (own, was, lot))
    assert float((own - lot).abs().max()) < 0.1 * float((was - lot).abs().max()) + 0.02


def test_a_class_of_few_keeps_its_ranks_along_columns() -> None:
    """Of fewer than two users a column; along its lengths, which are one axis, it is moved."""
    vectors, label = told((5, 60, 400), 3)
    held = held_of(vectors, label)
    letter, few = surveyed(held) | {"group": torch.arange(3)}, label == 0
    for step, moved in ((Coordinates(), False), (Lengths(), True)):
        after = step.apply(step.fit(step.statistics(held, letter), letter, held.draws), held)
        changed = ((after - vectors).abs() > 1e-9).any(1)
        assert bool(changed[few].any()) == moved
        assert bool(changed[label == 1].any())
        assert bool(changed[label == 2].any())


def test_levels_tell_distant_values_apart() -> None:
    value = torch.tensor([-40.0, -39.0, 39.0, 40.0], dtype=torch.float64)
    assert bool((level_of(value).diff() > 0).all())


@pytest.mark.slow
@pytest.mark.parametrize("tails", [0.0, 0.4], ids=["light", "heavy"])
def test_on_noise_nobody_reads_anything_above_or_below_chance(tails: float) -> None:
    """Of labels without meaning, neighbours, a quadratic and a linear reader are right half of the time.

    Matching moments of the vectors themselves would let neighbours read more than .6 where tails are heavy,
    and making them equal would let the quadratic one read less than .2.
    """
    from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
    from sklearn.linear_model import LogisticRegression
    from sklearn.svm import SVC

    found: dict[str, list[float]] = {}
    for seed in range(8):
        vectors, label = noise(1200, 24, seed, tails=tails), (torch.arange(1200) % 10 < 3).long()
        after = whole(Lethe(), vectors, label, keyed(seed)).numpy()
        known = KEYS.fold(seed).uniform(1200) < 0.8
        for reader in (SVC(), QuadraticDiscriminantAnalysis(), LogisticRegression()):
            fitted = reader.fit(after[known], label[known])
            score = torch.from_numpy(fitted.decision_function(after[~known]))
            read = auc(label[~known], torch.stack([-score, score], 1))[0]
            found.setdefault(type(reader).__name__, []).append(float(read))
    for name, read in found.items():
        assert abs(sum(read) / len(read) - 0.5) < 0.06, name  # four standard errors of eight splits


def test_what_was_told_is_gone_from_means_and_spreads() -> None:
    """A class that lies apart and is three times as wide ends no further away than chance."""
    gender = (torch.arange(600) % 3 == 0).long()
    vectors = noise(600, 5, 1) * (1 + 2 * gender[:, None]) + 3 * gender[:, None]
    after = whole(Lethe(), vectors, gender)
    spread = after.std(0)
    first, second = means(after, gender)
    assert float(((first - second) / spread).abs().max()) < 5 * (1 / 200 + 1 / 400) ** 0.5
    wide = torch.stack([after[gender == k].std(0) for k in (0, 1)])
    assert float((wide[0] / wide[1]).log().abs().max()) < 5 * (0.5 / 200 + 0.5 / 400) ** 0.5


def test_it_moves_as_little_as_it_can() -> None:
    """Where nothing is told, users stay much nearer to themselves than to anybody else."""
    vectors, label = noise(400, 4, 2), torch.arange(400) % 2
    after = whole(Lethe(), vectors, label)
    assert float((after - vectors).square().mean()) < 0.1 * float(vectors.square().mean())


@pytest.mark.parametrize("width", [12, pytest.param(128, marks=pytest.mark.slow)])
def test_twenty_one_classes_of_which_some_are_tiny(width: int) -> None:
    """Classes from one user on, a tenth without a label: finite, and the rules hold."""
    counts = (1, 7, 7, 9, 12, *[20 + 10 * k for k in range(16)])
    vectors, label = told(counts, width, apart=0.3)
    label = torch.where(torch.arange(len(label)) % 10 == 0, -1, label)
    after = whole(Lethe(), vectors, label)
    assert bool(after.isfinite().all())
    assert torch.equal(after[label < 0], vectors[label < 0])
    assert float(after.norm(dim=1).max()) < 3 * float(vectors.norm(dim=1).max())
    letter = surveyed(held_of(vectors[label >= 0], label[label >= 0]))
    assert letter["group"][:5].tolist() == [0, 0, 0, 3, 4]  # those of fewer than eight are one


def test_users_who_ask_are_moved_among_themselves() -> None:
    """What others have has no say in it: neither their vectors nor their labels."""
    vectors, label = told((100, 150), 4)
    asks = torch.arange(250) % 2 == 0
    after = Lethe().forget(vectors, Request({"gender": label}, asks=asks), keyed())
    other = torch.where(asks[:, None], vectors, 9.0 + vectors.flip(0))
    again = Lethe().forget(other, Request({"gender": torch.where(asks, label, 1)}, asks=asks), keyed())
    assert torch.allclose(after[asks], again[asks], atol=1e-9)


def test_blocks_of_rows_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors, label = told((40, 51), 3)
    label[::7] = -1
    one = whole(Lethe(), vectors, label)
    monkeypatch.setattr(ranks, "BLOCK", 9)
    assert torch.equal(whole(Lethe(), vectors, label), one)


@pytest.mark.parametrize(
    ("asking", "refused"), [((8, 8, 0), False), ((30, 7, 0), True), ((0, 0, 40), True), ((0, 0, 0), True)]
)
def test_too_few_to_move_among_each_other_are_refused(asking: tuple[int, ...], refused: bool) -> None:
    """Who asks counts, and nobody else, however many there are and whatever is known of them."""
    label = torch.arange(3).repeat_interleave(50)
    place = torch.arange(150) % 50
    asks = place < torch.tensor(asking)[label]
    request = Request({"gender": label}, asks=asks, lends=~asks)
    assert (Lethe().refusal(request) is not None) == refused
    unknown = Request({"gender": torch.where(asks, -1, label)}, asks=asks)
    assert "of the classes of gender" in str(Lethe().refusal(unknown))


def test_only_sums_and_counts_leave_a_silo(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors, label = told((100, 150, 90), width=4)
    canaries, sent = Canaries(), list[bytes]()
    canaries.numbers("vector", vectors)
    plain = sums.encode

    def watched(message: dict[str, Tensor]) -> bytes:
        sent.append(plain({**message}))
        return sent[-1]

    monkeypatch.setattr(sums, "encode", watched)
    by_silos(Lethe(), vectors, Request({"gender": label}), silos=10, least=2)
    assert len(sent) == 40
    assert canaries.scan({str(k): data for k, data in enumerate(sent)}) == []


def test_maps_that_come_back_hold_nobodys_vector() -> None:
    """All ten silos get the same map, from sums alone: its bytes have none of the vectors, old or new."""
    vectors, label = told((100, 150, 90), width=4)
    request = Request({"gender": label})
    canaries, maps = Canaries(), dict[str, bytes]()
    canaries.numbers("vector", vectors)
    users = [torch.arange(k, 340, 10) for k in range(10)]
    holders = [sums.Holder(vectors[own], request.of(own), keyed(), least=2) for own in users]
    letter: dict[str, Tensor] = {}
    for name, step in Lethe().steps(request):
        held = [holder.held(name, needs_labels=True) for holder in holders]
        each = [step.statistics(one, letter) for one in held]
        letter = step.fit({key: sum(one[key] for one in each) for key in each[0]}, letter, keyed())  # type: ignore[misc]
        maps[type(step).__name__] = sums.encode({**letter})
        for holder, one in zip(holders, held, strict=True):
            holder.vectors = step.apply(letter, one)
    for holder in holders:
        canaries.numbers("erased", holder.vectors)
    assert list(maps) == ["Survey", "OntoNull", "Lengths", "Coordinates"]
    assert canaries.scan(maps) == []
    assert canaries.scan({"sent": sums.encode({"row": vectors[:1]})}) != []  # what a scan would find
