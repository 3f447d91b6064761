"""The store: what every device keeps between rounds, and only for devices that ever took part.

Most of it has one shape on all devices, and lies in one tensor. Of item tables that are a device's own some
rows are kept, on each device others (names under `params.KEPT`): those lie in tensors of its own, and are
padded where they are got. Where all of it is too much for memory, each device has a file instead.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from veilrec.base.params import KEPT, ROW, Params
from veilrec.base.tensors import Blocks
from veilrec.engine.devices.kept import SUMS, Devices, in_order, mixed
from veilrec.engine.devices.shelf import COUNT, Shelf, layout
from veilrec.engine.devices.slabs import Slabs

__all__ = ["Fresh", "Keeps", "Store"]

MUCH = 1 << 30  # bytes of all devices together, from which on they are not held in memory

Keeps = Literal["auto", "memory", "disk"]
Fresh = Callable[..., Params]
"""What devices ``[c]`` start from, all or the weights named, ``[c, …]``: the same whenever it is asked.

What is kept row by row begins with no rows: ``[c, 0, …]``.
"""


class Store(Devices):
    """Weights and optimiser state by device. A device that was never sampled costs nothing.

    Attributes:
        slot: ``[clients]`` where a device's rows are, -1 while it has none.
        values: Name → ``[slots, …]``; some slots at the end are spare. Empty with a shelf.
        rows: What is kept row by row. Empty with a shelf.
        fresh: What devices start from.
        shelf: Files that hold what devices keep, where it is not held in memory.
    """

    def __init__(
        self, n_clients: int, fresh: Fresh, device: str | torch.device = "cpu", shelf: Shelf | None = None
    ) -> None:
        self.slot = torch.full((n_clients,), -1, device=device)
        self.n_clients, self.device = n_clients, self.slot.device
        self.values: Params = {}
        self.rows = Slabs()
        self.used = 0
        self.fresh, self.shelf = fresh, shelf
        self._coming = 0  # devices that will be put soon: room for them is made at once

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
        store = cls(n_clients, fresh, device)
        if keeps == "disk" or (keeps == "auto" and device.type == "cpu" and store._most(rows) > MUCH):
            store.shelf = Shelf(store.first, folder)
            store.shelf.clear()
        return store

    @property
    def first(self) -> Params:
        return self.fresh(self.slot.new_zeros(1))

    def _most(self, rows: int) -> int:
        """Bytes of all devices once everybody has taken part, and has so many rows."""
        fields = layout(self.first).values()
        return len(self.slot) * sum(field.bytes * (rows if field.by_row else 1) for field in fields)

    def get(self, cohort: Tensor, names: Collection[str] | None = None) -> Params:
        has = self.slot[cohort] >= 0
        if len(cohort) and bool(has.all()):
            return self._held(cohort, names)
        new = ~has
        start = self.fresh(cohort[new]) if names is None else self.fresh(cohort[new], names)
        start = {name: start[name] for name in (start if names is None else names)}
        if not bool(has.any()):
            return start
        parts = [(new, start), (has, self._held(cohort[has], list(start)))]
        return mixed(len(cohort), [(place.nonzero().squeeze(1), some) for place, some in parts])

    def _held(self, cohort: Tensor, names: Collection[str] | None) -> Params:
        if self.shelf is not None:
            found = self.shelf.read(cohort.tolist(), names)
            return {name: value.to(self.slot.device) for name, value in found.items()}
        slot, chosen = self.slot[cohort], [*self.values, *self.rows.names] if names is None else names
        rows = self.rows.get(slot.tolist(), [name for name in chosen if name.startswith(KEPT)])
        return {n: rows[n] if n in rows else self.values[n].index_select(0, slot) for n in chosen}

    def put(self, cohort: Tensor, values: Params) -> None:
        slot = self.slot[cohort]
        new = slot < 0
        if count := int(new.sum()):
            slot[new] = torch.arange(self.used, self.used + count, device=slot.device)
            self.slot[cohort] = slot
            self.used += count
        if self.shelf is not None:
            self.shelf.write(cohort.tolist(), values)
            return
        for name, value in values.items():
            if not name.startswith(KEPT):
                self._room(name, value)[slot] = value
        if ROW in values:
            rows = {name: value for name, value in values.items() if name.startswith(KEPT)}
            self.rows.put(slot, values[ROW] >= 0, rows)

    def _room(self, name: str, like: Tensor) -> Tensor:
        """The column for `name`, doubled (up to the number of clients) when it is full."""
        column = self.values.get(name)
        have = 0 if column is None else len(column)
        if have < self.used or column is None:
            room = max(self.used, self._coming, 2 * have)
            wider = like.new_zeros(min(len(self.slot), room), *like.shape[1:])
            if column is not None:
                wider[:have] = column
            self.values[name] = column = wider
        return column

    def clear(self) -> None:
        self.slot, self.used, self.values, self.rows = torch.full_like(self.slot, -1), 0, {}, Slabs()
        if self.shelf is not None:
            self.shelf.clear()

    def clients(self) -> Tensor:
        return in_order(self.slot)

    def counts(self) -> Tensor:
        if self.shelf is None:
            return self.rows.counts[: self.used]
        return self.shelf.read(self.clients().tolist(), [COUNT])[COUNT]

    def pieces(self, name: str, size: int) -> Iterator[Tensor]:
        for first in range(0, self.used, size):
            yield self.column(name, first, first + size)

    def column(self, name: str, first: int, last: int) -> Tensor:
        """Read what the devices in some slots keep under a name, as in `pieces`."""
        if self.shelf is None:
            if name.startswith(KEPT):
                return self.rows.column(name, first, min(last, self.used))
            return self.values[name][first : min(last, self.used)]
        some = self.clients()[first:last].tolist()
        if not name.startswith(KEPT):
            return self.shelf.read(some, [name])[name]
        found = self.shelf.read(some, [*dict.fromkeys([name, ROW])])
        return found[name][found[ROW] >= 0]

    def reorder(self, clients: Tensor) -> None:
        """Give the devices that have files, and no others, their slots anew, in this order."""
        self.slot.fill_(-1)
        self.slot[clients] = torch.arange(len(clients), device=self.device)
        self.used = len(clients)

    def state(self) -> dict[str, Tensor | Blocks]:
        if self.shelf is not None:
            return {"slot": self.slot, SUMS: self.shelf.sums(self.clients().tolist())}
        return super().state()

    def snapshot(self, folder: Path) -> None:
        if self.shelf is not None:
            self.shelf.snapshot(folder, self.clients().tolist())

    def restore(self, state: Mapping[str, Tensor], folder: Path | None = None) -> None:
        clients = in_order(state["slot"])
        if self.shelf is not None and SUMS in state and folder is not None:
            self.clear()
            self.shelf.take(folder, clients.tolist(), state[SUMS])
            self.reorder(clients.to(self.device))
            return
        self._coming = len(clients)
        super().restore(state, folder)
        self._coming = 0
