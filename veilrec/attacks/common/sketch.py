"""A sketch: many columns folded into few by a seeded hash, so that 10⁵ values can be learned from.

Each column goes to one of k places with a random sign (count sketch); inner products and distances are kept
up to a relative error of about √(2/k), whatever the data. Nothing is fitted, so no user's values enter it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from veilrec.base.keys import Keys, below
from veilrec.base.params import Rows

__all__ = ["Sketch"]


@dataclass(frozen=True)
class Sketch:
    """Folds a tensor of `shape` per client into `kept` columns.

    Attributes:
        shape: Of one client's tensor; of a table, all its rows.
        place, sign: ``[columns]`` where each column goes, and with which sign.
        kept: Columns after folding.
    """

    shape: tuple[int, ...]
    place: Tensor
    sign: Tensor
    kept: int

    @classmethod
    def of(cls, name: str, shape: tuple[int, ...], kept: int, device: torch.device) -> Sketch:
        """The sketch for a part: the same in every run and for every user."""
        width = torch.Size(shape).numel()
        words = Keys.seed(0).fold("sketch").fold(name).words(width).to(device)
        sign = (words & 1) * 2 - 1
        return cls(shape, below(words, kept), sign, kept)

    def fold(self, value: Tensor | Rows) -> Tensor:
        """``[c, …]``, or some rows of a table, to ``[c, kept]``; padded rows count for nothing."""
        if isinstance(value, Rows):
            place, sign, flat = self._of_rows(value)
        else:
            flat = value.flatten(1)
            place, sign = self.place.expand_as(flat), self.sign.expand_as(flat)
        found = flat.new_zeros(len(flat), self.kept)
        return found.scatter_add_(1, place, flat * sign)

    def _of_rows(self, rows: Rows) -> tuple[Tensor, Tensor, Tensor]:
        place, sign = (column.reshape(self.shape[0], -1) for column in (self.place, self.sign))
        row = rows.row.clamp(min=0)
        there = (rows.row >= 0)[..., None]
        value = rows.value.reshape(*rows.row.shape, -1) * there  # [c, r, w]
        return place[row].flatten(1), sign[row].flatten(1), value.flatten(1)


def whole(value: Tensor | Rows, table: int | None) -> Tensor:
    """``[c, columns]`` every value in its place, zeros where a row was not sent."""
    if not isinstance(value, Rows):
        return value.flatten(1)
    assert table is not None
    wide = value.value.reshape(*value.row.shape, -1)
    found = wide.new_zeros(len(wide), table + 1, wide.shape[-1])
    place = torch.where(value.row < 0, table, value.row)[..., None]
    found.scatter_(1, place.expand_as(wide), wide)
    return found[:, :-1].flatten(1)


def distortion(exact: Tensor, folded: Tensor) -> float:
    """The median relative error of the distances between users: ``[n, columns]`` and ``[n, kept]``."""
    before, after = torch.pdist(exact.double()), torch.pdist(folded.double())
    there = before > 0
    if not bool(there.any()):
        return 0.0
    return float((after[there] / before[there] - 1).abs().median())
