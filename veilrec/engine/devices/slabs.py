"""Slabs: rows that devices keep of item tables of their own, side by side as they were put.

What many devices keep lies in few blocks of memory, apart from the heap. Small blocks that stay, each between
large ones that come and go with every chunk, leave holes that nothing fits into: memory would grow to many
times what is kept.
"""

from __future__ import annotations

import mmap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from veilrec.base.params import Params
from veilrec.engine.devices.shelf import beside

__all__ = ["Slabs"]

LARGE = 1 << 16  # bytes of a block that lies apart


@dataclass
class Slab:
    """Rows that were put together.

    Attributes:
        values: Name → ``[rows, …]``.
        live: How many of them are still what a device keeps.
    """

    values: Params
    live: int

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return len(next(iter(self.values.values())))


class Slabs:
    """Rows by slot: under each name as many of a device, on each device others.

    Rows that a device has replaced stay until they are more than half of their slab.

    >>> slabs, row = Slabs(), torch.tensor([[4, 7], [5, -1]])
    >>> slabs.put(torch.tensor([0, 1]), row >= 0, {"kept/row": row})
    >>> slabs.get([1, 0], ["kept/row"])
    {'kept/row': tensor([[ 5, -1],
            [ 4,  7]])}
    """

    def __init__(self) -> None:
        self._slabs: dict[int, Slab] = {}
        self._next = 0
        self._place = torch.zeros(0, 3, dtype=torch.int64)  # [slots, 3] slab, first row, number of rows
        self.names: list[str] = []

    def __len__(self) -> int:
        """The number of slots that have rows, were it none of each."""
        return int((self._place[:, 0] >= 0).sum())

    @property
    def counts(self) -> Tensor:
        """``[slots]`` how many rows each keeps."""
        return self._place[:, 2]

    @property
    def nbytes(self) -> int:
        """The bytes of all slabs."""
        return sum(value.nbytes for slab in self._slabs.values() for value in slab.values.values())

    def put(self, slots: Tensor, there: Tensor, values: Mapping[str, Tensor]) -> None:
        """Replace what some slots keep by those of their rows ``[c, r, …]`` that are ``there [c, r]``."""
        self.names = list(values)
        place, sparse = slots.cpu(), self._left(slots.cpu())
        self._add(place, there.sum(1).cpu(), {name: value[there] for name, value in values.items()})
        self._gather(sparse)

    def _gather(self, sparse: set[int]) -> None:
        """Put what is left of some slabs into one."""
        if not sparse:
            return
        stays = torch.isin(self._place[:, 0], torch.tensor(sorted(sparse))).nonzero().squeeze(1)
        if len(stays):
            moved = {name: torch.cat(self._views(stays.tolist(), name)) for name in self.names}
            self._add(stays, self.counts[stays], moved)
        for number in sparse:
            del self._slabs[number]

    def get(self, slots: Sequence[int], names: Collection[str]) -> Params:
        """Read what some slots keep under some names, padded: ``[c, r, …]``."""
        return {name: beside(name, self._views(slots, name)) for name in names}

    def column(self, name: str, first: int, last: int) -> Tensor:
        """Read what a range of slots keeps, one after another: ``[rows, …]``."""
        return torch.cat(self._views(range(first, last), name))

    def _views(self, slots: Sequence[int], name: str) -> list[Tensor]:
        places = cast("list[list[int]]", self._place[list(slots)].tolist())
        return [self._slabs[slab].values[name][begin : begin + n] for slab, begin, n in places]

    def _left(self, slots: Tensor) -> set[int]:
        """Note that slots keep their rows no longer. Returns the slabs that are not worth their room."""
        if len(slots) and int(slots.max()) >= len(self._place):
            wider = torch.full((max(int(slots.max()) + 1, 2 * len(self._place)), 3), -1)
            wider[:, 2] = 0
            wider[: len(self._place)] = self._place
            self._place = wider
        before, sparse = self._place[slots], set[int]()
        for number in before[:, 0].unique().tolist():
            if number < 0:
                continue
            slab = self._slabs[number]
            slab.live -= int(before[before[:, 0] == number, 2].sum())
            if 2 * slab.live < slab.rows or not slab.rows:
                sparse.add(number)
        self._place[slots, 0] = -1
        return sparse

    def _add(self, slots: Tensor, counts: Tensor, values: Params) -> None:
        """A slab of the rows ``[rows, …]`` of some slots, in their order."""
        self._slabs[self._next] = Slab(
            {name: _apart(value) for name, value in values.items()}, int(counts.sum())
        )
        ends = counts.cumsum(0)
        self._place[slots] = torch.stack([torch.full_like(counts, self._next), ends - counts, counts], 1)
        self._next += 1


def _apart(value: Tensor) -> Tensor:
    """A copy that lies apart from the heap, where it is large and on a CPU."""
    if value.device.type != "cpu" or value.nbytes < LARGE:
        return value.clone()
    room = mmap.mmap(-1, value.nbytes)
    return torch.frombuffer(room, dtype=value.dtype).view(value.shape).copy_(value)
