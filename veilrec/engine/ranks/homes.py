"""Homes: the rank that each device of a run lives on, and the GPU that each rank works on."""

from __future__ import annotations

import torch
from torch import Tensor

from veilrec.engine import fused
from veilrec.engine.in_process import InProcess
from veilrec.errors import BadInput

__all__ = ["gpu_of", "homes"]


def homes(fleet: InProcess, ranks: int) -> Tensor:
    """``[clients]`` the rank that holds each device, with about as many events on each.

    Where everybody takes part in every round, the chunks of one process are dealt as they are. Elsewhere
    devices are dealt one by one. Those without events are the leader's.

    Raises:
        BadInput: Where there are more ranks than devices to deal.
    """
    able, sizes = fleet.able, fleet.clients.sizes
    if fleet.plan.size(len(able)) == len(able):
        chunks = fleet.chunks(able, fused.summed(fleet.task(), sizes, set()))
        parts = [chunk.tolist() for chunk in chunks]
    else:
        parts = [[client] for client in able.tolist()]
    if len(parts) < ranks:
        what = f"{ranks} processes, and work for {len(parts)}: a chunk of devices is the least that one takes"
        raise BadInput("torchrun", what, f"start {len(parts)}, or set plan.chunk to a smaller number")
    home, load = torch.zeros(len(fleet.clients), dtype=torch.int64), [0] * ranks
    for part in sorted(parts, key=lambda part: -sum(sizes[client] for client in part)):
        rank = load.index(min(load))
        home[part] = rank
        load[rank] += sum(sizes[client] for client in part)
    return home


def gpu_of(device: str, place: int, count: int) -> str:
    """The device that a rank works on, where all were told the same: the ranks of a machine share its GPUs.

    >>> [gpu_of("cuda", place, count=2) for place in range(3)], gpu_of("cuda:1", 0, count=2)
    (['cuda:0', 'cuda:1', 'cuda:0'], 'cuda:1')

    Args:
        device: What was asked for: ``cpu``, ``cuda``, or one GPU by its number.
        place: Which of the ranks of its machine this one is.
        count: How many GPUs the machine has.
    """
    return f"cuda:{place % count}" if device == "cuda" and count else device
