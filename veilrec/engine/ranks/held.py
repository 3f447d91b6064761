"""Held: what the devices of another rank keep, as the leader asks for it and as that rank answers."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import torch
from torch import Tensor

from veilrec.base.params import Params
from veilrec.engine.devices.kept import Kept
from veilrec.engine.devices.store import Store
from veilrec.engine.ranks.links import Link
from veilrec.engine.ranks.messages import moved, packed, tensors, unpacked
from veilrec.wire import codec

__all__ = ["Far", "answer"]


class Far(Kept):
    """What the devices of another rank keep. Each question waits for its answer, so that none pile up.

    Args:
        link: To the other ranks.
        rank: Where the devices are.
        device: Where tensors lie that are got.
    """

    def __init__(self, link: Link, rank: int, device: torch.device) -> None:
        self.link, self.rank, self.device = link, rank, device

    def get(self, cohort: Tensor, names: Collection[str] | None = None) -> Params:
        chosen = None if names is None else list(names)
        return self._asked("get", {"#cohort": cohort}, names=chosen)

    def put(self, cohort: Tensor, values: Params) -> None:
        self._asked("put", {"#cohort": cohort, **values})

    def clear(self) -> None:
        self._asked("clear")

    def clients(self) -> Tensor:
        return self._asked("clients")["found"]

    def counts(self) -> Tensor:
        return self._asked("counts")["found"].cpu()

    def pieces(self, name: str, size: int) -> Iterator[Tensor]:
        used = len(self.clients())
        for first in range(0, used, size):
            yield self._asked("column", name=name, first=first, last=min(first + size, used))["found"]

    def _asked(self, what: str, values: Params | None = None, **rest: Any) -> Params:
        head = {"do": "held", "what": what, **rest}
        self.link.send(packed(head, codec.encode({**(values or {})})), self.rank)
        told, parts = unpacked(self.link.receive(self.rank))
        if told["is"] != "done":
            raise RuntimeError(f"rank {self.rank} was asked for what devices keep in the middle of a probe")
        return moved(tensors(parts[0]), self.device)


def answer(devices: Store, what: str, values: Params, **rest: Any) -> Params:
    """Answer the question of a `Far` for what is kept here."""
    given = moved(values, devices.device)
    if what == "get":
        return devices.get(given["#cohort"], rest["names"])
    if what == "put":
        devices.put(given.pop("#cohort"), given)
        return {}
    if what == "clear":
        devices.clear()
        return {}
    if what == "column":
        return {"found": devices.column(rest["name"], rest["first"], rest["last"])}
    return {"found": devices.clients() if what == "clients" else devices.counts()}
