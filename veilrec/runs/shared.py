"""A run that several processes share: the leader reads, trains and writes, the others run devices for it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from veilrec.base.limits.heap import trim
from veilrec.base.plan import Plan
from veilrec.clients import Clients
from veilrec.engine.in_process import InProcess
from veilrec.engine.ranks.follower import follow
from veilrec.engine.ranks.leader import Ranks
from veilrec.engine.ranks.links import Link
from veilrec.engine.ranks.shares import receive
from veilrec.protocol import Server
from veilrec.result import RESULT, Result
from veilrec.rounds import Federation

__all__ = ["shared"]


def shared(
    link: Link,
    whole: Callable[[], Federation],
    part: Callable[[Clients], InProcess],
    run: Callable[[Federation], Result],
) -> Result:
    """What a run finds, on every rank.

    Args:
        link: The other ranks.
        whole: Makes the federation of all clients, on the leader.
        part: Makes the fleet of the clients of a rank, on the others.
        run: Runs a federation, on the leader.
    """
    if not link.leads:
        near = part(receive(link))
        trim()
        link.allow(near.plan.timeout)
        near.plan = _sized(near.plan)
        return Result.of(follow(link, near)["result"], Path(RESULT))
    fleet, server = _led(link, whole())
    trim()  # what reading the log has left
    result = run(Federation(fleet, server))
    fleet.end({"result": result.values()})
    return result


def _led(link: Link, federation: Federation) -> tuple[Ranks, Server]:
    """The two sides of a federation whose devices live on all ranks from now on."""
    link.allow(federation.plan.timeout)
    fleet = federation.fleet
    assert isinstance(fleet, InProcess)
    fleet.plan = _sized(federation.plan)
    return Ranks.lead(fleet, link), federation.server


def _sized(plan: Plan) -> Plan:
    """A plan with no more threads than a process has cores, where several share a machine."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    beside = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return replace(plan, workers=max(1, min(plan.workers, cores // beside)))
