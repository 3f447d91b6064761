"""Inbox: messages of another process that have come and wait to be read."""

from __future__ import annotations

import queue
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

import torch
import torch.distributed as dist

from veilrec.base.files import writing
from veilrec.errors import Elsewhere, Lost, VeilrecError

__all__ = ["FAILED", "GOODBYE", "LEADER", "Inbox", "Waiting", "told"]

LEADER = 0
GOODBYE, FAILED = -1, -2  # in the place of a message's length; after the second comes what has failed
HELD = 1 << 25  # bytes of messages that wait in memory


class Inbox:
    """A thread that receives one other process's messages, so that the main thread stays free for signals."""

    def __init__(self, source: int, rank: int) -> None:
        self.source, self.rank = source, rank
        self.messages = Waiting()
        self.failure: VeilrecError | None = None
        self.thread = threading.Thread(target=self._run, name=f"inbox {source}", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            with told(self.source):
                while (size := self._number()) != GOODBYE:
                    if size == FAILED:
                        code, _, message = self._bytes(self._number()).decode().partition(" ")
                        raise Elsewhere(message, int(code), quiet=self.rank != LEADER)
                    self.messages.put(self._bytes(size))
        except VeilrecError as failure:
            self.failure = failure
            self.messages.put(failure)

    def _number(self) -> int:
        number = torch.zeros(1, dtype=torch.int64)
        dist.recv(number, self.source)
        return int(number)

    def _bytes(self, size: int) -> bytes:
        body = torch.empty(size, dtype=torch.uint8)
        if size:
            dist.recv(body, self.source)
        return body.numpy().tobytes()


class Spilled(NamedTuple):
    """A message in the file."""

    begin: int
    size: int


class Waiting:
    """Messages that wait, in their order: so many bytes in memory, and those after them in a file.

    Whoever sends need not wait for whoever reads, and the reader need not have room for all that has come.
    The file has no name, so that nothing is left of it, however the process ends.

    Attributes:
        in_memory, in_file: How many bytes wait there.
    """

    def __init__(self, most: int = HELD) -> None:
        self._most, self._end = most, 0
        self.in_memory, self.in_file = 0, 0
        self._order: queue.Queue[bytes | Spilled | VeilrecError] = queue.Queue()
        self._lock = threading.Lock()
        self._file: IO[bytes] | None = None

    def put(self, message: bytes | VeilrecError) -> None:
        """Add a message."""
        if isinstance(message, VeilrecError):
            self._order.put(message)
            return
        with self._lock:
            kept = self._spill(message) if self.in_memory + len(message) > self._most else message
            if kept is message:
                self.in_memory += len(message)
            self._order.put(kept)

    def get(self, timeout: float) -> bytes | VeilrecError:
        """Take the first message.

        Raises:
            queue.Empty: Where none has come for so many seconds.
        """
        found = self._order.get(timeout=timeout)
        if isinstance(found, VeilrecError):
            return found
        with self._lock:
            if isinstance(found, Spilled):
                return self._read(found)
            self.in_memory -= len(found)
            return found

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()

    def _spill(self, message: bytes) -> Spilled:
        with writing(Path(tempfile.gettempdir())):
            self._file = self._file or tempfile.TemporaryFile()  # noqa: SIM115  # see `close`
            self._file.seek(self._end)
            self._file.write(message)
            self._file.flush()
        place = Spilled(self._end, len(message))
        self._end += place.size
        self.in_file += place.size
        return place

    def _read(self, place: Spilled) -> bytes:
        assert self._file is not None
        self._file.seek(place.begin)
        message = self._file.read(place.size)
        self.in_file -= place.size
        if not self.in_file:  # all is read: the disk has its room back
            self._file.truncate(0)
            self._end = 0
        return message


@contextmanager
def told(other: int) -> Iterator[None]:
    """Turn the end of a connection into an error that names the other process."""
    try:
        yield
    except RuntimeError as cause:
        raise Lost(f"rank {other} is gone: the connection to it has ended") from cause
