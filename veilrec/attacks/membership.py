"""Interaction membership: which items did a user touch, from one upload of that user.

Papers: none of the five measures it; PARD §II-B grants its attacker the answer (I'_u). A device uploads the
rows of the items it trained on, touched ones and drawn negatives alike; which are which is in the values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from veilrec.attack import Pairs, Public
from veilrec.params import Rows, Scope, part_of
from veilrec.uploads import Exchange

__all__ = ["Membership"]

WAYS = ("rows", "norms", "direction")


@dataclass(frozen=True)
class Membership(Pairs):
    """Scores items by the rows of the upload.

    Attributes:
        by: ``rows``: whether the item's row was sent, or changed, at all. ``norms``: how far it moved.
            ``direction``: where it moved. Touched items are pulled to the user and negatives pushed away, so
            their changes point to opposite sides of one line. Which side is the touched one its number of
            rows tells: how many events are behind an upload is told with it, or follows from how many
            untouched items are drawn for each.
    """

    by: Literal["rows", "norms", "direction"] = "direction"

    def pairs(self, public: Public, exchange: Exchange) -> Tensor:
        tables = [name for name, spec in public.schema.items() if spec.table is not None]
        if not tables:
            items = 0
            return torch.zeros(len(exchange.received.cohort), items)
        total = [self._of_table(public, exchange, name) for name in tables]
        return torch.stack(total).sum(0)

    def _of_table(self, public: Public, exchange: Exchange, name: str) -> Tensor:
        """``[c, items]`` from one table; 0 for rows that were not sent."""
        value, spec = exchange.received.values[name], public.schema[name]
        assert isinstance(value, Rows)
        assert spec.table is not None
        row, change = value.row, _moved(public, exchange, name, value)  # [c, r], [c, r, d]
        norm = change.square().sum(-1).sqrt()
        told = exchange.received.examples
        expected = told if told is not None else self._expected(public, row >= 0, spec.table)
        score = {"rows": lambda: (norm > 0).float(), "norms": lambda: norm}.get(
            self.by, lambda: _side(change, row >= 0, expected)
        )()
        found = score.new_zeros(len(row), spec.table + 1)
        found.scatter_(1, torch.where(row < 0, spec.table, row), score)
        return found[:, :-1]

    def _expected(self, public: Public, there: Tensor, items: int) -> Tensor:
        """``[c]`` 0 where a user should have fewer touched rows than drawn ones, `items` where more.

        Were half of the r rows touched, draws · r/2 draws among the others would hit
        (items − r/2)(1 − exp(−draws · (r/2) / (items − r/2))) of them: more than r/2 only if fewer are
        touched. Where all items go up, as under noise on all rows, r tells nothing; few users touch more
        than half of all there is, but with one draw an event no more are drawn than touched.
        """
        rows = there.sum(1)
        half, others = rows / 2, (items - rows / 2).clamp(min=1)
        drawn = others * (1 - torch.exp(-public.draws * half / others))
        fewer = torch.where(rows < items, drawn > half, public.draws > 1)
        return torch.where(fewer, 0, items)


def _moved(public: Public, exchange: Exchange, name: str, value: Rows) -> Tensor:
    """``[c, r, d]`` how far each row moves down its gradient; 0 for padding."""
    rows = value.value.reshape(*value.row.shape, -1).float()  # of a table of numbers, one wide
    if public.gradients or public.model.parts[part_of(name)].scope is not Scope.SHARED:
        change = -rows
    else:
        change = rows - _table(exchange, name)[value.row.clamp(min=0)].float()
    return change * (value.row >= 0)[..., None]


def _table(exchange: Exchange, name: str) -> Tensor:
    sent = exchange.sent.all[name]
    return sent.reshape(len(sent), -1)


def _side(change: Tensor, there: Tensor, expected: Tensor) -> Tensor:
    """``[c, r]`` the position of each row's change along the line on which they lie, touched ones positive.

    The touched side is the one whose number of rows is nearer to what is expected.

    The line is the first principal direction of the unit changes, found by a few steps of the power method;
    unit changes, since a row may be drawn twice and touched rows move further.
    """
    unit = torch.nn.functional.normalize(change, dim=-1)
    line = _line(unit)
    along = (unit @ line[..., None]).squeeze(-1) * there  # [c, r] in -1 … 1
    off = [((along > 0).sum(1) - expected).abs(), ((along < 0).sum(1) - expected).abs()]  # [c] each
    return torch.where((off[1] < off[0])[:, None], -along, along)


def _line(unit: Tensor, steps: int = 8) -> Tensor:
    """``[c, d]`` first principal directions of ``[c, r, d]``, by the power method."""
    square = unit.transpose(1, 2) @ unit  # [c, d, d]
    start = square.diagonal(dim1=1, dim2=2).argmax(1)
    line = square[torch.arange(len(square), device=square.device), start]
    for _ in range(steps):
        line = torch.nn.functional.normalize((square @ line[..., None]).squeeze(-1), dim=-1)
    return line
