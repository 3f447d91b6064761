"""One process of a contestant: run to its end, with a reading of what else the machine did meanwhile."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

ATTEMPTS = 10  # at a calm moment
PAUSE = 5.0  # seconds between them


class Finished(NamedTuple):
    """A process that has ended well."""

    report: dict[str, Any]  # the last line it printed
    others: float  # cores that other programs kept busy meanwhile


def calmest(command: Sequence[str], deadline: float, calm: float) -> Finished:
    """The first run with at most `calm` cores busy with something else, or the calmest of all attempts."""
    best = _finish(command, deadline)
    for _ in range(ATTEMPTS - 1):
        if best.others <= calm:
            break
        time.sleep(PAUSE)
        best = min(best, _finish(command, deadline), key=lambda finished: finished.others)
    return best


def _finish(command: Sequence[str], deadline: float) -> Finished:
    start, before = time.perf_counter(), _seconds_of_others()
    report = _report(command, deadline)
    spent = _seconds_of_others() - before
    return Finished(report, max(0.0, spent / (time.perf_counter() - start)))


def _report(command: Sequence[str], deadline: float) -> dict[str, Any]:
    """The last line a process prints, as JSON; one that overruns ends here, with its whole session."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        output, errors = process.communicate(timeout=deadline)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"no result in {deadline:.0f} s") from None
    finally:
        if process.poll() is None:  # too slow, or this program was interrupted
            os.killpg(process.pid, signal.SIGKILL)  # the session made for it above, nothing else
            process.communicate()
    lines = output.strip().splitlines()
    if process.returncode or not lines:
        tail = (errors.strip().splitlines() or ["no message"])[-1]
        raise RuntimeError(f"exit code {process.returncode}: {tail}")
    report: dict[str, Any] = json.loads(lines[-1])
    return report


def _seconds_of_others() -> float:
    """CPU seconds used or taken from this machine, less those of finished children; 0 where unknown."""
    stat = Path("/proc/stat")
    if not stat.exists():
        return 0.0
    user, nice, system, _, _, _, _, stolen = (int(ticks) for ticks in stat.read_text().split(maxsplit=9)[1:9])
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    busy = (user + nice + system + stolen) / os.sysconf("SC_CLK_TCK")
    return busy - children.ru_utime - children.ru_stime
