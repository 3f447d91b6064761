"""Columns that are no features: the same for everybody, an id on another scale, or the attribute itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["OpenAnswer", "answers_in", "constant", "counting", "places_of"]

SAME = 1e-9  # of the largest value: a column that varies less is constant, as attackers have it
EXACT = 1e-6  # share of a column's range, or of a value's variance, that rounding may account for
SUM = 1e-4  # the same for a sum over all columns, which rounds more often
SPARE = 20  # users beyond the columns: fewer are always a sum of the columns
WIDEST = 1024  # columns of which sums are looked for
RARE = 1e-3  # the chance that one of so many columns tells two classes apart by itself
FEW = 20  # users too few to say what a column is
CROWDED = 1.5  # places for each user: where values lie on so few, they number the users
FLAT = 1 / 30  # of the squared range: a column with less variance has too long tails to number anybody
BLOCK = 1 << 22  # values looked at together


class OpenAnswer(NamedTuple):
    """Where an attribute lies open: how, in which columns, and the class that they tell, if only one.

    `how` is ``same`` (the column is the attribute, or one class of it), ``apart`` (a threshold on it tells
    the classes without a mistake) or ``sum`` (it takes all columns).
    """

    how: str
    columns: list[int]
    label: int | None = None


def places_of(ids: Sequence[str]) -> Tensor:
    """``[users]`` ids as numbers: their own where all are whole ones, else their place in the alphabet.

    >>> places_of(["10", "9", "11"]).tolist(), places_of(["b", "a", "c"]).tolist()
    ([10.0, 9.0, 11.0], [1.0, 0.0, 2.0])
    """
    if all(name.isascii() and name.isdecimal() and len(name) < 16 for name in ids):
        return torch.tensor([float(name) for name in ids], dtype=torch.float64)
    order = torch.tensor(sorted(range(len(ids)), key=ids.__getitem__), dtype=torch.int64)
    return order.argsort().double()


def constant(rows: Tensor) -> list[int]:
    """The columns of ``rows [n, width]`` that do not vary."""

    def still(block: Tensor) -> Tensor:
        return block.std(0, correction=0) <= SAME * block.abs().amax(0)

    return _where(rows, still)


def counting(rows: Tensor, places: Tensor) -> list[int]:
    """The columns that are the users' ids, or number the users, in whatever order and scale.

    Such a column rises or falls with the ids, ``places [n]``; or it is the ids dealt out anew; or its values
    are all different and lie on a ladder of even rungs of which few are empty.
    """
    if len(rows) < FEW:
        return []
    own, order = places.sort().values, places.argsort(stable=True)
    return _where(rows, lambda block: _follows(block[order]) | _numbers(block, own))


def _follows(block: Tensor) -> Tensor:
    """``[width]`` True where a column never falls, or never rises, and takes many values."""
    some = block[:: max(1, len(block) // FEW)].diff(dim=0)  # most columns fail on a few rows
    told = (some >= 0).all(0) | (some <= 0).all(0)
    steps = block[:, told].diff(dim=0)
    several = (steps != 0).sum(0) >= len(block) // 2
    told[told.clone()] = ((steps >= 0).all(0) | (steps <= 0).all(0)) & several
    return told


def _numbers(block: Tensor, own: Tensor) -> Tensor:
    """``[width]`` True where a column is the ids ``own [n]`` in any order, or on a ladder of few rungs."""
    shape = block.var(0, correction=0) / (block.amax(0) - block.amin(0)).square()
    like = float(own.var(correction=0) / (own[-1] - own[0]).square())
    told = (shape > FLAT) | ((shape - like).abs() < 1e-3 * like)  # only of these are the values sorted
    ladder = block[:, told].sort(0).values
    gaps = ladder.diff(dim=0)
    least, span = gaps.amin(0), ladder[-1] - ladder[0]
    rungs = gaps / least.clamp(min=1e-300)
    even = ((rungs - rungs.round()).abs() < 0.02 * rungs).all(0) & (span <= CROWDED * len(block) * least)
    told[told.clone()] = (least > 0) & (even | _alike(ladder, own) | _alike(-ladder.flip(0), own))
    return told


def answers_in(rows: Tensor, label: Tensor) -> list[OpenAnswer]:
    """Every way in which ``rows [n, width]`` hold a label as it is: ``[n]`` classes, or values as floats."""
    if len(rows) < FEW:
        return []
    found = list(_of_values(rows, label) if label.is_floating_point() else _of_classes(rows, label))
    return found or list(_as_a_sum(rows, label))


def _of_values(rows: Tensor, value: Tensor) -> Iterator[OpenAnswer]:
    wanted, order = value.double(), value.argsort(stable=True)
    fresh = torch.cat([torch.ones(1, dtype=torch.bool), value[order].diff() != 0])
    order = order[fresh]  # one of those who have the same value: they may stand in any order
    same = _where(rows, lambda block: _alike(block, wanted))
    follows = _where(rows, lambda block: _follows(block[order])) if len(order) >= FEW else []
    yield from _told("same", same)
    yield from _told("apart", [column for column in follows if column not in same])


def _of_classes(rows: Tensor, label: Tensor) -> Iterator[OpenAnswer]:
    classes = label.unique()
    counts = torch.stack([(label == one).sum() for one in classes])
    same, single, apart = [], {int(one): list[int]() for one in classes}, []
    for start in range(0, rows.shape[1], width := max(1, BLOCK // len(rows))):
        block = rows[:, start : start + width].double()
        low = torch.stack([block[label == one].amin(0) for one in classes])  # [classes, width]
        high = torch.stack([block[label == one].amax(0) for one in classes])
        span = high.amax(0) - low.amin(0)
        still = (high - low <= EXACT * span) & (span > 0)
        order = low.argsort(0)
        free = (low.gather(0, order)[1:] > high.gather(0, order)[:-1]).all(0)
        same += (start + (still.all(0) & free).nonzero().squeeze(1)).tolist()
        apart += (start + (free & ~still.all(0)).nonzero().squeeze(1)).tolist()
        for place, one in enumerate(classes.tolist() if len(classes) > 2 else []):
            rest = torch.arange(len(classes)) != place
            other = (high[rest].amax(0) - low[rest].amin(0) <= EXACT * span) & (span > 0)
            single[one] += (start + (still[place] & other).nonzero().squeeze(1)).tolist()
    yield from _told("same", same)
    for one, columns in single.items():
        yield from _told("same", [k for k in columns if k not in same], one)
    if _luck(counts, rows.shape[1]) < RARE:
        yield from _told("apart", apart)


def _told(how: str, columns: list[int], label: int | None = None) -> Iterator[OpenAnswer]:
    if columns:
        yield OpenAnswer(how, columns, label)


def _luck(counts: Tensor, width: int) -> float:
    """The chance that some column of noise has all classes apart: the orders in which they are, over all."""
    orders = math.lgamma(len(counts) + 1) + float(torch.lgamma(counts.double() + 1).sum())
    return width * math.exp(orders - math.lgamma(int(counts.sum()) + 1))


def _as_a_sum(rows: Tensor, label: Tensor) -> Iterator[OpenAnswer]:
    """The label as a sum over all columns with fixed weights, as it is after a rotation."""
    n, width = rows.shape
    if width > WIDEST or n < width + SPARE:
        return
    wide = rows.double()
    wide = wide - wide.mean(0)
    values = label.is_floating_point()
    classes = [] if values else label.unique()[-1:] if len(label.unique()) == 2 else label.unique()
    wanted = torch.stack([label.double()] if values else [(label == one).double() for one in classes], 1)
    wanted = wanted - wanted.mean(0)
    gram = wide.T @ wide
    size = float(gram.diagonal().mean())
    if not size:
        return
    gram.diagonal().add_(1e-9 * size)
    left = wanted - wide @ torch.linalg.solve(gram, wide.T @ wanted)
    exact = left.square().sum(0) <= SUM * wanted.square().sum(0)
    if bool(exact.all()):
        yield OpenAnswer("sum", list(range(width)))
    else:
        for one in [int(classes[k]) for k in exact.nonzero().squeeze(1).tolist()]:
            yield OpenAnswer("sum", list(range(width)), one)


def _alike(block: Tensor, wanted: Tensor) -> Tensor:
    """``[width]`` True where a column of ``block [n, width]`` is ``wanted [n]`` on another scale."""
    apart, own = block - block.mean(0), (wanted - wanted.mean())[:, None]
    size = (apart.square().sum(0) * own.square().sum()).sqrt()
    return (size > 0) & ((apart * own).sum(0).abs() >= (1 - EXACT) * size)


def _where(rows: Tensor, true: Callable[[Tensor], Tensor]) -> list[int]:
    """The columns of which something is true, some at a time."""
    found: list[int] = []
    for start in range(0, rows.shape[1], width := max(1, BLOCK // max(1, len(rows)))):
        block = rows[:, start : start + width].double()
        found += (start + true(block).nonzero().squeeze(1)).tolist()
    return found
