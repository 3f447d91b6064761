"""AegisCS: the paper's divergence by hand, its descent against automatic gradients, and its rules."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tests.erasers.worlds import KEYS, by_silos, covariances, keyed, means, told, whole
from veilrec.eraser import Request
from veilrec.erasers.aegis_cs import AegisCS
from veilrec.erasers.common.descent import GroupCloud, UserCloud
from veilrec.erasers.common.divergence import apart, ridge_of
from veilrec.erasers.common.moments import Moments, of_classes
from veilrec.errors import BadInput

FAST = AegisCS(lr=0.02, cap=20, until=0.0)


def kl(first: tuple[Tensor, Tensor], second: tuple[Tensor, Tensor]) -> Tensor:
    """What torch says of two Gaussians."""
    one, other = (torch.distributions.MultivariateNormal(mean, spread) for mean, spread in (first, second))
    return torch.distributions.kl_divergence(one, other)


def loss_of(
    eraser: AegisCS, vectors: Tensor, start: Tensor, labels: dict[str, Tensor], weights: dict[str, float]
) -> Tensor:
    """Eq. (19) as it is written, of vectors of users who all know something."""
    drift = (vectors - start).square().sum(1)
    loss = eraser.beta * (drift.mean() if eraser.drift == "mean" else drift.sum())
    for name, label in labels.items():
        large = torch.bincount(label[label >= 0])[label.clamp(min=0)] >= 2
        known = (label >= 0) & large
        ridge = eraser.ridge * start[known].var(0, correction=0).mean() * torch.eye(vectors.shape[1])

        def gauss(rows: Tensor, ridge: Tensor = ridge) -> tuple[Tensor, Tensor]:
            spread = rows.T.cov(correction=0) + ridge
            return rows.mean(0), spread.diagonal().diag() if eraser.diagonal else spread

        each = [kl(gauss(vectors[label == k]), gauss(vectors[known])) for k in label[known].unique()]
        loss = loss + eraser.gamma * weights.get(name, 1.0) * torch.stack(each).mean()
    return loss


def by_gradients(
    eraser: AegisCS, vectors: Tensor, labels: dict[str, Tensor], weights: dict[str, float]
) -> Tensor:
    """The same descent by automatic gradients of every user's vector."""
    now, rate = vectors.clone(), eraser.lr * (len(vectors) if eraser.drift == "mean" else 1)
    for _ in range(eraser.cap):
        leaf = now.requires_grad_()
        before = loss_of(eraser, leaf, vectors, labels, weights)
        (slope,) = torch.autograd.grad(before, leaf)
        now = leaf.detach()
        while loss_of(eraser, now - rate * slope, vectors, labels, weights) > before:
            rate /= 2
        now = now - rate * slope
    return now


def test_divergence_of_two_gaussians_by_hand() -> None:
    """Class 0 is N((0, 0), diag(1, 4)), class 1 N((2, 0), diag(1, 4)): all of them N((1, 0), diag(2, 4))."""
    users = torch.tensor([30.0, 30.0], dtype=torch.float64)
    mean = torch.tensor([[0.0, 0.0], [2.0, 0.0]], dtype=torch.float64)
    spread = torch.tensor([[1.0, 0.0], [0.0, 4.0]], dtype=torch.float64).expand(2, 2, 2)
    found = apart(Moments(users, mean, spread), ridge=0.0)
    by_hand = (torch.log(torch.tensor(8 / 4)) - 2 + (1 / 2 + 1) + 1 / 2) / 2
    assert torch.allclose(found.divergence, by_hand.double().expand(2))
    with_twist = torch.tensor([[1.0, 0.5], [0.5, 4.0]], dtype=torch.float64).expand(2, 2, 2)
    found = apart(Moments(users, mean, with_twist), ridge=0.1)
    ridge = 0.1 * torch.eye(2, dtype=torch.float64)
    total = with_twist[0] + torch.tensor([[1.0, 0.0], [0.0, 0.0]]) + ridge
    middle = torch.tensor([1.0, 0.0], dtype=torch.float64)
    theirs = kl((mean[0], with_twist[0] + ridge), (middle, total))
    assert torch.allclose(found.divergence, theirs.expand(2))


@pytest.mark.parametrize(
    "diagonal", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["full", "diagonal"]
)
@pytest.mark.parametrize("drift", ["mean", "sum"])
def test_maps_of_groups_are_steps_down_automatic_gradients(drift: str, diagonal: bool) -> None:
    eraser = replace(FAST, drift=drift, diagonal=diagonal, lr=0.02 if drift == "mean" else 0.5)
    vectors, label = told((80, 120, 60), width=5)
    labels = {"gender": label}
    expected = by_gradients(eraser, vectors, labels, {})
    found = eraser.forget(vectors, Request(labels), keyed())
    assert float((expected - vectors).norm(dim=1).mean()) > 0.05
    assert float((found - expected).abs().max()) < 1e-9


@pytest.mark.parametrize("users", [40, 400])
def test_several_attributes_at_once_are_steps_down_the_sum(users: int) -> None:
    """Of few users one by one, of many as groups that agree in all attributes; some know only one of them."""
    vectors, label = told((users // 2, users // 2), width=4)
    age = torch.where(torch.arange(users) % 5 == 0, -1, torch.arange(users) % 3)
    gender = torch.where(torch.arange(users) % 7 == 0, -1, label)
    told_some = (age >= 0) | (gender >= 0)
    labels, weights = {"gender": gender, "age": age}, {"age": 0.25}
    found = FAST.forget(vectors, Request(labels, weights=weights), keyed())
    own = {name: one[told_some] for name, one in labels.items()}
    expected = by_gradients(FAST, vectors[told_some], own, weights)
    assert float((found[told_some] - expected).abs().max()) < 1e-9
    assert torch.equal(found[~told_some], vectors[~told_some])
    assert 0 < int((~told_some).sum()) < users


def test_emphasis_is_an_option_as_well() -> None:
    vectors, label = told((20, 20), width=3)
    labels = {"gender": label, "age": torch.arange(40) % 3}
    asked = FAST.forget(vectors, Request(labels, weights={"age": 0.25}), keyed())
    assert torch.equal(replace(FAST, emphasis={"age": 0.25}).forget(vectors, Request(labels), keyed()), asked)
    with pytest.raises(BadInput, match='did you mean "gender"'):
        replace(FAST, emphasis={"gendre": 1.0}).forget(vectors, Request(labels), keyed())


def test_groups_and_rows_go_the_same_way() -> None:
    vectors, label = told((30, 50), width=3)
    code = label[:, None]
    descent = FAST.descent([1.0])
    alone = descent(UserCloud(code, [2], vectors, vectors))
    groups = GroupCloud.of(torch.arange(2)[:, None], [2], Moments.of(of_classes(vectors, label, 2)))
    together = descent(groups)
    assert abs(alone.apart() - together.apart()) < 1e-9
    assert torch.allclose(means(alone.place, label), together.place, atol=1e-10)


def test_classes_become_alike_and_users_stay_near() -> None:
    vectors, label = told((150, 250), width=4, apart=0.5)
    after = whole(AegisCS(lr=0.05, cap=400), vectors, label)
    first, second = means(after, label)
    assert torch.allclose(first, second, atol=0.02)
    one, other = covariances(after, label)
    assert torch.allclose(one, other, atol=0.05)
    near = whole(AegisCS(lr=0.05, cap=400, beta=1e3), vectors, label)
    moved = [float((x - vectors).square().mean()) for x in (near, after)]
    assert moved[0] < 0.1 * moved[1]


def test_a_user_alone_in_a_class_stays_and_changes_nobody() -> None:
    vectors, label = told((40, 50, 1), width=4)
    after = whole(FAST, vectors, label)
    assert torch.equal(after[label == 2], vectors[label == 2])
    others = label != 2
    assert torch.allclose(after[others], whole(FAST, vectors[others], label[others]), atol=1e-12)


def test_as_printed_hardly_anybody_moves() -> None:
    """With the sum of squares and steps of .01, users of a large class are pulled by a share of a mean."""
    vectors, label = told((3000, 3000), width=3, apart=0.3)
    printed, own = (whole(AegisCS(drift=drift), vectors, label) for drift in ("sum", "mean"))
    moved = [float((after - vectors).norm(dim=1).mean()) for after in (printed, own)]
    assert moved[0] < 0.05 * moved[1]


def test_it_ends_where_users_move_less_than_it_says() -> None:
    vectors, label = told((60, 90), width=3)
    short, long = (whole(AegisCS(until=until, cap=300), vectors, label) for until in (1e-2, 0.0))
    assert not torch.equal(short, long)
    assert torch.equal(whole(AegisCS(until=1e9), vectors, label), whole(AegisCS(cap=1), vectors, label))


def test_one_silo_asks_with_its_own_statistics() -> None:
    vectors, label = told((100, 150), width=4)
    silo = torch.arange(250) % 10 == 3
    found = FAST.forget(vectors, Request({"gender": label}, asks=silo), keyed())
    assert torch.allclose(found[silo], whole(FAST, vectors[silo], label[silo]), atol=1e-12)
    assert torch.equal(found[~silo], vectors[~silo])


def test_sums_tell_of_one_attribute() -> None:
    vectors, label = told((60, 90), width=3)
    both = Request({"gender": label, "age": torch.arange(150) % 3})
    with pytest.raises(BadInput, match="several at once"):
        by_silos(AegisCS(), vectors, both, silos=3)


def test_a_covariance_without_a_ridge_is_refused() -> None:
    vectors, label = told((3, 60), width=5)
    with pytest.raises(BadInput, match=r"eraser\.ridge: .*raise it"):
        whole(AegisCS(ridge=0.0), vectors, label)


@pytest.mark.parametrize("width", [12, pytest.param(128, marks=pytest.mark.slow)])
def test_twenty_one_classes_of_which_some_are_tiny(width: int) -> None:
    counts = (1, 7, 7, 9, 12, *[20 + 10 * k for k in range(16)])
    vectors, label = told(counts, width, apart=0.3)
    label = torch.where(torch.arange(len(label)) % 10 == 0, -1, label)
    for drift in ("mean", "sum"):
        after = whole(AegisCS(drift=drift, cap=30), vectors, label)
        assert bool(after.isfinite().all())
        assert torch.equal(after[label < 0], vectors[label < 0])
        assert float(after.norm(dim=1).max()) < 30 * float(vectors.norm(dim=1).max())


def test_a_ridge_is_a_share_of_the_mean_variance() -> None:
    vectors = 2 * KEYS.normal(5000, 3, dtype=torch.float64)
    label = (torch.arange(5000) % 2).long()
    moments = Moments.of(of_classes(vectors, label, 2))
    assert abs(ridge_of(moments, 0.1) - 0.1 * float(vectors.var(0, correction=0).mean())) < 1e-9
