"""The store: what every device keeps between rounds, and only for devices that ever took part."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Literal
from typing import Protocol as Shape

import torch
from torch import Tensor

from veilrec.params import Params
from veilrec.shelf import Shelf, layout
from veilrec.tensors import Blocks

__all__ = ["Fresh", "Keeps", "Store"]

Keeps = Literal["auto", "memory", "disk"]
MUCH = 1 << 30  # bytes of all devices together, from which on they are not held in memory
BLOCK = 64  # devices whose files are read at once


class Fresh(Shape):
    """What devices start from, the same whenever it is asked."""

    def __call__(self, cohort: Tensor, names: Collection[str] | None = None, /) -> Params:
        """``cohort [c]`` → name → ``[c, …]``: weights and optimiser state, or at least the weights named."""


class Store:
    """Weights and optimiser state by device. A device that was never sampled costs nothing.

    Attributes:
        slot: ``[clients]`` where a device's rows are, -1 while it has none.
        values: Name → ``[slots, …]``; some slots at the end are spare. Empty with a shelf.
        fresh: What devices start from.
        shelf: Files that hold what devices keep, where it is not held in memory.
    """

    def __init__(
        self, n_clients: int, fresh: Fresh, device: str | torch.device = "cpu", shelf: Shelf | None = None
    ) -> None:
        self.slot = torch.full((n_clients,), -1, device=device)
        self.values: Params = {}
        self.used = 0
        self.fresh, self.shelf = fresh, shelf

    @classmethod
    def of(
        cls, keeps: Keeps, n_clients: int, fresh: Fresh, device: torch.device, folder: Path | None = None
    ) -> Store:
        """A store in memory or on disk; ``auto`` decides by how much it is once everybody has taken part."""
        if keeps == "memory" or (keeps == "auto" and device.type != "cpu"):
            return cls(n_clients, fresh, device)
        fields = layout(fresh(torch.zeros(1, dtype=torch.int64, device=device)))
        much = n_clients * sum(field.bytes for field in fields.values()) > MUCH
        return cls(n_clients, fresh, device, Shelf.new(fields, folder) if much or keeps == "disk" else None)

    def get(self, cohort: Tensor, names: Collection[str] | None = None) -> Params:
        """What the given devices hold, all or the weights that are named: ``[c, …]``, copies."""
        slot = self.slot[cohort]
        has = slot >= 0
        if self.used and bool(has.all()):
            return self._rows(cohort, slot, names)
        start = self.fresh(cohort) if names is None else self.fresh(cohort, names)
        start = {name: start[name] for name in (start if names is None else names)}
        if bool(has.any()):
            for name, value in self._rows(cohort[has], slot[has], list(start)).items():
                start[name][has] = value
        return start

    def _rows(self, cohort: Tensor, slot: Tensor, names: Collection[str] | None) -> Params:
        if self.shelf is None:
            chosen = self.values if names is None else names
            return {name: self.values[name].index_select(0, slot) for name in chosen}
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
        for name, value in values.items():
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
        """Name → ``[used, …]`` in the order of the slots, for a file; from files, some rows at a time."""
        if self.shelf is None:
            return {name: value[: self.used] for name, value in self.values.items()}
        fields = self.shelf.fields if self.used else {}
        return {
            name: Blocks(field.dtype, (self.used, *field.shape), partial(self._blocks, name))
            for name, field in fields.items()
        }

    def _blocks(self, name: str) -> Iterator[Tensor]:
        for cohort in self.clients().split(BLOCK):
            yield self.get(cohort, [name])[name]

    def copy(self) -> Store:
        """The same contents, independent of what happens next."""
        twin = Store(len(self.slot), self.fresh, self.slot.device)
        twin.slot, twin.used = self.slot.clone(), self.used
        twin.values = {name: value[: self.used].clone() for name, value in self.values.items()}
        twin.shelf = self.shelf and self.shelf.twin(self.clients().tolist())
        return twin

    def state(self) -> Params:
        """All contents as flat tensors, for checkpoints; of files the checksums: see `snapshot`."""
        if self.shelf is not None:
            return {"slot": self.slot, "sums": self.shelf.digests(self.clients().tolist())}
        return {"slot": self.slot, **{f"value/{n}": v[: self.used] for n, v in self.values.items()}}

    def snapshot(self, folder: Path) -> None:
        """What `state` leaves out: the files of the devices, linked into a folder."""
        if self.shelf is not None:
            self.shelf.snapshot(folder, self.clients().tolist())

    def restore(self, state: Params, folder: Path | None = None) -> None:
        """The reverse of `state` and `snapshot`, whichever of memory and disk they were made in."""
        device = self.slot.device
        self.slot = state["slot"].to(device)
        self.used = int((self.slot >= 0).sum())
        self.values = {n.split("/", 1)[1]: v.to(device) for n, v in state.items() if n.startswith("value/")}
        client = self.clients().tolist()
        if self.shelf is None:
            if "sums" in state and folder is not None and self.used:
                fields = layout(self.fresh(self.slot.new_zeros(1)))
                found = Shelf(fields, folder).read(client, fields)
                self.values = {name: value.to(device) for name, value in found.items()}
            return
        self.shelf.clear()
        if "sums" in state and folder is not None:
            self.shelf.take(folder, client, state["sums"])
        elif self.used:
            self.shelf.write(client, self.values)
            self.values = {}
