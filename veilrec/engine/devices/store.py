"""The store: what every device keeps between rounds, and only for devices that ever took part.

Most of it has one shape on all devices, and lies in one tensor. Of item tables that are a device's own some
rows are kept, on each device others (names under `params.KEPT`): those lie in tensors of its own, and are
padded where they are got. Where all of it is too much for memory, each device has a file instead.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from veilrec.base.params import KEPT, ROW, Params
from veilrec.base.tensors import Blocks
from veilrec.engine.devices.shelf import COUNT, Shelf, beside, layout

__all__ = ["SUMS", "Fresh", "Keeps", "Store"]

SUMS = "sums"  # in a state, of the devices' files
MUCH = 1 << 30  # bytes of all devices together, from which on they are not held in memory
BLOCK = 64  # devices that are read at once

Keeps = Literal["auto", "memory", "disk"]
Fresh = Callable[..., Params]
"""What devices ``[c]`` start from, all or the weights named, ``[c, …]``: the same whenever it is asked.

What is kept row by row begins with no rows: ``[c, 0, …]``.
"""


class Store:
    """Weights and optimiser state by device. A device that was never sampled costs nothing.

    Attributes:
        slot: ``[clients]`` where a device's rows are, -1 while it has none.
        values: Name → ``[slots, …]``; some slots at the end are spare. Empty with a shelf.
        rows: Name → ``[r, …]`` by slot, of what is kept row by row. Empty with a shelf.
        fresh: What devices start from.
        shelf: Files that hold what devices keep, where it is not held in memory.
    """

    def __init__(
        self, n_clients: int, fresh: Fresh, device: str | torch.device = "cpu", shelf: Shelf | None = None
    ) -> None:
        self.slot = torch.full((n_clients,), -1, device=device)
        self.values: Params = {}
        self.rows: dict[str, list[Tensor]] = {}
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
        store = cls(n_clients, fresh, device)
        if keeps == "disk" or (keeps == "auto" and device.type == "cpu" and store._most(rows) > MUCH):
            store.shelf = Shelf(store.first, folder)
            store.shelf.clear()
        return store

    @property
    def first(self) -> Params:
        """The values that one device begins with, to see their shapes."""
        return self.fresh(self.slot.new_zeros(1))

    def _most(self, rows: int) -> int:
        """Bytes of all devices once everybody has taken part, and has so many rows."""
        fields = layout(self.first).values()
        return len(self.slot) * sum(field.bytes * (rows if field.by_row else 1) for field in fields)

    def get(self, cohort: Tensor, names: Collection[str] | None = None) -> Params:
        """Read what the given devices hold, all or the weights named: ``[c, …]``, copies."""
        slot = self.slot[cohort]
        has = slot >= 0
        if len(cohort) and bool(has.all()):
            return self._held(cohort, names)
        start = self.fresh(cohort) if names is None else self.fresh(cohort, names)
        start = {name: start[name] for name in (start if names is None else names)}
        if bool(has.any()):
            for name, value in self._held(cohort[has], list(start)).items():
                if name.startswith(KEPT):
                    blank = -1 if name == ROW else 0
                    start[name] = value.new_full((len(cohort), *value.shape[1:]), blank)
                start[name][has] = value
        return start

    def _held(self, cohort: Tensor, names: Collection[str] | None) -> Params:
        if self.shelf is not None:
            found = self.shelf.read(cohort.tolist(), names)
            return {name: value.to(self.slot.device) for name, value in found.items()}
        slot, chosen = self.slot[cohort], [*self.values, *self.rows] if names is None else names
        rows = {n: [self.rows[n][k] for k in slot.tolist()] for n in chosen if n.startswith(KEPT)}
        return {n: beside(n, rows[n]) if n in rows else self.values[n].index_select(0, slot) for n in chosen}

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
        there = values[ROW] >= 0 if ROW in values else slot
        for name, value in values.items():
            if name.startswith(KEPT):
                self._put_rows(name, slot.tolist(), value[there].split(there.sum(1).tolist()))
            else:
                self._room(name, value)[slot] = value

    def _put_rows(self, name: str, slots: list[int], parts: tuple[Tensor, ...]) -> None:
        """Rows ``[r, …]`` for some slots; those that are new come in the order of their numbers."""
        held = self.rows.setdefault(name, [])
        for slot, part in zip(slots, parts, strict=True):
            held[slot : slot + 1] = [part.clone()]  # no view: it would hold the rows of the others, too

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

    def clear(self) -> None:
        """Forget all devices."""
        self.slot, self.used, self.values, self.rows = torch.full_like(self.slot, -1), 0, {}, {}
        if self.shelf is not None:
            self.shelf.clear()

    def clients(self) -> Tensor:
        """``[used]`` the devices that ever took part, in the order of their slots."""
        client = (self.slot >= 0).nonzero().squeeze(1)
        ordered = torch.empty_like(client)
        ordered[self.slot[client]] = client
        return ordered

    def columns(self) -> Mapping[str, Tensor | Blocks]:
        """Name → ``[used, …]`` in the order of the slots, for a file; some of them device by device.

        What is kept row by row is ``[rows, …]``, one device's after another's; `COUNT` says how many.
        """
        if not self.used:
            return {}
        fields = layout(self.first)
        count = torch.tensor([len(row) for row in self._each(ROW)] if COUNT in fields else [0])
        found: dict[str, Tensor | Blocks] = {}
        for name, field in fields.items():
            shape = (int(count.sum()) if field.by_row else self.used, *field.shape)
            found[name] = Blocks(field.dtype, shape, partial(self._each, name))
        found |= {name: value[: self.used] for name, value in self.values.items()}
        return {**found, COUNT: count} if found.pop(COUNT, None) else found

    def _each(self, name: str) -> Iterator[Tensor]:
        """Read what each device keeps under a name, in the order of the slots."""
        if self.shelf is None:
            yield from self.rows[name]
        else:
            for client in self.clients().tolist():
                yield self.shelf.read([client], [name])[name][0]

    def state(self) -> dict[str, Tensor | Blocks]:
        """All contents as flat tensors, for checkpoints; of files the checksums: see `snapshot`."""
        if self.shelf is not None:
            return {"slot": self.slot, SUMS: self.shelf.sums(self.clients().tolist())}
        return {"slot": self.slot, **{f"value/{name}": value for name, value in self.columns().items()}}

    def snapshot(self, folder: Path) -> None:
        """Link the files of the devices, which `state` leaves out, into a folder."""
        if self.shelf is not None:
            self.shelf.snapshot(folder, self.clients().tolist())

    def restore(self, state: Params, folder: Path | None = None) -> None:
        """The reverse of `state` and `snapshot`, whichever of memory and disk they were made in."""
        other = self._told(state, folder)
        self.clear()
        if self.shelf is None and other.shelf is None:
            self.slot, self.used, self.values, self.rows = other.slot, other.used, other.values, other.rows
        elif self.shelf is not None and other.shelf is not None:
            self.slot, self.used = other.slot, other.used
            self.shelf.take(other.shelf.folder, self.clients().tolist(), state[SUMS])
        elif other.used:
            for cohort in other.clients().split(BLOCK):
                self.put(cohort, other.get(cohort))

    def _told(self, state: Params, folder: Path | None) -> Store:
        """The store that a state, and the files in a folder, tell of."""
        store = Store(len(self.slot), self.fresh, self.slot.device)
        store.slot = state["slot"].to(self.slot.device)
        store.used = int((store.slot >= 0).sum())
        if SUMS in state and folder is not None:
            store.shelf = Shelf(self.first, folder)
        held = {n.split("/", 1)[1]: v.to(store.slot.device) for n, v in state.items() if n[:6] == "value/"}
        count = held.pop(COUNT, store.slot[:0]).tolist()
        for name, value in held.items():
            if name.startswith(KEPT):
                store._put_rows(name, list(range(len(count))), value.split(count))
            else:
                store.values[name] = value
        return store
