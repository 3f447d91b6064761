"""Homes: the rank that each device of a run lives on."""

from __future__ import annotations

import torch
from torch import Tensor

from veilrec.engine import fused
from veilrec.engine.in_process import InProcess
from veilrec.errors import BadInput

__all__ = ["homes"]


def homes(fleet: InProcess, ranks: int) -> Tensor:
    """``[clients]`` the rank that holds each device, with about as many events on each.

    Where everybody takes part in every round, the chunks of one process are dealt as they are. Elsewhere
    devices are dealt one by one. Those without events are the leader's.

    Raises:
        BadInput: Where there are more ranks than devices to deal.
    """
    able, sizes = fleet.able.cpu(), fleet.clients.sizes
    home, load = torch.zeros(len(fleet.clients), dtype=torch.int64), [0] * ranks
    if fleet.plan.size(len(able)) == len(able):
        parts = list(fleet.chunks(able, fused.summed(fleet.task(), sizes, set())))
    else:
        parts = list(able.split(1))
    if len(parts) < ranks:
        what = f"{ranks} processes for {len(parts)} portions of devices"
        raise BadInput(
            "torchrun", what, f"start {len(parts)} or fewer, or set plan.chunk to a smaller number"
        )
    costs = [sum(sizes[client] for client in part.tolist()) for part in parts]
    for place in sorted(range(len(parts)), key=lambda place: -costs[place]):
        rank = load.index(min(load))
        home[parts[place]] = rank
        load[rank] += costs[place]
    return home
