"""Kept: what devices keep between rounds, wherever it lies; as much as is asked for is read at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from veilrec.base.params import KEPT, ROW, Params
from veilrec.base.tensors import Blocks, beneath, rows_of
from veilrec.engine.devices.shelf import COUNT, Shelf, beside, layout

__all__ = ["BLOCK", "SUMS", "Devices", "Kept", "in_order", "mixed"]

SUMS = "sums"  # in a state, of the devices' files
BLOCK = 64  # devices whose values are read or moved at once
BYTES = 1 << 20  # of a column that are read at once
MANY = 4096  # devices of which a column is read at once, however little each of them keeps


class Kept(ABC):
    """What some devices keep. Those that took part lie in slots, in an order that no reading changes."""

    @abstractmethod
    def get(self, cohort: Tensor, names: Collection[str] | None = None) -> Params:
        """Read what the given devices hold, all or the weights named: ``[c, …]``, copies."""

    @abstractmethod
    def put(self, cohort: Tensor, values: Params) -> None:
        """Replace what the given devices hold."""

    @abstractmethod
    def clear(self) -> None:
        """Forget all devices."""

    @abstractmethod
    def clients(self) -> Tensor:
        """``[used]`` the devices that ever took part, in the order of their slots."""

    @abstractmethod
    def counts(self) -> Tensor:
        """``[used]`` how many rows of item tables of its own each of them keeps."""

    @abstractmethod
    def pieces(self, name: str, size: int) -> Iterator[Tensor]:
        """Read what they keep under a name in the order of their slots, so many at a time: ``[c, …]``.

        Of what is kept row by row it is ``[rows, …]``, one device's after another's.
        """


class Devices(Kept):
    """What all devices of a fleet keep, which a run saves and takes up again.

    Attributes:
        n_clients: How many devices there are, whether they took part or not.
        device: Where tensors lie that are got.
    """

    n_clients: int
    device: torch.device

    @property
    @abstractmethod
    def first(self) -> Params:
        """The values that one device begins with, to see their shapes."""

    @abstractmethod
    def snapshot(self, folder: Path) -> None:
        """Bring the files of the devices, which `state` leaves out, into a folder, if they have any."""

    def columns(self) -> Mapping[str, Tensor | Blocks]:
        """Name → ``[used, …]`` in the order of the slots, for a file, read some devices at a time.

        What is kept row by row is ``[rows, …]``, one device's after another's; `COUNT` says how many.
        """
        used = len(self.clients())
        if not used:
            return {}
        fields = layout(self.first)
        count = self.counts() if COUNT in fields else torch.zeros(0, dtype=torch.int64)
        found: dict[str, Tensor | Blocks] = {}
        for name, field in fields.items():
            shape = (int(count.sum()) if field.by_row else used, *field.shape)
            each = max(1, shape[0] * field.bytes // used)
            size = max(1, min(MANY, BYTES // each))
            found[name] = Blocks(field.dtype, shape, partial(self.pieces, name, size))
        return {**found, COUNT: count} if found.pop(COUNT, None) else found

    def state(self) -> dict[str, Tensor | Blocks]:
        """All contents as flat tensors, for checkpoints; of files the checksums: see `snapshot`."""
        slot, clients = torch.full((self.n_clients,), -1, device=self.device), self.clients()
        slot[clients] = torch.arange(len(clients), device=self.device)
        return {"slot": slot, **{f"value/{name}": value for name, value in self.columns().items()}}

    def restore(self, state: Mapping[str, Tensor], folder: Path | None = None) -> None:
        """The reverse of `state` and `snapshot`, whichever of memory and files they were made in."""
        clients = in_order(state["slot"])
        self.clear()
        if SUMS not in state or folder is None:
            self.fill(clients, beneath(state, "value/"))
            return
        files = Shelf(self.first, folder)
        for some in clients.split(BLOCK):
            self._give(some, files.read(some.tolist()))

    def _give(self, cohort: Tensor, values: Params) -> None:
        """Put what was read from a file, where tensors lie."""
        self.put(cohort.to(self.device), {name: value.to(self.device) for name, value in values.items()})

    def fill(self, clients: Tensor, columns: Mapping[str, Tensor]) -> None:
        """The reverse of `columns`: give devices ``[used]`` their values, some at a time, and their slots."""
        count = columns[COUNT].tolist() if COUNT in columns else []
        ends = [0, *torch.tensor(count).cumsum(0).tolist()]
        names = [name for name in columns if name != COUNT]
        for first in range(0, len(clients), BLOCK):
            last = min(first + BLOCK, len(clients))
            values: Params = {}
            for name in names:
                if name.startswith(KEPT):
                    rows = rows_of(columns, name, ends[first], ends[last])
                    values[name] = beside(name, rows.split(count[first:last]))
                else:
                    values[name] = rows_of(columns, name, first, last)
            self._give(clients[first:last], values)


def in_order(slot: Tensor) -> Tensor:
    """``[used]`` the devices that have a slot in ``slot [clients]``, in the order of the slots."""
    client = (slot >= 0).nonzero().squeeze(1)
    ordered = torch.empty_like(client)
    ordered[slot[client]] = client
    return ordered


def mixed(n: int, parts: Sequence[tuple[Tensor, Params]]) -> Params:
    """``[n, …]`` values of several groups of devices, given the places ``[c]`` of each; rows are padded.

    >>> one, two = torch.tensor([[4, 7]]), torch.tensor([[5]])
    >>> mixed(2, [(torch.tensor([1]), {ROW: one}), (torch.tensor([0]), {ROW: two})])
    {'kept/row': tensor([[ 5, -1],
            [ 4,  7]])}
    """
    found: Params = {}
    for name in parts[0][1]:
        some = [values[name] for _, values in parts]
        wide = some[0].shape[1:]
        if name.startswith(KEPT):
            wide = torch.Size((max(value.shape[1] for value in some), *wide[1:]))
        found[name] = some[0].new_full((n, *wide), -1 if name == ROW else 0)
        for (place, _), value in zip(parts, some, strict=True):
            if name.startswith(KEPT):
                found[name][place, : value.shape[1]] = value
            else:
                found[name][place] = value
    return found
