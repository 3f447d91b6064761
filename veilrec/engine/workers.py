"""Workers: threads that take chunks of work side by side and hand the results back in order."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from copy import deepcopy
from typing import TypeVar

import torch

from veilrec.base.limits.heap import keep_freed
from veilrec.model import Recommender

__all__ = ["Workers", "workers"]

T = TypeVar("T")
R = TypeVar("R")


class Workers:
    """A pool of threads with one intra-op thread each; with one worker, the caller does the work."""

    def __init__(self, pool: ThreadPoolExecutor | None, n: int) -> None:
        self.pool, self.n = pool, n
        self.local = threading.local()

    def map(self, function: Callable[[T], R], tasks: Iterable[T]) -> Iterator[R]:
        """Results in the order of the tasks, of which only a few are taken and held at a time."""
        if self.pool is None:
            yield from map(function, tasks)
            return
        running: deque[Future[R]] = deque()
        try:
            for task in tasks:
                running.append(self.pool.submit(function, task))
                if len(running) > self.n:
                    yield running.popleft().result()
            while running:
                yield running.popleft().result()
        finally:
            for future in running:
                future.cancel()

    def own(self, model: Recommender) -> Recommender:
        """This thread's copy of a module: `bind` swaps weights in place and is not for two threads."""
        if self.pool is None:
            return model
        copies = self.local.__dict__.setdefault("models", {})
        if id(model) not in copies:
            copies[id(model)] = (deepcopy(model), model)  # the original is kept so that its id stays taken
        return copies[id(model)][0]  # type: ignore[no-any-return]


@contextmanager
def workers(n: int) -> Iterator[Workers]:
    """`n` workers for a while; torch's own thread count is 1 meanwhile, so that bits do not depend on it."""
    keep_freed()
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        if n == 1:
            yield Workers(None, 1)
            return
        with ThreadPoolExecutor(n, "veilrec", initializer=torch.set_num_threads, initargs=(1,)) as pool:
            yield Workers(pool, n)
    finally:
        torch.set_num_threads(before)
