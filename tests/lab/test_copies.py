"""Copies of people are found, exact ones and near ones, and people who are only alike are not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from veilrec.base.keys import Keys
from veilrec.lab.soundness.copies import Copies, copies_of, merged

ALARMS = 17  # of 200 tables, each with a chance of 5 % at most: more are seen once in seventy times


def noise(users: int, width: int, seed: int = 0) -> Tensor:
    return Keys.seed(seed).fold("noise").normal(users, width)


def looked(rows: Tensor, there: Tensor | None = None) -> Copies:
    everybody = torch.ones(len(rows), dtype=torch.bool)
    return copies_of(rows, everybody if there is None else there, Keys.seed(1).words(len(rows)))


def test_exact_copies_are_one_group_each() -> None:
    rows = noise(40, 3)
    rows[7] = rows[30] = rows[2]
    rows[9] = rows[8]
    found = looked(rows)
    assert found.group[[2, 7, 30]].unique().tolist() == [2]
    assert found.group[[8, 9]].unique().tolist() == [8]
    assert found.exact.nonzero().squeeze(1).tolist() == [2, 7, 8, 9, 30]
    assert int((found.group >= 0).sum()) == 5


def test_two_signs_of_zero_are_one_value_and_a_row_of_zeros_is_nobody() -> None:
    rows = noise(40, 2)
    rows[3], rows[4] = torch.tensor([0.0, 1.5]), torch.tensor([-0.0, 1.5])
    rows[10:20] = 0
    assert looked(rows).exact.nonzero().squeeze(1).tolist() == [3, 4]


def test_who_is_not_looked_at_has_no_copy() -> None:
    rows, there = noise(40, 3), torch.ones(40, dtype=torch.bool)
    rows[5] = rows[6]
    there[5] = False
    assert not bool((looked(rows, there).group >= 0).any())


@pytest.mark.parametrize(("width", "off"), [(4, 1e-4), (16, 0.02), (200, 0.02)])
def test_near_copies_are_found_and_nobody_else(width: int, off: float) -> None:
    rows = noise(150, width)
    rows[:5] = rows[100:105] + off * noise(5, width, 1)
    rows[5] = rows[100] + off * noise(1, width, 2)[0]  # the third of one person
    rows[40:] *= 50  # people differ in how far they are from all others
    rows[100:105] /= 50
    rows[:5], rows[5] = rows[100:105] + off * noise(5, width, 1), rows[100] + off * noise(1, width, 2)[0]
    found = looked(rows)
    assert (found.group >= 0).nonzero().squeeze(1).tolist() == [0, 1, 2, 3, 4, 5, 100, 101, 102, 103, 104]
    assert not bool(found.exact.any())
    assert found.group[[0, 5, 100]].unique().tolist() == [0]


def test_a_table_of_pairs_is_seen_as_pairs() -> None:
    rows = noise(60, 16)
    rows = torch.cat([rows, rows + 0.01 * noise(60, 16, 1)])
    found = looked(rows)
    assert torch.equal(found.group, torch.arange(60).repeat(2))


KINDS: dict[str, Callable[[Tensor], Tensor]] = {
    "normal": lambda rows: rows,
    "long tails": lambda rows: rows / rows.roll(1, 0).abs().clamp(min=1e-3),
    "rows of unlike length": lambda rows: rows * rows[:, :1].exp(),
    "yes and no": lambda rows: (rows > 0.5).float(),
    "yes and no and one number": lambda rows: torch.cat([rows[:, :1], (rows[:, 1:] > 0).float()], 1),
    "few directions": lambda rows: rows[:, :2] @ noise(rows[:, :2].shape[1], rows.shape[1], 9),
    "whole numbers": lambda rows: (5 * rows).round(),
    "many zeros": lambda rows: rows.clamp(min=0),
}


def test_of_200_tables_of_noise_few_have_near_copies() -> None:
    alarms = 0
    for table in range(200):
        kind, width = list(KINDS)[table % len(KINDS)], (1, 2, 5, 16, 64)[table % 5]
        found = looked(KINDS[kind](noise(50, width, table)))
        alarms += bool(((found.group >= 0) & ~found.exact).any())
    assert alarms <= ALARMS


def test_beside_whom_a_copy_stands() -> None:
    group = torch.tensor([0, 0, -1, 3, 3, 3])
    copies = Copies(group, group >= 0)
    assert copies.beside(torch.tensor([True, False, True, False, False, False])).tolist() == [
        *(False, True, False, False, False, False)
    ]
    both = torch.tensor([False, False, False, True, True, False])
    assert copies.beside(both).tolist() == [False, False, False, True, True, True]


def test_groups_of_two_readings_are_joined() -> None:
    one = Copies(torch.tensor([0, 0, -1, -1]), torch.tensor([True, True, False, False]))
    other = Copies(torch.tensor([-1, 1, 1, -1]), torch.tensor([False, False, False, False]))
    both = merged(one, other)
    assert both.group.tolist() == [0, 0, 0, -1]
    assert both.exact.tolist() == [True, True, False, False]
