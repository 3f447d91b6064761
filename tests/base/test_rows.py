"""Histories that are thinned: how much is left, whose numbers decide, and what padding changes (nothing)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.func import vmap

from veilrec.base import rows
from veilrec.base.keys import Keys
from veilrec.base.rows import shares, thinned

Thin = Callable[[Tensor, Keys, float], Tensor]


def padded(lengths: list[int], seats: int, width: int) -> Tensor:
    """``[c, seats, width]`` histories 0, 1, 2, … of the given lengths, -1 in front."""
    back = torch.arange(width) - width
    each = torch.tensor(lengths)[:, None] + back
    return torch.where(each >= 0, each, -1)[:, None].expand(-1, seats, -1)


def test_no_share_is_no_change() -> None:
    history = padded([2, 5], 3, 5)
    assert thinned(history, Keys.seed(0).fold(torch.arange(2)), 0.0) is history


def test_what_is_left_is_what_it_was() -> None:
    history = padded([40, 90, 0], 2, 90)
    left = thinned(history, Keys.seed(1).fold(torch.arange(3)), 0.4)
    assert left.shape == history.shape
    assert bool(((left == history) | (left == -1)).all())
    assert 0 < int((left >= 0).sum()) < int((history >= 0).sum())
    assert not torch.equal(left[1, 0], left[1, 1])  # each user of a device loses items of its own


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_the_share_is_left_out_and_the_rest_averages_to_the_mean(share: float) -> None:
    """50,000 devices with ten items each: four standard errors are the bound."""
    devices, item = 50_000, torch.arange(10, dtype=torch.float64)[:, None]
    left = thinned(
        padded([10], 1, 10).expand(devices, -1, -1), Keys.seed(2).fold(torch.arange(devices)), share
    )
    error = (share * (1 - share) / (10 * devices)) ** 0.5
    assert abs(float((left < 0).double().mean()) - share) < 4 * error
    some = left[(left >= 0).any(-1).squeeze(1)]
    mean = (shares(some, 10, torch.float64) @ item).flatten()  # of those of whom something is left
    assert abs(float(mean.mean()) - 4.5) < 4 * float(mean.std()) / len(mean) ** 0.5
    assert torch.allclose(shares(some, 10, torch.float64).sum(-1), torch.ones(1, dtype=torch.float64))


def strangers(thin: Thin, lengths: list[int], seats: int, width: int) -> list[int]:
    """The devices that lose other items alone than in a cohort of longer histories."""
    keys = Keys.seed(3).fold(torch.arange(len(lengths)))
    together = thin(padded(lengths, seats, width), keys, 0.5)
    found = []
    for k, length in enumerate(lengths):
        alone = thin(padded([length], seats, length)[0], Keys(keys.value[k]), 0.5)
        if not torch.equal(together[k, :, width - length :], alone):
            found.append(k)
    return found


@given(st.lists(st.integers(0, 12), min_size=1, max_size=5), st.integers(1, 3), st.integers(12, 20))
def test_a_device_loses_the_same_items_alone_and_in_a_cohort(
    lengths: list[int], seats: int, width: int
) -> None:
    assert strangers(thinned, lengths, seats, width) == []


def test_planted_numbers_from_the_front_are_noticed() -> None:
    def from_the_front(history: Tensor, keys: Keys, share: float) -> Tensor:
        drawn = keys.uniform(history.shape[-1], history.shape[-2]).mT
        return history.masked_fill(drawn < share, -1)

    def rows_first(history: Tensor, keys: Keys, share: float) -> Tensor:
        return history.masked_fill(keys.uniform(*history.shape[-2:]).flip(-1) < share, -1)

    assert strangers(from_the_front, [9, 12], 1, 12) == [0]
    assert strangers(rows_first, [9, 12], 2, 12) == [0]


def test_the_batched_form_is_vmap() -> None:
    history, keys = padded([3, 7, 9], 2, 9), Keys.seed(4).fold(torch.arange(3))
    each = vmap(lambda own, value: thinned(own, Keys(value), 0.5))(history, keys.value)
    assert torch.equal(each, thinned(history, keys, 0.5))
    assert not torch.equal(each, thinned(history, keys.fold(1), 0.5))


@given(st.lists(st.integers(0, 4), max_size=5))
def test_rows_one_after_another_and_side_by_side(counts: list[int]) -> None:
    count = torch.tensor(counts, dtype=torch.int64)
    owner, place = rows.ragged(count)
    pairs = [(c, k) for c, n in enumerate(counts) for k in range(n)]
    assert list(zip(owner.tolist(), place.tolist(), strict=True)) == pairs
    assert torch.equal(rows.within(owner, count), place)
    assert torch.equal(rows.starts(count)[owner] + place, torch.arange(len(pairs)))
    wide = rows.padded(torch.tensor(pairs).reshape(-1, 2), owner, place, count, blank=-1)
    longest = max(counts, default=0)
    assert wide.tolist() == [
        [[c, k] if k < n else [-1, -1] for k in range(longest)] for c, n in enumerate(counts)
    ]


def test_numbers_stretch_over_what_lies_behind_them() -> None:
    values = torch.zeros(2, 3, 4, 5)
    assert rows.along(torch.zeros(2), values).shape == (2, 1, 1, 1)
    assert rows.along(torch.zeros(2, 3), values).shape == (2, 3, 1, 1)
