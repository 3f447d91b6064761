"""Links: bytes between the processes of one run, and the end of all of them when one is lost.

The processes are started by ``torchrun`` and meet through `torch.distributed`. The first one, the leader,
asks; the others answer, and end when the leader is gone. The end of a connection tells at once of a process
that dies. Of one that lives and does nothing, stopped or on a machine that is cut off, its pulse tells, which
each process leaves in a common table from a thread of its own.
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from types import FrameType

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]

from veilrec.base.process import say
from veilrec.base.scratch import close_all
from veilrec.engine.ranks.inbox import FAILED, GOODBYE, LEADER, Inbox, told
from veilrec.errors import BadInput, Elsewhere, Interrupted, Lost, NoMemory, VeilrecError, code_of, no_memory

__all__ = ["LEADER", "Link", "joined", "leave"]

BEAT = 0.5  # seconds between two pulses
POLL = 0.2  # seconds until a wait looks whether anything else has happened
MEET = 300.0  # seconds for all processes to come together
LONG = timedelta(days=30)  # of one message: it is the pulse that tells a process which hangs


_waiting: list[int] = []  # exit codes of links whose threads still wait: see `leave`


class Link:
    """This process's connections to the others: whole messages of bytes, in order.

    Attributes:
        rank: The number of this process; the leader's is 0.
        size: How many there are.
        attempt: How often all of them were started again after one was lost.
    """

    def __init__(self, rank: int, size: int, attempt: int, pulse: Pulse, common: Store) -> None:
        self.rank, self.size, self.attempt, self._pulse = rank, size, attempt, pulse
        self._common = common
        others = range(1, size) if rank == LEADER else (LEADER,)
        self._inbox = {other: Inbox(other, rank) for other in others}
        self._lock = threading.Lock()

    @property
    def leads(self) -> bool:
        """Whether this process asks, and writes, and prints."""
        return self.rank == LEADER

    def send(self, data: bytes, to: int = LEADER) -> None:
        """Send a message.

        Raises:
            Lost: Where the other process is gone.
        """
        size, body = torch.tensor([len(data)]), _bytes(data)  # before the lock: a signal may come meanwhile
        with self._lock, told(to):
            dist.send(size, to)
            if data:
                dist.send(body, to)

    def receive(self, source: int = LEADER) -> bytes:
        """The next message of another process.

        Raises:
            Elsewhere: Where that one has failed.
            Lost: Where it is gone, or does not answer.
        """
        inbox = self._inbox[source]
        while True:
            self._pulse.check()
            try:
                found = inbox.messages.get(timeout=POLL)  # short, so that signals are heard
            except queue.Empty:
                if inbox.failure is not None:  # another thread of this process was told
                    raise inbox.failure from None
                continue
            if isinstance(found, bytes):
                return found
            raise found

    def check(self) -> None:
        """Raise what has become known of another process since, in the middle of work."""
        self._pulse.check()
        for inbox in self._inbox.values():
            if inbox.failure is not None:
                raise inbox.failure

    def allow(self, seconds: float) -> None:
        """Take a process for lost that leaves no pulse for so long."""
        self._pulse.patience = seconds

    def begin(self) -> None:
        """Note that the run has its folder: another attempt goes on in it."""
        self._common.set("began", "1")

    @property
    def again(self) -> bool:
        """Whether all were started again after the run had begun."""
        return self.attempt > 0 and bool(self._common.check(["began"]))

    def close(self) -> None:
        """Say goodbye to every other process, and wait for theirs."""
        for other, inbox in self._inbox.items():
            with self._lock, told(other):
                dist.send(torch.tensor([GOODBYE]), other)
            inbox.thread.join(timeout=MEET)
            inbox.messages.close()

    def fail(self, message: str, code: int) -> None:
        """Tell every other process what has failed here; one that is gone need not know."""
        body = _bytes(f"{code} {message}".encode())
        for other in self._inbox:
            with suppress(Lost), self._lock, told(other):
                dist.send(torch.tensor([FAILED]), other)
                dist.send(torch.tensor([len(body)]), other)
                dist.send(body, other)


class Pulse:
    """A sign of life of every process in a table that all of them read, from a thread of its own.

    A main thread that hangs in a call which never returns cannot raise, so the process ends from here, with
    one line that names who was lost.
    """

    def __init__(self, store: Store, rank: int, size: int, patience: float) -> None:
        self.store, self.rank, self.size, self.patience = store, rank, size, patience
        self.lost: Lost | None = None
        self._ended = threading.Event()
        self._seen = dict.fromkeys(
            range(size), (b"", time.monotonic())
        )  # each one's last sign, and since when
        self._thread = threading.Thread(target=self._run, name="pulse", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise what the thread has found."""
        if self.lost is not None:
            raise self.lost

    def close(self) -> None:
        """Stop; whoever still waits for a sign is told by its connection."""
        self._ended.set()
        self._thread.join(timeout=2 * BEAT)

    def _run(self) -> None:
        beat = 0
        while not self._ended.wait(BEAT):
            beat += 1
            try:
                self.store.set(f"pulse/{self.rank}", str(beat))
                silent = self._silent()
            except RuntimeError:  # the table is gone, and with it the process or the machine that held it
                silent = LEADER if self.rank != LEADER else None
            if silent is not None and not self._ended.is_set():
                self.lost = Lost(f"rank {silent} gave no sign of life for {self.patience:g} s")
                self._leave()

    def _silent(self) -> int | None:
        """The first process whose sign has not changed for too long."""
        now = time.monotonic()
        for other, (known, since) in self._seen.items():
            key = f"pulse/{other}"
            sign = self.store.get(key) if self.store.check([key]) else b""
            if sign != known:
                self._seen[other] = (sign, now)
            elif other != self.rank and now - since > self.patience:
                return other
        return None

    def _leave(self) -> None:
        """End the process, unless its main thread does so itself within a moment."""
        if not self._ended.wait(4 * POLL):
            os._exit(say(self.lost, Lost.code))


@contextmanager
def joined(patience: float) -> Iterator[Link]:
    """The processes that ``torchrun`` started, for a while.

    Args:
        patience: Seconds without a sign of life after which a process is taken for lost.

    Raises:
        BadInput: Where they do not come together.
        Lost: Where one is gone while this lasts.
    """
    with _hearing(int(os.environ["RANK"]) == LEADER):
        yield from _joined(patience)


def _joined(patience: float) -> Iterator[Link]:
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])

    def give_up() -> None:
        os._exit(say(_alone(rank, host, port), BadInput.code))

    limit = threading.Timer(MEET, give_up)
    limit.daemon = True
    limit.start()
    try:
        client = TCPStore(host, port, is_master=False, timeout=timedelta(seconds=MEET))
        # Of this attempt: addresses of the last one are dead.
        common = PrefixStore(f"veilrec/{attempt}", client)
        dist.init_process_group("gloo", store=common, rank=rank, world_size=size, timeout=LONG)
        beats = TCPStore(host, port, is_master=False, timeout=timedelta(seconds=max(patience, 2 * BEAT)))
    except (RuntimeError, ValueError) as cause:
        raise _alone(rank, host, port) from cause
    finally:
        limit.cancel()
    pulse = Pulse(PrefixStore(f"veilrec/{attempt}", beats), rank, size, patience)
    link = Link(rank, size, attempt, pulse, PrefixStore("veilrec", client))
    try:
        yield link
        link.close()
    except BaseException as error:
        pulse.close()
        ended = _parted(link, error)
        if ended is error:
            raise
        raise ended from error
    finally:
        pulse.close()
        dist.destroy_process_group()


def _alone(rank: int, host: str, port: int) -> BadInput:
    fix = "start all of them with the same address, on ports that are open, and name GLOO_SOCKET_IFNAME"
    return BadInput("torchrun", f"rank {rank} found no others at {host}:{port}", fix)


def _parted(link: Link, error: BaseException) -> BaseException:
    """The error that ends this process, which tells the others of its own."""
    code = code_of(error)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # torchrun ends whoever is left, at once
    _waiting.append(code)
    if isinstance(error, Elsewhere | Lost):
        return error
    told = NoMemory() if no_memory(error) and not isinstance(error, VeilrecError) else error
    known = isinstance(told, VeilrecError | OSError | KeyboardInterrupt)
    what = str(told) if known else f"{type(error).__name__}: {error}"
    link.fail(what or "interrupted", code)
    if link.leads:
        return error
    if not known:
        traceback.print_exception(error)
    return Elsewhere(what, code, quiet=True)


def leave(code: int) -> None:
    """End the process where a link's threads still wait for messages, which would abort the interpreter."""
    if _waiting:
        close_all()
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)


@contextmanager
def _hearing(leads: bool) -> Iterator[None]:
    """While this lasts, signals are the leader's business alone: it tells the others."""
    if leads or threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, _note) for number in numbers}
    try:
        yield
    except Lost as lost:
        if not _noted:
            raise
        raise Elsewhere(
            str(lost), Interrupted.code, quiet=True
        ) from lost  # it was asked to stop, as all were
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


_noted: list[int] = []


def _note(number: int, frame: FrameType | None) -> None:
    _noted.append(number)


def _bytes(data: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)
