"""The bytes of tensors that are alive at once."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.func import vmap

from veilrec.runs.needs.live import grown

BEFORE = torch.ones(1000)


def test_what_is_alive_at_once_counts() -> None:
    def work() -> Tensor:
        first = torch.zeros(1000)  # 4,000 bytes
        second = first + 1  # and as many more
        del first
        return second * 2  # in the place of the first

    assert grown(work)[1] == (8000, 4000)


def test_what_was_there_before_and_views_of_it_count_for_nothing() -> None:
    _, took = grown(lambda: (BEFORE.view(10, 100)[2:], BEFORE.expand(50, 1000)))
    assert took == (0, 0)
    in_place = BEFORE.clone()
    assert grown(lambda: in_place.mul_(2).add_(1))[1] == (0, 0)


def test_what_autograd_saves_counts() -> None:
    weight = torch.ones(1000, requires_grad=True)

    def work() -> Tensor:
        return torch.autograd.grad((weight.exp().exp()).sum(), weight)[0]

    assert grown(work)[1].most >= 3 * 4000
    assert grown(work)[1].left == 4000


def test_every_lane_of_a_map_counts() -> None:
    _, took = grown(lambda: vmap(lambda x: x.exp())(torch.ones(7, 100)))
    assert took.left == 7 * 400


def test_an_error_leaves_nothing_behind() -> None:
    for _ in range(2):
        try:
            grown(lambda: torch.ones(3) @ torch.ones(4))
        except RuntimeError:
            continue
        raise AssertionError
    assert grown(lambda: torch.ones(10))[1] == (40, 40)
