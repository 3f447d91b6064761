"""Rows that are mostly zero times a matrix: the whole product, alone, in a cohort, and by gradient."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.func import grad, vmap

from tests.worlds import largest
from veilrec.base.keys import Keys
from veilrec.models.common.layers import bags

CLIENTS, SEATS, LENGTH, ITEMS, WIDTH = 4, 2, 6, 9, 3


def world() -> tuple[Tensor, Tensor, Tensor]:
    """A matrix, items and values: some are padding, one user has nothing, one item stands twice."""
    keys = Keys.seed(5)
    weight = keys.fold("weight").normal(ITEMS, WIDTH, dtype=torch.float64)
    item = keys.fold("item").integers(ITEMS, CLIENTS, SEATS, LENGTH)
    value = keys.fold("value").normal(CLIENTS, SEATS, LENGTH, dtype=torch.float64)
    value[..., 4:], value[1, 1] = 0, 0
    item[2, 0, 1] = item[2, 0, 0]
    return weight, item, value


def whole(weight: Tensor, item: Tensor, value: Tensor) -> Tensor:
    rows = torch.zeros(*value.shape[:-1], ITEMS, dtype=value.dtype)
    for place in torch.cartesian_prod(*(torch.arange(n) for n in value.shape)).tolist():
        rows[(*place[:-1], int(item[tuple(place)]))] += value[tuple(place)]
    return rows @ weight


@pytest.mark.parametrize("copies", [False, True], ids=["one matrix", "a matrix each"])
def test_a_cohort_is_the_whole_product_and_so_is_its_gradient(copies: bool) -> None:
    weight, item, value = world()
    given = weight.expand(CLIENTS, ITEMS, WIDTH) * torch.arange(1, CLIENTS + 1).reshape(-1, 1, 1)
    weight = (given if copies else weight).clone().requires_grad_()
    found = vmap(bags, in_dims=(0 if copies else None, 0, 0))(weight, item, value)
    wanted = whole(weight, item, value)
    assert largest(found.detach(), wanted.detach()) < 1e-12
    slope = torch.randn(found.shape, dtype=found.dtype, generator=torch.Generator().manual_seed(1))
    (ours,), (theirs,) = (torch.autograd.grad(one, weight, slope) for one in (found, wanted))
    assert largest(ours, theirs) < 1e-12
    assert float(theirs.abs().max()) > 0.1


def test_one_device_alone_has_the_same_and_may_be_asked_for_its_own_gradient() -> None:
    weight, item, value = world()

    def loss(weight: Tensor, item: Tensor, value: Tensor) -> Tensor:
        return bags(weight, item, value).square().sum()

    each = vmap(grad(loss), in_dims=(None, 0, 0))(weight, item, value)  # [c, items, width]
    for client in range(CLIENTS):
        own = weight.clone().requires_grad_()
        one = bags(own, item[client], value[client])
        assert largest(one.detach(), whole(weight, item, value)[client]) < 1e-12
        (alone,) = torch.autograd.grad(one.square().sum(), own)
        (wanted,) = torch.autograd.grad(whole(own, item, value)[client].square().sum(), own)
        assert largest(alone, wanted) < 1e-12
        assert largest(each[client], wanted) < 1e-12


def test_nobody_has_anything() -> None:
    weight, item, value = world()
    assert torch.equal(bags(weight, item[0], 0 * value[0]), torch.zeros(SEATS, WIDTH, dtype=torch.float64))
