"""A heap: rows of many devices, each with as many as it has, one device's after another's in one tensor.

A device that comes back with more rows than before gets a new place at the end. What it had is given up until
there is no room left: then everything that is in use moves together.
"""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor

from veilrec.base.params import KEPT, ROW, Params
from veilrec.base.rows import along, ragged, starts

__all__ = ["COUNT", "Heap", "flattened", "padded"]

COUNT = f"{KEPT}count"  # beside rows that lie one after another: how many are each device's


class Heap:
    """Rows by slot, several columns wide: `ROW` numbers them, ascending, and every other name is a value.

    Attributes:
        start, count, room: ``[slots]`` where a slot's rows begin, how many they are, and how many fit there.
        end: Rows that are taken, some of them given up.
        values: Name → ``[rows, …]``; some rows at the end are spare.
    """

    def __init__(self, device: torch.device) -> None:
        self.start = self.count = self.room = torch.zeros(0, dtype=torch.int64, device=device)
        self.end = 0
        self.values: Params = {}

    def get(self, slot: Tensor, names: Collection[str]) -> Params:
        """``slot [c]`` → name → ``[c, r, …]`` copies, padded to the longest of them."""
        if not names:
            return {}
        count = self.count[slot]
        place, there = _places(count)
        index = torch.where(there, self.start[slot][:, None] + place, 0).reshape(-1)
        return {name: _wide(name, self.values[name].index_select(0, index), there) for name in names}

    def put(self, slot: Tensor, values: Params) -> None:
        """Replace the rows of some slots ``[c]``: name → ``[c, r, …]``, `ROW` among them."""
        if not values:
            return
        there = values[ROW] >= 0
        self._make_room(slot, there.sum(1), values)
        client, place = there.nonzero(as_tuple=True)
        index, source = self.start[slot][client] + place, client * there.shape[1] + place
        for name, value in values.items():
            self.values[name].index_copy_(0, index, value.flatten(0, 1).index_select(0, source))

    def packed(self, slots: int) -> Params:
        """Name → ``[rows, …]`` of the first slots, in their order and without gaps, and `COUNT`: views."""
        if not self.values:
            return {}
        total = int(self.count.sum())
        if self.end != total or not torch.equal(self.start, starts(self.count)):
            self._move(total)
        return {name: value[:total] for name, value in self.values.items()} | {COUNT: self.count[:slots]}

    def restore(self, packed: Params) -> None:
        """The reverse of `packed`; without anything, an empty heap."""
        device = self.start.device
        moved = {name: value.to(device) for name, value in packed.items()}
        self.count = moved.pop(COUNT, torch.zeros(0, dtype=torch.int64, device=device))
        self.start, self.room = starts(self.count), self.count.clone()
        self.end, self.values = int(self.count.sum()), moved

    def _make_room(self, slot: Tensor, count: Tensor, like: Params) -> None:
        """Places for so many rows of each slot ``[c]``; what was there is given up where it is too small."""
        beyond = int(slot.max()) + 1 - len(self.start) if len(slot) else 0
        if beyond > 0:
            more = self.start.new_zeros(max(beyond, len(self.start)))
            self.start, self.count, self.room = (
                torch.cat([known, more]) for known in (self.start, self.count, self.room)
            )
        for name, value in like.items():
            self.values.setdefault(name, value.new_zeros(0, *value.shape[2:]))
        few = count > self.room[slot]
        moving, needed = slot[few], count[few]
        self.count[slot] = torch.where(few, 0, count)  # before anything moves: what fits needs its room
        self.room[moving] = 0
        total = int(needed.sum())
        if self.end + total > len(self.values[ROW]):
            live = int(self.count.sum()) + total
            self._move(live + live // 2)
        self.start[moving], self.room[moving] = self.end + starts(needed), needed
        self.count[slot] = count
        self.end += total

    def _move(self, size: int) -> None:
        """All that is in use, in the order of the slots, to the front of tensors of a new size."""
        owner, place = ragged(self.count)
        index = place + self.start[owner]
        for name, value in self.values.items():
            wider = value.new_empty(size, *value.shape[1:])
            torch.index_select(value, 0, index, out=wider[: len(index)])
            self.values[name] = wider
        self.start, self.room, self.end = starts(self.count), self.count.clone(), len(index)


def padded(count: Tensor, flat: Params) -> Params:
    """Rows one after another ``[rows, …]``, so many of each device ``[c]``, to ``[c, r, …]``."""
    place, there = _places(count)
    index = torch.where(there, starts(count)[:, None] + place, 0).reshape(-1)
    return {name: _wide(name, value.index_select(0, index), there) for name, value in flat.items()}


def flattened(values: Params) -> Params:
    """The reverse of `padded`: name → ``[c, r, …]``, `ROW` among them, to ``[rows, …]`` one after another."""
    there = values[ROW] >= 0
    return {name: value[there] for name, value in values.items()}


def _places(count: Tensor) -> tuple[Tensor, Tensor]:
    """``[r]`` the places of the longest, and ``[c, r]`` which of them each device has."""
    place = torch.arange(int(count.max()) if len(count) else 0, device=count.device)
    return place, place < count[:, None]


def _wide(name: str, value: Tensor, there: Tensor) -> Tensor:
    """``[c · r, …]`` to ``[c, r, …]``, with -1 for a row that is missing and zeros for its values."""
    wide = value.reshape(*there.shape, *value.shape[1:])
    return wide.masked_fill_(~along(there, wide), -1 if name == ROW else 0)
