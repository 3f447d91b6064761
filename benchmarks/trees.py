"""Trees: folders with a veilrec each, which is run in processes of its own, whatever its layout."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Timer
from typing import NamedTuple

DEADLINE = 600.0  # seconds for one process
CACHES = (
    Path(tempfile.gettempdir()) / f"veilrec-trees-{os.getuid()}"
)  # of compiled code: trees stay untouched
CLI = ("-m", "veilrec")
WHERE = "import veilrec, sys; sys.stderr.write(veilrec.__file__)"

Meanwhile = Callable[[subprocess.Popen[bytes]], None]


class Ended(NamedTuple):
    """A process that has ended."""

    code: int
    errors: str  # what it wrote to stderr
    seconds: float  # of the CPU: user and system, of all its threads
    peak_mb: float  # the most memory it ever had at once

    @property
    def reason(self) -> str:
        """Why it failed, in a line."""
        return f"exit code {self.code}: {(self.errors.strip().splitlines() or ['no message'])[-1]}"


def start(
    tree: Path, arguments: Sequence[str], meanwhile: Meanwhile | None = None, deadline: float = DEADLINE
) -> Ended:
    """Run Python on a tree to its end; `meanwhile` may signal the process.

    What this reports as memory is at least what the caller has, since a child begins as a copy of it: so
    whoever measures must not import torch.
    """
    command = [sys.executable, *arguments]
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command, cwd=tree, env=_environment(tree), stdout=subprocess.DEVNULL, stderr=errors
        )
        timer = Timer(deadline, process.kill)
        timer.start()
        try:
            if meanwhile is not None:
                meanwhile(process)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        finally:
            timer.cancel()
            if process.returncode is None:  # this program was interrupted
                process.kill()
                process.wait()
        errors.seek(0)
        told = errors.read().decode(errors="replace")
    return Ended(process.returncode, told, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def check(tree: Path) -> Path:
    """The tree as a whole path, if Python takes veilrec from there.

    Raises:
        SystemExit: Where it takes it from elsewhere, or not at all.
    """
    tree = tree.resolve()
    found = start(tree, ["-c", WHERE])
    if found.code or not Path(found.errors).is_relative_to(tree):
        raise SystemExit(f"{tree}: no veilrec there ({found.reason if found.code else found.errors})")
    return tree


def spent() -> float:
    """CPU seconds of all processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def interrupt(journal: Path, rounds: int) -> Meanwhile:
    """Something that sends SIGINT as soon as a journal has so many lines."""

    def meanwhile(process: subprocess.Popen[bytes]) -> None:
        while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            if journal.exists() and journal.read_bytes().count(b"\n") >= rounds:
                process.send_signal(signal.SIGINT)
                return
            time.sleep(0.01)

    return meanwhile


def _environment(tree: Path) -> dict[str, str]:
    """Ours, but for where code is taken from and where compiled code is kept: one thread a sum."""
    mine = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VEILREC_"))}
    kept = CACHES / str(tree).strip("/").replace("/", "-")
    return mine | {
        "PYTHONPATH": str(tree),
        "PYTHONPYCACHEPREFIX": str(kept),
        "NUMBA_CACHE_DIR": str(kept / "numba"),
        "OMP_NUM_THREADS": "1",
    }
