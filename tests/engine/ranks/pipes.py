"""Several ranks in one process: a thread for each but the leader, and queues in the place of connections."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from veilrec.clients import Clients
from veilrec.engine.fleet import Fleet
from veilrec.engine.in_process import InProcess
from veilrec.engine.ranks.follower import follow
from veilrec.engine.ranks.leader import Ranks
from veilrec.engine.ranks.links import LEADER, Link
from veilrec.engine.ranks.shares import receive
from veilrec.errors import Elsewhere
from veilrec.experiment import Experiment
from veilrec.result import Result
from veilrec.rounds import Federation

SECONDS = 60.0  # for any one message
Queues = dict[tuple[int, int], queue.Queue[bytes | Exception]]


class Pipe(Link):
    """A link whose messages go through queues of this process."""

    def __init__(self, rank: int, size: int, queues: Queues) -> None:
        self.rank, self.size, self.attempt = rank, size, 0
        self.queues, self.bytes = queues, 0

    def send(self, data: bytes, to: int = LEADER) -> None:
        self.bytes += len(data)
        self.queues[self.rank, to].put(data)

    def receive(self, source: int = LEADER) -> bytes:
        found = self.queues[source, self.rank].get(timeout=SECONDS)
        if isinstance(found, BaseException):
            raise found
        return found

    def check(self) -> None:
        pass

    def allow(self, seconds: float) -> None:
        pass

    def begin(self) -> None:
        pass


@contextmanager
def ranked(make: Callable[[], Federation], size: int) -> Iterator[Federation]:
    """A federation on several ranks, of which one reads the data; all end with the block."""
    queues: Queues = {(a, b): queue.Queue() for a in range(size) for b in range(size)}

    def run(rank: int) -> None:
        link, own = Pipe(rank, size, queues), make().fleet
        try:
            follow(link, part(own, receive(link)))
        except Exception as error:
            queues[rank, LEADER].put(error)  # as `Link.fail` tells it

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(1, size)]
    for thread in threads:
        thread.start()
    federation = make()
    assert isinstance(federation.fleet, InProcess)
    fleet = Ranks.lead(federation.fleet, Pipe(LEADER, size, queues))
    try:
        yield replace(federation, fleet=fleet)
    finally:
        fleet.end({})
        for thread in threads:
            thread.join(timeout=SECONDS)
    assert not any(thread.is_alive() for thread in threads)


def part(own: Fleet, clients: Clients) -> InProcess:
    """The fleet of a rank, from the recipe that all ranks read and the clients that the leader sends."""
    assert isinstance(own, InProcess)
    return replace(own, clients=clients, given=clients)


def run(make: Callable[[int], Experiment], size: int, out: Path, **options: Any) -> list[Result]:
    """An experiment on several ranks, each of which makes its own; what each of them has found at the end."""
    queues: Queues = {(a, b): queue.Queue() for a in range(size) for b in range(size)}
    found: list[Result | None] = [None] * size

    def follow(rank: int) -> None:
        try:
            found[rank] = make(rank).run(out, link=Pipe(rank, size, queues), **options)
        except Exception as error:
            queues[rank, LEADER].put(error)

    threads = [threading.Thread(target=follow, args=(rank,), daemon=True) for rank in range(1, size)]
    for thread in threads:
        thread.start()
    try:
        found[LEADER] = make(LEADER).run(out, link=Pipe(LEADER, size, queues), **options)
    except BaseException as error:
        for rank in range(1, size):
            queues[LEADER, rank].put(Elsewhere(str(error), 1, quiet=True))
        raise
    finally:
        for thread in threads:
            thread.join(timeout=SECONDS)
    return [one for one in found if one is not None]
