"""Local privacy of features: the mechanisms have the laws that their proofs are about."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from veilrec.base.keys import Keys
from veilrec.defences.common.local_dp import LATTICE, attributes, perturbed, piecewise, reach, sampled, unary

Draw = Callable[[Tensor, float, Keys], Tensor]
USERS, BINS = 200_000, 25
VALUES = (-1.0, -0.4, 0.0, 0.7, 1.0)


def users(n: int = USERS, seed: int = 0) -> Keys:
    return Keys.seed(seed).fold(torch.arange(n))


def density(value: float, epsilon: float, edges: Tensor) -> Tensor:
    """The probability of each bin, from the definition of the mechanism."""
    power = math.exp(epsilon / 2)
    limit = (power + 1) / (power - 1)
    low = (limit + 1) / 2 * value - (limit - 1) / 2
    high = low + limit - 1
    inner = (edges[1:].clamp(max=high) - edges[:-1].clamp(min=low)).clamp(min=0)
    p = (math.exp(epsilon) - power) / (2 * power + 2)
    return inner * p + (edges.diff() - inner) * p / math.exp(epsilon)


def faults(draw: Draw, epsilon: float) -> list[str]:
    """What is wrong with a mechanism for numbers; a false alarm in 10⁵ for each line."""
    found, counts = [], []
    power = math.exp(epsilon / 2)
    limit = (power + 1) / (power - 1)
    edges = torch.linspace(-limit, limit, BINS + 1, dtype=torch.float64)
    for place, value in enumerate(VALUES):
        drawn = draw(torch.full((USERS, 1), value), epsilon, users(seed=place)).double().squeeze(1)
        if float(drawn.abs().max()) > limit:
            found.append(f"{value}: beyond ±C")
        error = (drawn - value).square()
        variance = value**2 / (power - 1) + (power + 3) / (3 * (power - 1) ** 2)
        if abs(float(drawn.mean()) - value) > 4.5 * math.sqrt(variance / USERS):
            found.append(f"{value}: mean {float(drawn.mean()):.4f}")
        if abs(float(error.mean()) - variance) > 4.5 * float(error.std()) / math.sqrt(USERS):
            found.append(f"{value}: variance {float(error.mean()):.4f} for {variance:.4f}")
        count = torch.histc(drawn.clamp(-limit, limit), BINS, -limit, limit)
        counts.append(count)
        expected = density(value, epsilon, edges) * USERS
        if float(((count - expected).abs() / expected.sqrt()).max()) > 5.2:
            found.append(f"{value}: shape")
    for a, b in itertools.permutations(counts, 2):
        ratio, error = (a / b.clamp(min=1)).log(), (1 / a.clamp(min=1) + 1 / b.clamp(min=1)).sqrt()
        if float(((ratio - epsilon) / error).max()) > 5.2:
            found.append(f"ε is {float(ratio.max()):.3f}, not {epsilon}")
            break
    return found


@pytest.mark.parametrize("epsilon", [0.4, 1.0, 2.5])
def test_numbers_are_unbiased_bounded_and_private(epsilon: float) -> None:
    assert faults(piecewise, epsilon) == []


@pytest.mark.parametrize("epsilon", [0.4, 1.0, 2.5])
def test_the_whole_epsilon_is_used(epsilon: float) -> None:
    """Near the ends the odds between −1 and 1 are as far apart as they may be."""
    low, high = (piecewise(torch.full((USERS, 1), v), epsilon, users(seed=5)) for v in (-1.0, 1.0))
    end = reach(epsilon) - 0.5 * (reach(epsilon) - 1)
    ratio = math.log(int((high > end).sum()) / int((low > end).sum()))
    assert abs(ratio - epsilon) < 0.1


def _other_limit(value: Tensor, epsilon: float, keys: Keys) -> Tensor:
    return piecewise(value, 2 * epsilon, keys)


def _shifted(value: Tensor, epsilon: float, keys: Keys) -> Tensor:
    return (piecewise(value, epsilon, keys) + 0.1).clamp(-reach(epsilon), reach(epsilon))


def _too_often_inside(value: Tensor, epsilon: float, keys: Keys) -> Tensor:
    plain = piecewise(value, epsilon, keys)
    again = piecewise(value, epsilon, keys.fold("again"))
    return torch.where((again - value).abs() < (plain - value).abs(), again, plain)


def _laplace(value: Tensor, epsilon: float, keys: Keys) -> Tensor:
    return value + 2 / epsilon * keys.laplace(1)


def _clean_in_a_tenth(value: Tensor, epsilon: float, keys: Keys) -> Tensor:
    return torch.where(keys.fold("x").uniform(1) < 0.1, value.double(), piecewise(value, epsilon, keys))


@pytest.mark.parametrize(
    "planted",
    [_other_limit, _shifted, _too_often_inside, _laplace, _clean_in_a_tenth],
    ids=lambda f: f.__name__,
)
def test_planted_faults_in_the_noise_on_numbers_are_found(planted: Draw) -> None:
    assert faults(planted, 1.0) != []


@given(st.floats(-1, 1, width=32), st.floats(0.05, 20), st.integers(0, 10**6))
def test_numbers_lie_on_a_lattice_that_does_not_hang_on_them(value: float, epsilon: float, seed: int) -> None:
    drawn = piecewise(torch.full((50, 3), value), epsilon, users(50, seed))
    assert torch.equal(drawn * LATTICE, (drawn * LATTICE).round())
    assert float(drawn.abs().max()) <= reach(epsilon)
    assert torch.equal(drawn.float().double(), drawn)  # and float32 holds them


def test_numbers_beyond_the_range_are_cut_to_it() -> None:
    wide, cut = (piecewise(torch.tensor([[a, b]]), 1.0, users(1)) for a, b in ((-7.0, 3.0), (-1.0, 1.0)))
    assert torch.equal(wide, cut)


@pytest.mark.parametrize("epsilon", [0.4, 1.0, 4.0])
def test_bits_have_their_odds(epsilon: float) -> None:
    drawn = unary(torch.tensor([[1.0, 0.0, 0.0]]).expand(USERS, 3), epsilon, users())
    raised = 1 / (math.exp(epsilon) + 1)
    for mean, odds in zip(drawn.mean(0).tolist(), [0.5, raised, raised], strict=True):
        assert abs(mean - odds) < 4.5 * math.sqrt(odds * (1 - odds) / USERS)


@pytest.mark.parametrize("epsilon", [0.4, 1.0])
def test_no_block_is_much_likelier_from_another_user(epsilon: float) -> None:
    """All 8 outcomes of 3 bits, from each class and from an unknown one."""
    blocks = torch.cat([torch.eye(3), torch.zeros(1, 3)])
    counts = []
    for k, block in enumerate(blocks):
        drawn = unary(block.expand(USERS, 3), epsilon, users(seed=k))
        counts.append(torch.bincount((drawn * torch.tensor([1, 2, 4])).sum(1).long(), minlength=8).double())
    gaps = [((a / b).log() - epsilon) / (1 / a + 1 / b).sqrt() for a, b in itertools.permutations(counts, 2)]
    assert float(torch.stack(gaps).max()) < 5.2
    assert float(torch.stack(gaps[:2]).max()) > -5.2  # and all of ε is used


def test_a_block_is_one_attribute_and_a_number_is_one() -> None:
    names = ["age", "sex=f", "sex=m", "items", "age=old", "age=young", "items"]
    assert attributes(names).tolist() == [0, 1, 1, 2, 3, 3, 4]


def test_how_many_attributes_are_told() -> None:
    assert [sampled(8, e) for e in (0.4, 2.4, 4.9, 5.0, 7.5, 19.9, 20.0, 100.0)] == [1, 1, 1, 2, 3, 7, 8, 8]
    assert sampled(1, 100.0) == 1


NAMES = ["age", "sex=f", "sex=m", "items", "share"]
ROW = torch.tensor([0.5, 1.0, 0.0, -0.8, 0.25])


@pytest.mark.parametrize(("epsilon", "k"), [(1.0, 1), (5.0, 2), (8.0, 3), (10.0, 4)])
def test_only_so_many_attributes_are_told_and_each_as_often(epsilon: float, k: int) -> None:
    told = perturbed(ROW.expand(20_000, 5), NAMES, epsilon, users(20_000))
    numbers, block = told[:, [0, 3, 4]], told[:, 1:3]
    assert int(((numbers != 0).sum(1) + (block != 0).any(1)).max()) == k
    most = (numbers != 0).sum(1) >= k - 1  # the block may stand for one; one in 2¹⁶ numbers is 0 by chance
    assert float(most.double().mean()) > 0.999
    share = (numbers != 0).double().mean(0)
    assert float((share - k / 4).abs().max()) < 4.5 * math.sqrt(0.25 / 20_000)
    assert set(block.unique().tolist()) == {0.0, 1.0}
    raised = 1 / (math.exp(epsilon / k) + 1)
    some = k / 4 * (1 - 0.5 * (1 - raised))  # a bit of two is up, in the blocks that were drawn
    assert abs(float((block != 0).any(1).double().mean()) - some) < 4.5 * math.sqrt(0.25 / 20_000)


@pytest.mark.parametrize("epsilon", [2.0, 5.0, 8.0])
def test_numbers_are_unbiased_in_their_unit_although_most_are_not_told(epsilon: float) -> None:
    k = sampled(4, epsilon)
    told = perturbed(ROW.expand(USERS, 5), NAMES, epsilon, users())[:, [0, 3, 4]].double()
    assert float(told.abs().max()) <= 1 + 1e-6
    unit = 4 / k * reach(epsilon / k)
    error = unit * told.mean(0) - ROW[[0, 3, 4]]
    assert bool((error.abs() < 4.5 * unit * told.std(0) / math.sqrt(USERS)).all())


def test_a_user_alone_is_blurred_the_same() -> None:
    rows = Keys.seed(3).uniform(40, 5) * 2 - 1
    together = perturbed(rows, NAMES, 5.0, users(40))
    for k in (0, 7, 39):
        assert torch.equal(
            perturbed(rows[k : k + 1], NAMES, 5.0, Keys(users(40).value[k : k + 1])), together[k : k + 1]
        )
