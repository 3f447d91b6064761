"""The store: what every device keeps between rounds, and only for devices that ever took part.

Most of it has one shape on all devices. Of item tables that are a device's own only some rows are kept, on
each device others (names under `params.KEPT`): those are padded where they are got and put, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Literal
from typing import Protocol as Shape

import torch
from torch import Tensor

from veilrec.base.params import KEPT, ROW, Params
from veilrec.base.tensors import Blocks
from veilrec.engine.heap import COUNT, Heap, flattened
from veilrec.engine.shelf import Shelf, layout

__all__ = ["Fresh", "Keeps", "Store"]

Keeps = Literal["auto", "memory", "disk"]
MUCH = 1 << 30  # bytes of all devices together, from which on they are not held in memory
BLOCK = 64  # devices whose files are read at once
FEW = 8  # the same, of those that keep rows


class Fresh(Shape):
    """A maker of what devices start from, the same whenever it is asked."""

    def __call__(self, cohort: Tensor, names: Collection[str] | None = None, /) -> Params:
        """``cohort [c]`` → name → ``[c, …]``: weights and optimiser state, or at least the weights named.

        What is kept row by row begins with no rows: ``[c, 0, …]``.
        """


class Store:
    """Weights and optimiser state by device. A device that was never sampled costs nothing.

    Attributes:
        slot: ``[clients]`` where a device's rows are, -1 while it has none.
        values: Name → ``[slots, …]``; some slots at the end are spare. Empty with a shelf.
        heap: What devices keep row by row; empty with a shelf.
        fresh: What devices start from.
        shelf: Files that hold what devices keep, where it is not held in memory.
    """

    def __init__(
        self, n_clients: int, fresh: Fresh, device: str | torch.device = "cpu", shelf: Shelf | None = None
    ) -> None:
        self.slot = torch.full((n_clients,), -1, device=device)
        self.values: Params = {}
        self.heap = Heap(self.slot.device)
        self.used = 0
        self.fresh, self.shelf = fresh, shelf

    @classmethod
    def of(
        cls,
        keeps: Keeps,
        n_clients: int,
        fresh: Fresh,
        device: torch.device,
        folder: Path | None = None,
        rows: int = 0,
    ) -> Store:
        """A store in memory or on disk; ``auto`` decides by how much it is once everybody has taken part.

        Of what is kept row by row a device may come to have so many `rows`.
        """
        if keeps == "memory" or (keeps == "auto" and device.type != "cpu"):
            return cls(n_clients, fresh, device)
        fields = layout(fresh(torch.zeros(1, dtype=torch.int64, device=device)))
        each = sum(field.bytes * (rows if field.ragged else 1) for field in fields.values())
        much = n_clients * each > MUCH
        return cls(n_clients, fresh, device, Shelf.new(fields, folder) if much or keeps == "disk" else None)

    def get(self, cohort: Tensor, names: Collection[str] | None = None) -> Params:
        """Read what the given devices hold, all or the weights named: ``[c, …]``, copies."""
        slot = self.slot[cohort]
        has = slot >= 0
        if self.used and bool(has.all()):
            return self._rows(cohort, slot, names)
        start = self.fresh(cohort) if names is None else self.fresh(cohort, names)
        start = {name: start[name] for name in (start if names is None else names)}
        if bool(has.any()):
            for name, value in self._rows(cohort[has], slot[has], list(start)).items():
                if name.startswith(KEPT):
                    blank = -1 if name == ROW else 0
                    start[name] = value.new_full((len(cohort), *value.shape[1:]), blank)
                start[name][has] = value
        return start

    def _rows(self, cohort: Tensor, slot: Tensor, names: Collection[str] | None) -> Params:
        if self.shelf is None:
            chosen = [*self.values, *self.heap.values] if names is None else names
            kept = self.heap.get(slot, [name for name in chosen if name.startswith(KEPT)])
            return {n: kept[n] if n in kept else self.values[n].index_select(0, slot) for n in chosen}
        found = self.shelf.read(cohort.tolist(), self.shelf.fields if names is None else names)
        return {name: value.to(self.slot.device) for name, value in found.items()}

    def put(self, cohort: Tensor, values: Params) -> None:
        """Replace what the given devices hold."""
        slot = self.slot[cohort]
        new = slot < 0
        if count := int(new.sum()):
            slot[new] = torch.arange(self.used, self.used + count, device=slot.device)
            self.slot[cohort] = slot
            self.used += count
        if self.shelf is not None:
            self.shelf.write(cohort.tolist(), values)
            return
        self.heap.put(slot, {name: value for name, value in values.items() if name.startswith(KEPT)})
        for name, value in values.items():
            if not name.startswith(KEPT):
                self._room(name, value)[slot] = value

    def _room(self, name: str, like: Tensor) -> Tensor:
        """The column for `name`, doubled (up to the number of clients) when it is full."""
        column = self.values.get(name)
        have = 0 if column is None else len(column)
        if have < self.used or column is None:
            wider = like.new_zeros(min(len(self.slot), max(self.used, 2 * have)), *like.shape[1:])
            if column is not None:
                wider[:have] = column
            self.values[name] = column = wider
        return column

    def clients(self) -> Tensor:
        """``[used]`` the devices that ever took part, in the order of their slots."""
        client = (self.slot >= 0).nonzero().squeeze(1)
        ordered = torch.empty_like(client)
        ordered[self.slot[client]] = client
        return ordered

    def columns(self) -> Mapping[str, Tensor | Blocks]:
        """Name → ``[used, …]`` in the order of the slots, for a file; from files, some rows at a time.

        What is kept row by row is ``[rows, …]``, one device's after another's; `heap.COUNT` says how many.
        """
        if self.shelf is None:
            return self._columns()
        fields = self.shelf.fields if self.used else {}
        count = self.shelf.counts(self.clients().tolist())
        lengths = {n: int(count.sum()) if field.ragged else self.used for n, field in fields.items()}
        found: dict[str, Tensor | Blocks] = {
            name: Blocks(field.dtype, (lengths[name], *field.shape), partial(self._blocks, name))
            for name, field in sorted(fields.items(), key=lambda named: named[1].ragged)  # as in memory
        }
        return found | {COUNT: count} if ROW in fields else found

    def _columns(self) -> Params:
        """Columns of a store in memory; none is copied, unless rows have to move together first."""
        kept = self.heap.packed(self.used)
        return {name: value[: self.used] for name, value in self.values.items()} | kept

    def _blocks(self, name: str) -> Iterator[Tensor]:
        ragged = name.startswith(KEPT)
        for cohort in self.clients().split(FEW if ragged else BLOCK):
            found = self.get(cohort, {ROW, name} if ragged else {name})
            yield flattened(found)[name] if ragged else found[name]

    def copy(self) -> Store:
        """The same contents, independent of what happens next."""
        twin = Store(len(self.slot), self.fresh, self.slot.device)
        twin.slot, twin.used = self.slot.clone(), self.used
        twin.values = {name: value[: self.used].clone() for name, value in self.values.items()}
        twin.heap.restore({name: value.clone() for name, value in self.heap.packed(self.used).items()})
        twin.shelf = self.shelf and self.shelf.twin(self.clients().tolist())
        return twin

    def state(self) -> Params:
        """All contents as flat tensors, for checkpoints; of files the checksums: see `snapshot`."""
        if self.shelf is not None:
            return {"slot": self.slot, "sums": self.shelf.digests(self.clients().tolist())}
        return {"slot": self.slot, **{f"value/{name}": value for name, value in self._columns().items()}}

    def snapshot(self, folder: Path) -> None:
        """Link the files of the devices, which `state` leaves out, into a folder."""
        if self.shelf is not None:
            self.shelf.snapshot(folder, self.clients().tolist())

    def restore(self, state: Params, folder: Path | None = None) -> None:
        """The reverse of `state` and `snapshot`, whichever of memory and disk they were made in."""
        device = self.slot.device
        self.slot = state["slot"].to(device)
        self.used = int((self.slot >= 0).sum())
        held = {n.split("/", 1)[1]: v.to(device) for n, v in state.items() if n.startswith("value/")}
        self.values = {name: value for name, value in held.items() if not name.startswith(KEPT)}
        self.heap.restore({name: value for name, value in held.items() if name.startswith(KEPT)})
        if self.shelf is None:
            if "sums" in state and folder is not None and self.used:
                self._unshelve(Shelf(layout(self.fresh(self.slot.new_zeros(1))), folder))
            return
        self.shelf.clear()
        if "sums" in state and folder is not None:
            self.shelf.take(folder, self.clients().tolist(), state["sums"])
        elif self.used:
            self._shelve(self.shelf)

    def _unshelve(self, shelf: Shelf) -> None:
        """Fill the memory from files, some devices at a time."""
        for cohort in self.clients().split(BLOCK):
            found = shelf.read(cohort.tolist(), shelf.fields)
            self.put(cohort, {name: value.to(cohort.device) for name, value in found.items()})

    def _shelve(self, shelf: Shelf) -> None:
        """Move what is in memory to files, some devices at a time."""
        self.shelf = None
        for cohort in self.clients().split(BLOCK):
            shelf.write(cohort.tolist(), self.get(cohort))
        self.shelf, self.values = shelf, {}
        self.heap.restore({})
