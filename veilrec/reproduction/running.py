"""Running: cells one after another in this process, or several at once in processes of their own.

A cell that fails takes no other down: what it said is kept and shown at the end.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple

from veilrec.base.files import writing
from veilrec.errors import Interrupted, VeilrecError
from veilrec.reproduction.cells import PaperCell
from veilrec.runs.interrupt import stoppable

__all__ = ["Failure", "lighten", "run_apart", "run_here"]

POLL = 0.2  # seconds between two looks at the processes
SILENT = 30.0  # seconds after which it is told how far they are
LONGEST = 12 * 3600.0  # seconds that one cell may take
GRACE = 60.0  # seconds that stopped processes have for a last checkpoint
TAIL = 12  # lines that are told of a process that failed

KEPT = {"result.json", "recipe.toml", "metrics.jsonl", "timing.jsonl"}  # of a run that is made light

Tell = Callable[[str], None]
After = Callable[[PaperCell], None]


class Failure(NamedTuple):
    """A cell that did not finish: its name, an exit code, and what it said last."""

    cell: str
    code: int
    said: str


def lighten(cell: PaperCell) -> None:
    """Leave of a finished run its result and how it came about: weights and transcripts may be gigabytes.

    It counts as finished all the same, but nobody can attack it again.
    """
    if not cell.finished:
        return
    with writing(cell.folder):
        for path in [path for path in cell.folder.iterdir() if path.name not in KEPT]:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def run_here(
    cells: Sequence[PaperCell], run: Callable[[PaperCell], object], after: After | None = None
) -> list[Failure]:
    """Run cells one after another, and call `after` with each that has ended well; an interruption ends it.

    Raises:
        Interrupted: After SIGINT or SIGTERM.
    """
    failures = []
    for cell in cells:
        try:
            run(cell)
            if after is not None:
                after(cell)
        except Interrupted:
            raise
        except VeilrecError as error:
            failures.append(Failure(cell.name, error.code, str(error)))
        except Exception:  # a bug in one method: told at the end, and no reason to lose the others
            failures.append(Failure(cell.name, 1, _tail(traceback.format_exc())))
    return failures


@dataclass(frozen=True)
class _Running:
    """A cell at work in a process of its own."""

    cell: PaperCell
    process: subprocess.Popen[bytes]
    log: Path
    sink: IO[bytes]
    began: float


def run_apart(
    cells: Sequence[PaperCell],
    jobs: int,
    command: Callable[[PaperCell], list[str]],
    tell: Tell,
    longest: float = LONGEST,
    after: After | None = None,
) -> list[Failure]:
    """Run cells in processes, at most `jobs` at once; stopped, all get time for a last checkpoint.

    `after` is called with each cell that has ended.

    Raises:
        Interrupted: After SIGINT or SIGTERM.
    """
    waiting, running, failures = list(cells), list[_Running](), list[Failure]()
    heard = time.monotonic()
    with stoppable(2 * GRACE) as stop:
        try:
            while waiting or running:
                if stop.asked:
                    raise Interrupted("interrupted; the same command goes on where it was")
                while waiting and len(running) < jobs:
                    running.append(_start(waiting.pop(0), command, jobs))
                time.sleep(POLL)
                for one in [one for one in running if _over(one, longest)]:
                    running.remove(one)
                    failures += _finish(one)
                    if after is not None:
                        after(one.cell)
                    left = len(waiting) + len(running)
                    tell(f"{one.cell.name}: {_ended(one)}; {left} to go")
                if time.monotonic() - heard > SILENT:
                    heard = time.monotonic()
                    for one in running:
                        tell(f"{one.cell.name}: {_last(one.log) or 'at work'}")
        finally:
            _end(running)
    return failures


def _start(cell: PaperCell, command: Callable[[PaperCell], list[str]], jobs: int) -> _Running:
    log = cell.folder.with_name(f"{cell.folder.name}.log")
    with writing(log):
        log.parent.mkdir(parents=True, exist_ok=True)
        sink = log.open("wb")
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "veilrec", *command(cell)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=sink,
            env=_environment(jobs),
        )
    except BaseException:
        sink.close()
        raise
    return _Running(cell, process, log, sink, time.monotonic())


def _environment(jobs: int) -> dict[str, str]:
    """This package is found from wherever the command runs, and processes share the cores."""
    home, threads = str(Path(__file__).resolve().parents[2]), max(1, (os.cpu_count() or 1) // jobs)
    path = os.pathsep.join(filter(None, (home, os.environ.get("PYTHONPATH", ""))))
    return {"OMP_NUM_THREADS": str(threads), **os.environ, "PYTHONPATH": path}


def _over(one: _Running, longest: float) -> bool:
    if one.process.poll() is None and time.monotonic() - one.began > longest:
        one.process.kill()
        with suppress(subprocess.TimeoutExpired):
            one.process.wait(timeout=GRACE)
    return one.process.poll() is not None


def _ended(one: _Running) -> str:
    took = f"{(time.monotonic() - one.began) / 60:.1f} min"
    return f"finished in {took}" if one.cell.finished else f"failed after {took}"


def _last(log: Path) -> str:
    """The last line that a process has written about its progress."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 1000))
        lines = file.read().decode("utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else ""


def _finish(one: _Running) -> list[Failure]:
    """Nothing of a cell that is finished; of one that is not, its code and its last words."""
    one.sink.close()
    if one.process.returncode == 0 and one.cell.finished:
        one.log.unlink(missing_ok=True)
        return []
    said = _tail(one.log.read_text(encoding="utf-8", errors="replace"))
    code = one.process.returncode
    return [Failure(one.cell.name, code if code > 0 else 1, said or f"ended with code {code}")]


def _end(running: Sequence[_Running]) -> None:
    """Ask what still runs to stop; what does not is ended."""
    for one in running:
        if one.process.poll() is None:
            one.process.terminate()
    until = time.monotonic() + GRACE
    for one in running:
        try:
            one.process.wait(timeout=max(0.1, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            one.process.kill()
            with suppress(subprocess.TimeoutExpired):
                one.process.wait(timeout=GRACE)
        one.sink.close()


def _tail(text: str) -> str:
    return "\n".join(text.strip().splitlines()[-TAIL:])
