"""Rows one after another and side by side, and numbers that stretch over what lies behind them."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from veilrec.base import rows


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
