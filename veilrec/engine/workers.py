"""Workers: threads that take chunks of work side by side and hand the results back in order."""

from __future__ import annotations

import ctypes
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from copy import deepcopy
from functools import cache
from typing import TypeVar

import torch

from veilrec.model import Recommender

__all__ = ["Workers", "workers"]

TRIM_THRESHOLD, MMAP_THRESHOLD, ARENA_MAX = -1, -3, -8  # as <malloc.h> numbers them
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


@cache
def _keep_freed_blocks() -> None:
    """Ask the C library to keep freed blocks for the next chunk, up to a bound; a tenth of a round goes into
    giving them back and having fresh ones cleared. Nothing happens where there is no `mallopt`.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        for option, size in ((MMAP_THRESHOLD, 32 << 20), (TRIM_THRESHOLD, 24 << 20), (ARENA_MAX, 3)):
            mallopt(option, size)


@contextmanager
def workers(n: int) -> Iterator[Workers]:
    """`n` workers for a while; torch's own thread count is 1 meanwhile, so that bits do not depend on it."""
    _keep_freed_blocks()
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
