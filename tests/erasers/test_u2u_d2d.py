"""U2U and D2D: both losses against brute force, their minima and slopes, and what they do to classes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.erasers.worlds import KEYS, keyed, means, told, whole
from veilrec.eraser import Request
from veilrec.erasers.d2d import D2D, discrepancy
from veilrec.erasers.u2u import U2U


def pairs_of(vectors: Tensor, label: Tensor) -> Tensor:
    """The mean squared distance of users in different classes, by a loop over pairs."""
    known = (label >= 0).nonzero().flatten().tolist()
    apart = [(i, j) for i in known for j in known if i < j and label[i] != label[j]]
    first, second = (torch.tensor(side) for side in zip(*apart, strict=True))
    return (vectors[first] - vectors[second]).square().sum(1).mean()


def laplacian(vectors: Tensor, label: Tensor) -> Tensor:
    """The same as tr(XᵀLX) over the number of pairs, with the Laplacian of the multipartite graph."""
    edge = ((label[:, None] != label) & (label[:, None] >= 0) & (label >= 0)).double()
    graph = edge.sum(1).diag() - edge
    return 2 * (vectors.T @ graph @ vectors).trace() / edge.sum()


@pytest.mark.parametrize("several", [False, True], ids=["one", "several"])
def test_u2u_is_the_minimum_of_the_loss_over_all_pairs(several: bool) -> None:
    vectors, label = told((8, 12, 1), width=3)
    labels = {"gender": torch.where(torch.arange(21) % 5 == 0, -1, label)}
    if several:
        labels["age"] = torch.where(torch.arange(21) % 4 == 0, -1, torch.arange(21) % 2)
    weights = {"age": 0.5}
    asks = torch.stack([one >= 0 for one in labels.values()]).any(0)
    after = U2U(weight=0.7).forget(vectors, Request(labels, weights=weights), keyed())
    leaf = after[asks].clone().requires_grad_()
    loss = (leaf - vectors[asks]).square().sum(1).mean()
    for name, one in labels.items():
        loss = loss + 0.7 * weights.get(name, 1.0) * pairs_of(leaf, one[asks])
        assert torch.allclose(pairs_of(after[asks], one[asks]), laplacian(after[asks], one[asks]))
    (slope,) = torch.autograd.grad(loss, leaf)
    assert float(slope.abs().max()) < 1e-10
    assert float((after - vectors)[asks].norm(dim=1).min()) > 0.05
    assert torch.equal(after[~asks], vectors[~asks])


def test_u2u_with_more_weight_moves_further_and_spreads_tell_the_class() -> None:
    vectors, label = told((60, 240), width=4, apart=0.4)
    some = [whole(U2U(weight=weight), vectors, label) for weight in (0.0, 0.1, 1.0, 10.0)]
    assert torch.allclose(some[0], vectors)
    moved = [float((after - vectors).square().mean()) for after in some]
    assert moved == sorted(moved)
    off = [float((means(after, label)[0] - means(after, label)[1]).norm()) for after in some]
    assert off == sorted(off, reverse=True)
    spread = [float(some[2][label == k].var(0).sum() / vectors[label == k].var(0).sum()) for k in (0, 1)]
    assert spread[0] < 0.5 * spread[1]  # the smaller class is drawn by more users


def by_loops(rows: Tensor, classes: Tensor) -> Tensor:
    """The mean unbiased MMD² from class 0, pair by pair."""
    n = len(rows)
    apart = [float((rows[i] - rows[j]).detach().square().sum()) for i in range(n) for j in range(n) if i != j]
    width = sum(apart) / len(apart)

    def mean(first: Tensor, second: Tensor, *, same: bool) -> Tensor:
        found = [
            torch.exp(-(a - b).square().sum() / (width * 2.0**power))
            for i, a in enumerate(first)
            for j, b in enumerate(second)
            if not (same and i == j)
            for power in range(-2, 3)
        ]
        return 5 * torch.stack(found).mean()

    anchor, each = rows[classes == 0], []
    for k in range(1, int(classes.max()) + 1):
        own = rows[classes == k]
        inside = mean(own, own, same=True) + mean(anchor, anchor, same=True)
        each.append(inside - 2 * mean(own, anchor, same=False))
    return torch.stack(each).mean()


@pytest.mark.parametrize("counts", [(5, 4), (5, 3, 2)], ids=str)
def test_discrepancy_and_its_slope_are_those_of_all_pairs(counts: tuple[int, ...]) -> None:
    rows, classes = told(counts, width=3)
    leaf = rows.clone().requires_grad_()
    expected = by_loops(leaf, classes)
    (slope,) = torch.autograd.grad(expected, leaf)
    value, own = discrepancy(rows, classes)
    assert torch.allclose(value, expected.detach())
    assert torch.allclose(own, slope)


def test_discrepancy_of_the_same_distribution_is_nothing_on_average() -> None:
    """Without bias: of 200 pairs of samples the mean is within four standard errors of zero."""
    classes = torch.arange(24) % 3
    found = torch.stack([discrepancy(KEYS.fold(k).normal(24, 2), classes)[0] for k in range(200)])
    assert abs(float(found.mean())) < 4 * float(found.std()) / 200**0.5


def test_d2d_brings_every_class_to_the_largest() -> None:
    vectors, label = told((60, 150, 40), width=3, apart=0.5)
    order = torch.tensor([1, 0, 2])[label]  # the largest is class 0 of the discrepancy
    after = whole(D2D(batch=90, weight=10.0, steps=150), vectors, label)
    left = [float(discrepancy(one, order)[0]) for one in (vectors, after)]
    assert left[1] < 0.1 * left[0]
    near = whole(D2D(batch=90, weight=0.01, steps=150), vectors, label)
    assert float((near - vectors).norm()) < 0.5 * float((after - vectors).norm())


def test_d2d_leaves_alone_who_is_alone_and_moves_in_any_unit() -> None:
    vectors, label = told((20, 30, 1), width=3)
    eraser = D2D(steps=20)
    after = whole(eraser, vectors, label)
    assert torch.equal(after[label == 2], vectors[label == 2])
    wide = whole(eraser, 1e4 * vectors + 7e4, label)
    assert torch.allclose(wide, 1e4 * after + 7e4, rtol=1e-3)
    both = Request({"gender": label, "age": torch.arange(51) % 2}, weights={"age": 0.0})
    alone = Request({"gender": label}, weights={"gender": 3.0})
    one, other = (eraser.forget(vectors, request, keyed()) for request in (both, alone))
    assert not torch.equal(one, after)
    assert not torch.equal(other, after)
