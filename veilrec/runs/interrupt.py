"""A clean stop on SIGINT and SIGTERM: the round at hand is finished if that is soon done, and left if not."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from veilrec.errors import Interrupted
from veilrec.wire.uploads import Exchange

__all__ = ["ECHO", "GRACE", "Stop", "stoppable"]

GRACE = 2.5  # seconds that a round has to finish after the first signal
ECHO = 1.0  # seconds in which a signal comes twice where several processes share a run
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stop:
    """A request to stop, if somebody made one; as a watch, it leaves a round whose grace is over.

    Attributes:
        asked: After the first signal. The second one, or the end of the grace, raises `KeyboardInterrupt`,
            which cannot be mistaken for the failure of a device. Within the seconds of an `echo`, a signal
            is the first one again: ``torchrun`` passes on what its processes have got as well.
    """

    reads = ()  # of an upload

    def __init__(self, grace: float, echo: float = 0.0) -> None:
        self.asked = False
        self._echo, self._since = echo, 0.0
        self._over = self._closed = False
        self._timer = threading.Timer(grace, self._expire)
        self._timer.daemon = True

    def __call__(self, exchange: Exchange | None = None) -> None:
        """Between two chunks, or two steps of a server."""
        if self._over:
            raise KeyboardInterrupt

    def relax(self) -> None:
        """The round is finished, and there is time for a checkpoint; another signal still ends it at once."""
        self._timer.cancel()

    def close(self) -> None:
        """From now on signals do nothing; one that is under way is waited for."""
        self._closed = True
        self._timer.cancel()
        if self._timer.is_alive():
            self._timer.join(timeout=1)

    def handle(self, number: int, frame: FrameType | None) -> None:
        """A signal has come."""
        if self._closed:
            return
        if self.asked:
            if time.monotonic() - self._since < self._echo:
                return
            self._over = True
            raise KeyboardInterrupt
        self.asked, self._since = True, time.monotonic()
        self._timer.start()

    def _expire(self) -> None:
        """In the timer's thread: wake the main thread from whatever it waits for."""
        if self._closed:
            return
        self._over = True
        if hasattr(signal, "pthread_kill"):
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        else:
            os.kill(os.getpid(), signal.SIGINT)


@contextmanager
def stoppable(grace: float = GRACE, echo: float = 0.0) -> Iterator[Stop]:
    """While this lasts, signals ask for a clean stop; in another than the main thread nothing changes.

    Raises:
        Interrupted: Where a signal ended the work within.
    """
    stop = Stop(grace, echo)
    main = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, stop.handle) for number in SIGNALS} if main else {}
    try:
        yield stop
    except KeyboardInterrupt as cause:
        raise Interrupted("interrupted; continue with --resume") from cause
    finally:
        stop.close()
        for number, handler in before.items():
            if handler is not None:  # None: set by something that is not Python
                signal.signal(number, handler)
