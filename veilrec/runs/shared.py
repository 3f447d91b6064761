"""A run that several processes share: the leader trains and writes, the others run devices for it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from veilrec.base.plan import Plan
from veilrec.engine.ranks.follower import follow
from veilrec.engine.ranks.leader import Ranks
from veilrec.engine.ranks.links import Link
from veilrec.errors import BadInput
from veilrec.result import RESULT, Result
from veilrec.rounds import Federation

__all__ = ["shared"]


def shared(link: Link, federation: Federation, run: Callable[[Federation], Result]) -> Result:
    """What a run finds, on every rank: the leader runs it, and tells the others."""
    link.allow(federation.plan.timeout)
    whole = federation.fleet.gather()
    if whole.keys.value.device.type != "cpu":
        raise BadInput(
            "--device", "several processes run on CPUs so far", "leave it out, or start one process"
        )
    whole.plan = _sized(federation.plan)
    if not link.leads:
        return Result.of(follow(link, whole)["result"], Path(RESULT))
    fleet = Ranks.lead(whole, link)
    result = run(replace(federation, fleet=fleet))
    fleet.end({"result": result.values()})
    return result


def _sized(plan: Plan) -> Plan:
    """A plan with no more threads than a process has cores, where several share a machine."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    beside = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return replace(plan, workers=max(1, min(plan.workers, cores // beside)))
