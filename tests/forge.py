"""Processes that are forked from one with everything loaded: each begins at once, and may be killed.

``python -m tests.forge`` imports what `LOADED` names, reads one `Order` per line as JSON, forks for each,
and tells the number of the process, and, when it has ended, how.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from io import TextIOWrapper
from pathlib import Path
from typing import Any

__all__ = ["Ended", "Forge", "Order", "Setting", "forge", "forked", "waited"]

ROOT = Path(__file__).parents[1]
LOADED = (  # what commands would import, each anew
    *("veilrec.cli.finished", "veilrec.cli.work", "veilrec.cli.show.leaks", "veilrec.report"),
    *("veilrec.node.command", "veilrec.node.provisioning"),
    *("veilrec.lab.lab", "veilrec.reproduction.running", "sklearn.linear_model", "sklearn.neighbors"),
    *("scipy.stats", "sklearn.pipeline", "veilrec.attacks.common.classifiers"),
)
LIMIT = 120.0  # seconds that any one process may take
POLL = 0.002
STREAMS = ("stdin", "stdout", "stderr")


@dataclass
class Setting:
    """Where a process works: its folder, its streams as names of files, variables that are set besides."""

    folder: str = ""
    stdin: str = os.devnull
    stdout: str = os.devnull
    stderr: str = os.devnull
    environment: dict[str, str] = field(default_factory=dict)


@dataclass
class Order:
    """What a process shall do: ``call`` a function, ``module:name``, with arguments, in a setting."""

    call: str
    arguments: dict[str, Any] = field(default_factory=dict)
    setting: Setting = field(default_factory=Setting)


@dataclass(frozen=True)
class Ended:
    """How a process has ended.

    Attributes:
        code: The exit code, or the number of the signal below zero.
        seconds: Of CPU time, its children's included where it has waited for them.
        peak: The most memory that it held, in bytes.
    """

    code: int
    seconds: float
    peak: int


class Forge:
    """The tests' end of the line."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._in, self._out, self._rest = process.stdin, process.stdout, b""
        self._ended: dict[int, Ended] = {}

    def start(self, order: Order) -> int:
        """Begin; returns the number of the process, which is that of its group, too."""
        self._in.write(json.dumps(asdict(order)).encode() + b"\n")
        self._in.flush()
        while True:
            told = self._told(LIMIT)
            assert told is not None, "no answer in time"
            if "began" in told:
                return int(told["began"])

    def wait(self, process: int, seconds: float = LIMIT) -> Ended | None:
        """How a process ended; None where it has not yet."""
        until = time.monotonic() + seconds
        while process not in self._ended:
            if self._told(until - time.monotonic()) is None:
                return None
        return self._ended.pop(process)

    def run(self, order: Order) -> Ended:
        """Begin and wait for the end."""
        process = self.start(order)
        ended = self.wait(process)
        if ended is None:
            os.killpg(process, signal.SIGKILL)
            raise AssertionError(f"{order.call} has not ended within {LIMIT:.0f} s")
        return ended

    def _told(self, seconds: float) -> dict[str, Any] | None:
        """The next answer; an end is kept."""
        while b"\n" not in self._rest:
            if not select.select([self._out], [], [], max(0.0, seconds))[0]:
                return None
            got = os.read(self._out.fileno(), 1 << 16)
            assert got, "the forge has ended"
            self._rest += got
        line, self._rest = self._rest.split(b"\n", 1)
        told: dict[str, Any] = json.loads(line)
        if "began" not in told:
            self._ended[told["process"]] = Ended(*(told[name] for name in ("code", "seconds", "peak")))
        return told


@contextmanager
def forge() -> Iterator[Forge]:
    """A process to fork from."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.forge"],
        cwd=ROOT,
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH", "")])]),
        },
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with process:  # closes the pipes, which ends it, and waits
        yield Forge(process)


def forked(work: Callable[[], int | None], setting: Setting) -> int:
    """Fork: the child does its work in a setting and ends with the code that it returns."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        os.setpgid(0, 0)
        _settle(setting)
        code = work() or 0
        _flush()
    except BaseException as error:
        code = error.code if isinstance(error, SystemExit) and isinstance(error.code, int) else 1
        if not isinstance(error, SystemExit):
            traceback.print_exc()
        _flush()
    finally:
        os._exit(code)


def _settle(setting: Setting) -> None:
    """Go where a process shall work, with streams as Python makes them at its start."""
    for number, name in enumerate(STREAMS):
        flags = os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        descriptor = os.open(getattr(setting, name), flags, 0o600)
        os.dup2(descriptor, number)
        os.close(descriptor)
        setattr(sys, name, _stream(number))
    if setting.folder:
        os.chdir(setting.folder)
    os.environ.update(setting.environment)


def _stream(number: int) -> TextIOWrapper:
    """A stream as Python makes it at its start; the standard error is flushed with each line."""
    raw = io.FileIO(number, "r" if number == 0 else "w", closefd=False)
    if number == 0:
        return TextIOWrapper(io.BufferedReader(raw), "utf-8")
    told: dict[str, Any] = {"line_buffering": True, "errors": "backslashreplace"} if number == 2 else {}
    return TextIOWrapper(io.BufferedWriter(raw), "utf-8", **told)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not stream.closed:
            stream.flush()


def waited(process: int, seconds: float) -> Ended | None:
    """The end of a child of this process; None where it takes longer."""
    until = time.monotonic() + seconds
    while True:
        number, status, used = os.wait4(process, os.WNOHANG)
        if number:
            return _ended(status, used)
        if time.monotonic() > until:
            return None
        time.sleep(POLL)


def _ended(status: int, used: resource.struct_rusage) -> Ended:
    code = os.waitstatus_to_exitcode(status)
    return Ended(code, round(used.ru_utime + used.ru_stime, 3), used.ru_maxrss * 1024)


def serve() -> None:
    """Fork for each order, and tell of beginnings and ends as they come."""
    for module in LOADED:
        importlib.import_module(module)
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    rest, running, open_ = b"", 0, True
    while open_ or running:
        ready = select.select([0, woken] if open_ else [woken], [], [])[0]
        if woken in ready:
            os.read(woken, 1 << 10)
            running -= _reap()
        if 0 in ready:
            got = os.read(0, 1 << 16)
            open_, rest = bool(got), rest + got
            *lines, rest = rest.split(b"\n")
            for line in lines:
                _tell(began=forked(_work(json.loads(line)), Setting(**json.loads(line)["setting"])))
                running += 1


def _work(order: Mapping[str, Any]) -> Callable[[], int | None]:
    """The function of an order, as a child calls it."""

    def work() -> int | None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        module, name = order["call"].split(":")
        found: int | None = getattr(importlib.import_module(module), name)(**order["arguments"])
        return found

    return work


def _reap() -> int:
    """Tell of every child that has ended; returns how many."""
    count = 0
    while True:
        try:
            number, status, used = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return count
        if not number:
            return count
        count += 1
        _tell(process=number, **asdict(_ended(status, used)))


def _tell(**told: Any) -> None:
    os.write(1, json.dumps(told).encode() + b"\n")


if __name__ == "__main__":
    serve()
    os._exit(0)  # at once: nothing is left to be closed
