"""Interaction membership: which items did a user touch, from one upload of that user.

Papers: none of the five measures it; PARD §II-B grants its attacker the answer (I'_u). A device uploads the
rows of the items it trained on, touched ones and drawn negatives alike; which are which is in the values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from veilrec.attack import Public
from veilrec.base.params import Rows, Scope, part_of
from veilrec.wire.uploads import Exchange

__all__ = ["Membership"]

WAYS = ("rows", "norms", "direction")


@dataclass(frozen=True)
class Membership:
    """Score items by the rows of the upload.

    Attributes:
        by: ``rows``: whether the item's row was sent, or changed, at all. ``norms``: how far it moved.
            ``direction``: where it moved. Touched items are pulled to the user and negatives pushed away, so
            their changes point to opposite sides of one line. The numbers of rows on both sides reveal which
            one is touched: the number of events is sent with an upload, or follows from the number of
            untouched items that are drawn for each.
    """

    by: Literal["rows", "norms", "direction"] = "direction"

    def pairs(self, public: Public, exchange: Exchange) -> Tensor:
        """``[clients of the chunk, items]`` higher where an item was more likely touched."""
        tables = [name for name, spec in public.schema.items() if spec.table is not None]
        if not tables:
            return torch.zeros(len(exchange.received.cohort), 0)
        total = [self._of_table(public, exchange, name) for name in tables]
        return torch.stack(total).sum(0)

    def _of_table(self, public: Public, exchange: Exchange, name: str) -> Tensor:
        """``[c, items]`` from one table; 0 for rows that were not sent."""
        value, spec = exchange.received.values[name], public.schema[name]
        assert isinstance(value, Rows)
        assert spec.table is not None
        row, change = value.row, _moved(public, exchange, name, value)  # [c, r], [c, r, d]
        told = exchange.received.values.get("examples")
        assert not isinstance(told, Rows)
        score = self._score(change, row >= 0, told, public.draws, spec.table)
        found = score.new_zeros(len(row), spec.table + 1)
        found.scatter_(1, torch.where(row < 0, spec.table, row), score)
        return found[:, :-1]

    def _score(self, change: Tensor, there: Tensor, told: Tensor | None, draws: int, items: int) -> Tensor:
        """``[c, r]`` the score of each row."""
        if self.by == "direction":
            along = _along(change, there)
            sides = torch.stack([(along > 0).sum(1), (along < 0).sum(1)])  # [2, c]
            side = _touched(sides, draws, items) if told is None else (sides - told).abs().argmin(0)
            return torch.where((side == 1)[:, None], -along, along)
        norm = change.square().sum(-1).sqrt()
        return norm if self.by == "norms" else (norm > 0).float()


def _moved(public: Public, exchange: Exchange, name: str, value: Rows) -> Tensor:
    """``[c, r, d]`` the distance that each row moves down its gradient; 0 for padding."""
    rows = value.value.reshape(*value.row.shape, -1).float()  # of a table of numbers, one wide
    if public.gradients or public.model.parts[part_of(name)].scope is not Scope.SHARED:
        change = -rows
    else:
        change = rows - _table(exchange, name)[value.row.clamp(min=0)].float()
    return change * (value.row >= 0)[..., None]


def _table(exchange: Exchange, name: str) -> Tensor:
    sent = exchange.sent.all[name]
    return sent.reshape(len(sent), -1)


def _along(change: Tensor, there: Tensor) -> Tensor:
    """``[c, r]`` the position of each row's change along the line on which they lie, in −1 … 1.

    The line is the first principal direction of the unit changes, found by a few steps of the power method;
    unit changes, since a row may be drawn twice and touched rows move further.
    """
    unit = torch.nn.functional.normalize(change, dim=-1)
    return (unit @ _line(unit)[..., None]).squeeze(-1) * there


def _touched(sides: Tensor, draws: int, items: int) -> Tensor:
    """``[c]`` 0 or 1, which of two sides with ``sides [2, c]`` rows is the touched one.

    The smaller, if so few events can have drawn as many others as the larger has; else the larger, if so many
    can have drawn as few. Where neither can be, the line does not separate touched rows from drawn ones, and
    the side is chosen whose size is nearer to the number of events that so many rows suggest. Where all items
    go up, as under noise on all rows, nothing was drawn for it; then one draw an event speaks for the larger.
    """
    fewer, more, rows = sides.amin(0).double(), sides.amax(0).double(), sides.sum(0)
    _, most = _drawn(fewer, draws, items)
    low, high = _drawn(more, draws, items)
    possible = more <= most
    larger = ~possible & (low <= fewer) & (fewer <= high)
    larger = torch.where(rows < items, larger, draws <= 1)
    side = torch.where(larger, sides.argmax(0), sides.argmin(0))
    unsure = ~possible & ~larger & (rows < items)
    return torch.where(unsure, (sides - _events(rows, draws, items)).abs().argmin(0), side)


def _drawn(events: Tensor, draws: int, items: int) -> tuple[Tensor, Tensor]:
    """The least and the most untouched items that so many events draw.

    s events draw draws · s times among o = items − s others and hit D = o(1 − e⁻ˣ) of them, with x being
    draws · s / o, and a variance of o e⁻ˣ(1 − (1 + x)e⁻ˣ): D within five deviations, at most draws · s.
    """
    mean, spread = _hit(events, draws, items)
    return mean - 5 * spread, torch.minimum(mean + 5 * spread, draws * events)


def _hit(events: Tensor, draws: int, items: int) -> tuple[Tensor, Tensor]:
    """D, and its deviation."""
    others = (items - events).clamp(min=1)
    rate = draws * events / others
    missed = torch.exp(-rate)
    return others * (1 - missed), (others * missed * (1 - (1 + rate) * missed)).clamp(min=0).sqrt()


def _events(rows: Tensor, draws: int, items: int) -> Tensor:
    """``[c]`` the likeliest number of events behind so many ``rows [c]``, touched and drawn together."""
    events = torch.arange(items + 1, dtype=torch.float64, device=rows.device)
    total = (events + _hit(events, draws, items)[0]).cummax(0).values  # it ascends, but for rounding
    return torch.searchsorted(total, rows.double()).clamp(max=items)


def _line(unit: Tensor, steps: int = 8) -> Tensor:
    """``[c, d]`` first principal directions of ``[c, r, d]``, by the power method."""
    square = unit.transpose(1, 2) @ unit  # [c, d, d]
    start = square.diagonal(dim1=1, dim2=2).argmax(1)
    line = square[torch.arange(len(square), device=square.device), start]
    for _ in range(steps):
        line = torch.nn.functional.normalize((square @ line[..., None]).squeeze(-1), dim=-1)
    return line
