"""The store: what every device keeps between rounds, and only for devices that ever took part."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from veilrec.params import Params

__all__ = ["Store"]

Fresh = Callable[[Tensor], Params]


class Store:
    """Weights and optimiser state by device. A device that was never sampled costs nothing.

    Attributes:
        slot: ``[clients]`` where a device's rows are, -1 while it has none.
        values: Name → ``[slots, …]``; some slots at the end are spare.
        fresh: What devices start from: ``cohort [c]`` → name → ``[c, …]``, the same whenever it is asked.
    """

    def __init__(self, n_clients: int, fresh: Fresh, device: str | torch.device = "cpu") -> None:
        self.slot = torch.full((n_clients,), -1, device=device)
        self.values: Params = {}
        self.used = 0
        self.fresh = fresh

    def get(self, cohort: Tensor) -> Params:
        """What the given devices hold: ``[c, …]``, copies."""
        slot = self.slot[cohort]
        if self.used and bool((slot >= 0).all()):
            return {name: value[slot] for name, value in self.values.items()}
        start = self.fresh(cohort)
        if not self.used:
            return start
        has = slot >= 0
        for name, value in start.items():
            value[has] = self.values[name][slot[has]]
        return start

    def put(self, cohort: Tensor, values: Params) -> None:
        """Replace what the given devices hold."""
        slot = self.slot[cohort]
        new = slot < 0
        if count := int(new.sum()):
            slot[new] = torch.arange(self.used, self.used + count, device=slot.device)
            self.slot[cohort] = slot
            self.used += count
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

    def copy(self) -> Store:
        """The same contents, independent of what happens next."""
        twin = Store(len(self.slot), self.fresh, self.slot.device)
        twin.slot, twin.used = self.slot.clone(), self.used
        twin.values = {name: value[: self.used].clone() for name, value in self.values.items()}
        return twin

    def state(self) -> Params:
        """All contents as flat tensors, for checkpoints."""
        return {"slot": self.slot, **{f"value/{n}": v[: self.used] for n, v in self.values.items()}}

    def restore(self, state: Params) -> None:
        """The reverse of `state`."""
        device = self.slot.device
        self.slot = state["slot"].to(device)
        self.used = int((self.slot >= 0).sum())
        self.values = {n.split("/", 1)[1]: v.to(device) for n, v in state.items() if n.startswith("value/")}
