"""Slabs: every device finds its rows again, and rows that nobody keeps are never more than those kept."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from veilrec.base.params import ROW
from veilrec.engine.devices import slabs as module
from veilrec.engine.devices.slabs import Slabs

SLOTS = 6
rounds = st.lists(st.dictionaries(st.integers(0, SLOTS - 1), st.integers(0, 5), min_size=1), max_size=12)


def put(slabs: Slabs, counts: dict[int, int], number: int) -> dict[int, list[int]]:
    """So many rows in some slots; each value tells the round, the slot and the row."""
    wide = max(counts.values())
    there = torch.arange(wide) < torch.tensor(list(counts.values()))[:, None]
    row = (torch.arange(wide) + 10 * torch.tensor(list(counts))[:, None] + 100 * number).expand(there.shape)
    slabs.put(torch.tensor(list(counts)), there, {ROW: row, "kept/table": row[..., None].double()})
    return {slot: row[k, :n].tolist() for k, (slot, n) in enumerate(counts.items())}


@given(rounds, st.sampled_from([1, 1 << 16]))
def test_what_was_put_is_got_and_little_else_is_held(steps: list[dict[int, int]], large: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "LARGE", large)  # apart from the heap, or on it
        slabs, last = Slabs(), dict[int, list[int]]()
        for number, counts in enumerate(steps):
            last |= put(slabs, counts, number)
        for slot, expected in last.items():
            got = slabs.get([slot], [ROW, "kept/table"])
            assert got[ROW].tolist() == [expected]
            assert got["kept/table"].squeeze(-1).tolist() == [expected]
        assert len(slabs) == len(last)
        live = sum(len(rows) for rows in last.values())
        assert live * 16 <= slabs.nbytes <= 2 * live * 16


def test_columns_come_in_the_order_of_the_slots() -> None:
    slabs = Slabs()
    last = put(slabs, {0: 2, 1: 0, 2: 1}, 0) | put(slabs, {1: 3}, 1)
    assert slabs.column(ROW, 0, 3).tolist() == [*last[0], *last[1], *last[2]]
    assert slabs.column(ROW, 1, 2).tolist() == last[1]
    assert slabs.counts[:3].tolist() == [2, 3, 1]
