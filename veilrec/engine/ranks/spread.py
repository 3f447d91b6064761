"""The store of a run whose devices live on several ranks."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from veilrec.base.params import KEPT, ROW, Params
from veilrec.engine.ranks.links import LEADER
from veilrec.engine.ranks.messages import packed, tensors
from veilrec.engine.store import Store
from veilrec.wire import codec

if TYPE_CHECKING:
    from veilrec.engine.ranks.leader import Ranks

__all__ = ["BLOCK", "Spread"]

BLOCK = 256  # devices whose state crosses at a time


class Spread(Store):
    """What devices keep, where it lies on several ranks: got, put back, and gathered for a checkpoint."""

    def __init__(self, fleet: Ranks) -> None:
        super().__init__(len(fleet.clients), fleet.fresh, fleet.keys.value.device)
        self.fleet = fleet

    def get(self, cohort: Tensor, names: Collection[str] | None = None) -> Params:
        """What the given devices hold, wherever they are at home."""
        found: dict[int, Params] = {}
        for rank, place in self._dealt(cohort):
            if rank == LEADER:
                found[rank] = self.fleet.near.devices.get(self._local(rank, cohort[place]), names)
                continue
            head = {"do": "get", "names": None if names is None else list(names)}
            self._send(rank, head, cohort[place])
            found[rank] = tensors(self.fleet.receive(rank)[1][0])
        return _joined([(place, found[rank]) for rank, place in self._dealt(cohort)], len(cohort))

    def put(self, cohort: Tensor, values: Params) -> None:
        """Replace what the given devices hold, wherever they are at home."""
        for rank, place in self._dealt(cohort):
            some = {name: value[place] for name, value in values.items()}
            if rank == LEADER:
                self.fleet.near.devices.put(self._local(rank, cohort[place]), some)
            else:
                self._send(rank, {"do": "put"}, cohort[place], codec.encode({**some}))

    def clients(self) -> Tensor:
        """The devices of all ranks that ever took part."""
        return self.copy().clients()

    def columns(self) -> Any:
        """What those hold, for a file."""
        return self.copy().columns()

    def state(self) -> Params:
        """All contents of all ranks, as one process would have them."""
        return self.copy().state()

    def copy(self) -> Store:
        """All contents of all ranks in the leader's memory, device by device."""
        whole = Store(len(self.slot), self.fresh, self.slot.device)
        for rank in range(self.fleet.link.size):
            for places, values in self._held(rank):
                whole.put(places, values)
        return whole

    def snapshot(self, folder: Path) -> None:
        """Nothing: `state` holds everything."""

    def restore(self, state: Params, folder: Path | None = None) -> None:
        """The reverse of `state`, with any number of ranks."""
        whole = Store(len(self.slot), self.fresh, self.slot.device)
        whole.restore(state, folder)
        self.fleet.begin()
        for some in whole.clients().split(BLOCK):
            self.put(some, whole.get(some))

    def _dealt(self, cohort: Tensor) -> list[tuple[int, Tensor]]:
        """The ranks that some devices are at home on, and the places of theirs in the cohort."""
        home = self.fleet.home[cohort.cpu()]
        return [(rank, (home == rank).nonzero().squeeze(1)) for rank in home.unique().tolist()]

    def _local(self, rank: int, cohort: Tensor) -> Tensor:
        """The places of some devices on their rank."""
        own = (self.fleet.home == rank).nonzero().squeeze(1)
        return torch.searchsorted(own, cohort.cpu()).to(cohort.device)

    def _send(self, rank: int, head: Mapping[str, Any], cohort: Tensor, *parts: bytes) -> None:
        local = codec.encode({"cohort": self._local(rank, cohort)})
        self.fleet.link.send(packed(head, local, *parts), rank)

    def _held(self, rank: int) -> Iterator[tuple[Tensor, Params]]:
        """What the devices of a rank keep that ever took part, some at a time."""
        own = (self.fleet.home == rank).nonzero().squeeze(1)
        if rank == LEADER:
            near = self.fleet.near.devices
            for some in near.clients().split(BLOCK):
                yield own[some.cpu()].to(some.device), near.get(some)
            return
        self.fleet.link.send(packed({"do": "held"}), rank)
        while parts := self.fleet.receive(rank)[1]:
            some = tensors(parts[0])["cohort"]
            yield own[some].to(self.slot.device), tensors(parts[1])


def _joined(parts: Sequence[tuple[Tensor, Params]], n: int) -> Params:
    """Values of some devices at their places, ``[n, …]``; of what is kept by row, the longest decides."""
    found: Params = {}
    for name in parts[0][1] if parts else ():
        each = [(place, values[name]) for place, values in parts]
        shape, blank = list(each[0][1].shape[1:]), -1 if name == ROW else 0
        if name.startswith(KEPT):
            shape[0] = max(value.shape[1] for _, value in each)
        found[name] = each[0][1].new_full((n, *shape), blank)
        for place, value in each:
            if name.startswith(KEPT):
                found[name][place, : value.shape[1]] = value
            else:
                found[name][place] = value
    return found
