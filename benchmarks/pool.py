"""Worker processes that each keep one object and answer calls to its methods."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Self

import torch
from torch import multiprocessing

from benchmarks.measurement import peak_mb

DEADLINE = 600  # seconds to wait for any one answer


class Pool:
    """One process per object, which is made there; tensors in shared memory stay shared with this process.

    Args:
        make: Called in each worker to make its object.
        arguments: What to call it with, one tuple for each worker.
    """

    def __init__(self, make: Callable[..., object], arguments: Sequence[tuple[Any, ...]]) -> None:
        # a new interpreter, not a fork: a fork of a process that has used threads may hang
        context = multiprocessing.get_context("spawn")
        self.connections: list[Connection] = []
        self.processes = []
        for some in arguments:
            here, there = context.Pipe()
            process = context.Process(target=_serve, args=(there, make, some), daemon=True)
            process.start()
            there.close()
            self.connections.append(here)
            self.processes.append(process)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connection, process in zip(self.connections, self.processes, strict=True):
            connection.close()  # the worker reads the end of its pipe, and ends
            process.join(10)
            if process.is_alive():
                process.kill()

    def call(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Call a method of every object at the same time, each with its own arguments."""
        for connection, some in zip(self.connections, arguments, strict=True):
            connection.send((method, some))
        return [self._answer(connection, method) for connection in self.connections]

    def peaks_mb(self) -> list[float]:
        """The peak resident memory of each worker."""
        return self.call("", [()] * len(self.processes))

    def _answer(self, connection: Connection, method: str) -> Any:
        if not connection.poll(DEADLINE):
            raise TimeoutError(f"a worker gave no answer to {method!r} in {DEADLINE} s")
        good, value = connection.recv()
        if not good:
            raise RuntimeError(f"a worker failed in {method!r}: {value}")
        return value


def _serve(connection: Connection, make: Callable[..., object], arguments: tuple[Any, ...]) -> None:
    """The life of a worker: answer calls until the other end closes."""
    torch.set_num_threads(1)
    target = make(*arguments)
    while True:
        try:
            method, some = connection.recv()
        except (EOFError, ConnectionResetError):  # the end of the pipe: nobody is left to ask
            return
        try:
            value = getattr(target, method)(*some) if method else peak_mb()
            connection.send((True, value))
        except Exception as error:
            connection.send((False, repr(error)))
