"""A run that several processes share: the leader trains and writes, the others run devices for it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType

from veilrec.base.plan import Plan
from veilrec.engine.in_process import InProcess
from veilrec.engine.ranks.follower import follow
from veilrec.engine.ranks.leader import Ranks
from veilrec.engine.ranks.links import Link
from veilrec.errors import Elsewhere, Interrupted, Lost
from veilrec.result import RESULT, Result
from veilrec.rounds import Federation
from veilrec.runs.interrupt import SIGNALS

__all__ = ["shared"]


def shared(link: Link, federation: Federation, run: Callable[[Federation], Result]) -> Result:
    """What a run finds, on every rank: the leader runs it, and tells the others."""
    link.allow(federation.plan.timeout)
    whole = federation.fleet.gather()
    whole.plan = _sized(federation.plan)
    if not link.leads:
        return _followed(link, whole)
    fleet = Ranks.lead(whole, link)
    result = run(replace(federation, fleet=fleet))
    fleet.end({"result": result.values()})
    return result


def _sized(plan: Plan) -> Plan:
    """A plan with no more threads than a process has cores, where several share a machine."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    beside = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return replace(plan, workers=max(1, min(plan.workers, cores // beside)))


def _followed(link: Link, fleet: InProcess) -> Result:
    with _deaf() as asked:
        try:
            return Result.of(follow(link, fleet)["result"], Path(RESULT))
        except Lost as lost:
            if asked:  # who was asked to stop need not complain that the leader did
                raise Elsewhere(str(lost), Interrupted.code, quiet=True) from lost
            raise


@contextmanager
def _deaf() -> Iterator[list[int]]:
    """While this lasts, signals are only noted: it is the leader that ends a run."""
    noted: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        noted.append(number)

    main = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, note) for number in SIGNALS} if main else {}
    try:
        yield noted
    finally:
        for number, handler in before.items():
            if handler is not None:
                signal.signal(number, handler)
