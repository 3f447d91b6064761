"""Rows of many devices in one tensor: found again, however often devices come back with more or fewer."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from veilrec.base.params import ROW, Params
from veilrec.engine.heap import COUNT, Heap, flattened, padded

SLOTS, ITEMS = 6, 9
VALUE = "kept/table"

owned = st.dictionaries(
    st.integers(0, SLOTS - 1),
    st.lists(st.integers(0, ITEMS - 1), unique=True, max_size=ITEMS).map(sorted),
    min_size=1,
    max_size=SLOTS,
)


def rows_of(held: dict[int, list[int]], number: int) -> tuple[Tensor, Params]:
    """Slots and their padded rows; a value tells its round, slot and row."""
    longest = max(len(rows) for rows in held.values())
    row = torch.tensor([rows + [-1] * (longest - len(rows)) for rows in held.values()], dtype=torch.int64)
    row = row.reshape(len(held), longest)
    slot = torch.tensor(list(held))
    value = (10_000 * number + 100 * slot[:, None] + row).double()
    return slot, {ROW: row, VALUE: torch.stack([value, -value], 2)}  # what pads is no zero


def check(heap: Heap, held: dict[int, tuple[int, list[int]]]) -> None:
    for slots in (list(held), list(held)[::-1], list(held)[:1]):
        got = heap.get(torch.tensor(slots), [ROW, VALUE])
        for place, slot in enumerate(slots):
            number, rows = held[slot]
            there = got[ROW][place] >= 0
            assert got[ROW][place][there].tolist() == rows
            assert got[VALUE][place, there, 0].tolist() == [10_000.0 * number + 100 * slot + k for k in rows]
            assert not got[VALUE][place][~there].any()


@given(st.lists(owned, min_size=1, max_size=8))
def test_what_was_put_is_got(rounds: list[dict[int, list[int]]]) -> None:
    heap, held = Heap(torch.device("cpu")), dict[int, tuple[int, list[int]]]()
    for number, some in enumerate(rounds, 1):
        heap.put(*rows_of(some, number))
        held |= {slot: (number, rows) for slot, rows in some.items()}
        check(heap, held)
    packed = {name: value.clone() for name, value in heap.packed(SLOTS).items()}
    check(heap, held)
    assert packed[COUNT].tolist()[: max(held) + 1] == [
        len(held.get(k, (0, []))[1]) for k in range(max(held) + 1)
    ]
    assert packed[ROW].tolist() == [row for slot in sorted(held) for row in held[slot][1]]
    other = Heap(torch.device("cpu"))
    other.restore({name: value.clone() for name, value in packed.items()})
    for one in (heap, other):
        one.put(*rows_of(rounds[0], 99))
    after = held | {slot: (99, rows) for slot, rows in rounds[0].items()}
    check(heap, after)
    check(other, after)


def test_memory_grows_with_the_rows_there_are() -> None:
    """A thousand rounds of one device that never has more than four rows, beside one that has a hundred."""
    heap = Heap(torch.device("cpu"))
    heap.put(*rows_of({1: list(range(100))}, 1))
    for number in range(1000):
        heap.put(*rows_of({0: list(range(1 + number % 4))}, number))
    assert len(heap.values[VALUE]) <= 1.5 * 104 + 1
    assert heap.count.tolist()[:2] == [4, 100]


def test_rows_that_fit_stay_where_they_are() -> None:
    heap = Heap(torch.device("cpu"))
    heap.put(*rows_of({0: [1, 2, 3], 1: [5]}, 1))
    begin, column = heap.start.clone(), heap.values[VALUE]
    heap.put(*rows_of({0: [0, 8], 1: [4]}, 2))
    assert torch.equal(heap.start, begin)
    assert heap.values[VALUE] is column
    check(heap, {0: (2, [0, 8]), 1: (2, [4])})


def test_nothing_at_all() -> None:
    heap = Heap(torch.device("cpu"))
    heap.put(torch.tensor([0, 1]), {})
    assert heap.get(torch.tensor([0, 1]), []) == {}
    assert heap.packed(2) == {}
    heap.put(*rows_of({0: [], 2: []}, 1))
    assert heap.get(torch.tensor([2, 0]), [ROW])[ROW].shape == (2, 0)
    heap.restore({})
    assert heap.packed(0) == {}


@given(owned)
def test_padded_and_back(held: dict[int, list[int]]) -> None:
    _, wide = rows_of(held, 1)
    flat = flattened(wide)
    assert len(flat[ROW]) == sum(len(rows) for rows in held.values())
    again = padded((wide[ROW] >= 0).sum(1), flat)
    assert torch.equal(again[ROW], wide[ROW])
    assert torch.equal(again[VALUE], torch.where((wide[ROW] >= 0)[..., None], wide[VALUE], 0.0))


def test_planted_a_place_that_is_given_twice_is_noticed() -> None:
    heap = Heap(torch.device("cpu"))
    heap.put(*rows_of({0: [1], 1: [2]}, 1))
    heap.start[1] = heap.start[0]
    with pytest.raises(AssertionError):
        check(heap, {0: (1, [1]), 1: (1, [2])})
