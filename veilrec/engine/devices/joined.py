"""Joined: what the devices of several fleets keep, as one; little of it is held at once."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from veilrec.base.params import Params
from veilrec.base.tensors import Blocks
from veilrec.engine.devices.kept import BLOCK, Devices, Kept, mixed
from veilrec.engine.devices.store import Store

__all__ = ["Joined"]


class Joined(Devices):
    """The devices of several fleets, each of which is in one of them.

    Slots are those of the first fleet, then those of the second, and so on. Whatever is asked for is read
    from the fleets, a few devices at a time. Where devices have files, checkpoints need those of all in one
    place: there is a file of each device here as well, which is written anew where a device has changed.

    Args:
        parts: Of each fleet the numbers ``[c]`` of its devices, ascending, and what they keep.
        whole: A store of all devices that holds none: it says what they begin with, and whether in files.
    """

    def __init__(self, parts: Sequence[tuple[Tensor, Kept]], whole: Store) -> None:
        self.parts, self._whole = parts, whole
        self.n_clients, self.device = whole.n_clients, whole.device
        self._home = torch.zeros(self.n_clients, dtype=torch.int64, device=self.device)
        for place, (number, _) in enumerate(parts):
            self._home[number] = place
        self._changed = torch.zeros_like(self._home, dtype=torch.bool)  # since they were copied to `whole`

    @property
    def first(self) -> Params:
        return self._whole.first

    def changed(self, cohort: Tensor) -> None:
        """Note that some devices have learned."""
        self._changed[cohort] = True

    def get(self, cohort: Tensor, names: Collection[str] | None = None) -> Params:
        if not len(cohort):
            return self._whole.get(cohort, names)
        shares = self._shares(cohort)
        return mixed(len(cohort), [(place, part.get(mine, names)) for part, place, mine in shares])

    def put(self, cohort: Tensor, values: Params) -> None:
        for part, place, mine in self._shares(cohort):
            part.put(mine, {name: value[place] for name, value in values.items()})
        self.changed(cohort)

    def _shares(self, cohort: Tensor) -> Iterator[tuple[Kept, Tensor, Tensor]]:
        """Each fleet with devices among some: where these stand in the cohort, and their places there."""
        home = self._home[cohort]
        for k, (number, part) in enumerate(self.parts):
            place = (home == k).nonzero().squeeze(1)
            if len(place):
                yield part, place, torch.searchsorted(number, cohort[place])

    def clear(self) -> None:
        for _, part in self.parts:
            part.clear()
        self._whole.clear()
        self._changed.fill_(False)

    def clients(self) -> Tensor:
        return torch.cat([number[part.clients()] for number, part in self.parts])

    def counts(self) -> Tensor:
        return torch.cat([part.counts() for _, part in self.parts])

    def pieces(self, name: str, size: int) -> Iterator[Tensor]:
        for _, part in self.parts:
            yield from part.pieces(name, size)

    def state(self) -> dict[str, Tensor | Blocks]:
        return super().state() if self._whole.shelf is None else self._copied().state()

    def snapshot(self, folder: Path) -> None:
        if self._whole.shelf is not None:
            self._copied().snapshot(folder)

    def _copied(self) -> Store:
        """All devices' files, those that have changed written anew."""
        clients = self.clients()
        began = torch.zeros_like(self._changed)
        began[clients] = True
        for some in (began & self._changed).nonzero().squeeze(1).split(BLOCK):
            self._whole.put(some, self.get(some))
        self._whole.reorder(clients)
        self._changed.fill_(False)
        return self._whole

    def restore(self, state: Mapping[str, Tensor], folder: Path | None = None) -> None:
        if self._whole.shelf is None:
            super().restore(state, folder)
            return
        self.clear()
        self._whole.restore(state, folder)
        for some in self._whole.clients().split(BLOCK):
            self.put(some, self._whole.get(some))
        self._changed.fill_(False)
