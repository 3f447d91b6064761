"""Closed forms against what others compute, against hand-made numbers, and against what they promise."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.linalg import sqrtm
from torch import Tensor

from tests.canary import Canaries
from tests.erasers.worlds import by_silos, covariances, keyed, means, told, whole
from veilrec.base.params import Message
from veilrec.eraser import Request
from veilrec.erasers.common import sums as contract
from veilrec.erasers.common.gauss import barycentre, power, transport
from veilrec.erasers.common.moments import Moments, of_classes
from veilrec.erasers.gaussian_transport import GaussianTransport
from veilrec.erasers.leace import LEACE
from veilrec.erasers.leace_null import LeaceNull
from veilrec.errors import BadInput

ALARM = 1e-6  # of a false one, for each statistic below; the seeds are fixed


def by_hand(vectors: Tensor, label: Tensor) -> Tensor:
    """LEACE as least squares has it: subtract the regression on the attribute's own linear prediction.

    Of all affine maps without covariance with z, x - C (CᵀS⁻¹C)⁺ CᵀS⁻¹ (x - mean) moves x least.
    """
    x, z = vectors.numpy(), np.eye(int(label.max()) + 1)[label.numpy()]
    x0, z0 = x - x.mean(0), z - z.mean(0)
    c, s = x0.T @ z0 / len(x), x0.T @ x0 / len(x)
    predicted = x0 @ np.linalg.solve(s, c)
    return torch.from_numpy(x - predicted @ np.linalg.pinv(c.T @ np.linalg.solve(s, c), rcond=1e-10) @ c.T)


@pytest.mark.parametrize("counts", [(80, 120), (30, 60, 90, 20)], ids=str)
def test_leace_is_what_least_squares_says(counts: tuple[int, ...]) -> None:
    vectors, label = told(counts, width=6)
    assert torch.allclose(whole(LEACE(), vectors, label), by_hand(vectors, label), atol=1e-10)


@pytest.mark.parametrize("counts", [(80, 120), (30, 60, 90, 20)], ids=str)
def test_leace_is_what_its_authors_compute(counts: tuple[int, ...]) -> None:
    oracle = pytest.importorskip("concept_erasure", reason="comes with the extra dev")
    vectors, label = told(counts, width=6)
    z = torch.nn.functional.one_hot(label).double()
    theirs = oracle.LeaceFitter.fit(vectors, z, shrinkage=False, svd_tol=1e-8).eraser(vectors)
    assert torch.allclose(whole(LEACE(), vectors, label), theirs, atol=1e-6)


def test_leace_makes_means_equal_and_nothing_smaller_does() -> None:
    vectors, label = told((80, 120, 50), width=6)
    after = whole(LEACE(), vectors, label)
    assert torch.allclose(means(after, label), vectors.mean(0).expand(3, -1), atol=1e-10)
    blunt = vectors - (means(vectors, label) - vectors.mean(0))[label]  # needs labels, and moves less
    assert (blunt - vectors).square().sum() < (after - vectors).square().sum()
    turned = (vectors - vectors.mean(0)) @ power(vectors.T.cov(correction=0), -0.5)
    assert int(torch.linalg.matrix_rank(after - vectors, atol=1e-8)) == 2  # of three classes
    assert bool(turned.isfinite().all())


def test_a_unit_of_a_column_says_nothing() -> None:
    vectors, label = told((80, 120), width=4)
    unit = torch.tensor([1.0, 1e-9, 1e6, 1.0], dtype=torch.float64)
    after = whole(LEACE(), vectors * unit, label) / unit
    assert torch.allclose(after, whole(LEACE(), vectors, label), atol=1e-6)


def test_the_null_draw_leaves_classes_as_far_apart_as_random_ones() -> None:
    """Of 200 draws: squared distances of two means, in units of their noise, are χ² with one axis less.

    The attribute's own direction is projected out; where it is strong, the null is left in all others.
    """
    width, found = 5, []
    vectors, label = told((150, 250), width, apart=0.0)
    vectors[:, 0] += 8.0 * label
    noise = vectors - means(vectors, label)[label]
    white = power(noise.T @ noise / 398, -0.5)
    for seed in range(200):
        first, second = means(whole(LeaceNull(), vectors, label, keyed(seed)) @ white, label)
        found.append(float((first - second).square().sum()) / (1 / 150 + 1 / 250))
    assert stats.kstest(found, stats.chi2(width - 1).cdf).pvalue > ALARM
    exact = means(whole(LEACE(), vectors, label), label)
    assert float((exact[0] - exact[1]).abs().max()) < 1e-10


def test_a_gaussian_map_carries_one_covariance_to_the_other() -> None:
    one, other = (covariances(*told((60,), 5, seed))[0] for seed in (1, 2))
    map_ = transport(one, other)
    assert torch.allclose(map_ @ one @ map_, other, atol=1e-8)
    root = sqrtm(one.numpy())
    back = np.linalg.inv(root)
    theirs = back @ sqrtm(root @ other.numpy() @ root) @ back
    assert np.allclose(map_.numpy(), theirs.real, atol=1e-8)


def test_a_barycentre_is_its_own_mean_of_transports() -> None:
    three = torch.stack([covariances(*told((60,), 5, seed))[0] for seed in range(3)])
    weights = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    for some, part in ((three, weights), (three[:2], weights[:2])):
        middle = barycentre(some, part)
        share = part / part.sum()
        maps = sum(w * transport(middle, c) for w, c in zip(share, some, strict=True))
        assert torch.allclose(maps, torch.eye(5, dtype=torch.float64), atol=1e-3)
    assert torch.equal(barycentre(three[:1], weights[:1]), three[0])


def test_transport_gives_every_large_class_the_same_moments() -> None:
    vectors, label = told((80, 120, 9), width=5)
    after = whole(GaussianTransport(), vectors, label)
    found = covariances(after, label)
    assert torch.allclose(means(after, label), vectors.mean(0).expand(3, -1), atol=1e-8)
    assert torch.allclose(found[0], found[1], atol=1e-8)
    assert torch.allclose(found[2], covariances(vectors, label)[2], atol=1e-8)  # too small: only its mean


def test_moments_of_sums_are_those_of_the_users() -> None:
    vectors, label = told((30, 50, 20), width=4)
    for squares in (True, False):
        moments = Moments.of(of_classes(vectors, label, 3, squares=squares))
        inside = vectors - means(vectors, label)[label]
        assert torch.allclose(moments.within, inside.T @ inside / 97)
        assert torch.allclose(moments.middle, vectors.mean(0))
        assert torch.allclose(moments.mean, means(vectors, label))
    assert torch.allclose(Moments.of(of_classes(vectors, label, 3)).covariance, covariances(vectors, label))


def test_only_sums_leave_a_silo_and_none_over_too_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every message of ten silos is scanned for the vector of anybody; a class of one is left out of it."""
    vectors, label = told((100, 150, 10), width=4)
    canaries, sent = Canaries(), list[bytes]()
    canaries.numbers("vector", vectors)
    plain = contract.encode

    def watched(message: Message) -> bytes:
        sent.append(plain(message))
        return sent[-1]

    monkeypatch.setattr(contract, "encode", watched)
    for eraser in (LEACE(), GaussianTransport()):
        by_silos(eraser, vectors, Request({"gender": label}), silos=10, least=2)
        assert len(sent) == 10
        assert canaries.scan({str(k): data for k, data in enumerate(sent)}) == []
        sent.clear()
    by_silos(LEACE(), vectors, Request({"gender": label}), silos=130)
    assert canaries.scan({str(k): data for k, data in enumerate(sent)}) != []  # whose sums are over one user


def test_a_holder_sends_what_is_declared_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors, label = told((20, 30), width=4)

    def more(*given: object, **rest: object) -> dict[str, Tensor]:
        return {**of_classes(*given, **rest), "vectors": vectors}  # type: ignore[arg-type]

    monkeypatch.setattr("veilrec.erasers.common.linear.of_classes", more)
    with pytest.raises(BadInput, match="send what the schema declares"):
        by_silos(LEACE(), vectors, Request({"gender": label}), silos=2)
