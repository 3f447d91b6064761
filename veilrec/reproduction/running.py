"""Running: cells one after another in this process, or several at once in processes of their own.

A cell that fails takes no other down: what it said is kept and shown at the end. One that another process
runs at the moment comes last, and is waited for: then it is there.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import NamedTuple

from veilrec.base.files import reading
from veilrec.base.locks import LOCK, held_by
from veilrec.base.plain import grab, opened, writing
from veilrec.errors import BadInput, Interrupted, InUse, VeilrecError
from veilrec.reproduction.cells import PaperCell
from veilrec.runs.integrity.changes import change
from veilrec.runs.integrity.checked import CHECKED
from veilrec.runs.integrity.manifest import MANIFEST, RESULT, is_finished
from veilrec.runs.interrupt import Stop, stoppable

__all__ = ["Failure", "lighten", "run_apart", "run_here"]

POLL = 0.2  # seconds between two looks at the processes
SILENT = 30.0  # seconds after which it is told how far they are
LONGEST = 12 * 3600.0  # seconds that one cell may take
GRACE = 60.0  # seconds that stopped processes have for a last checkpoint
GOES_ON = "the same command goes on where it was"
AGAIN = re.compile("continue with --resume$")
TAIL = 12  # lines that are told of a process that failed
LONG = 1 << 16  # bytes of its log that they are looked for in

KEPT = {RESULT, MANIFEST, "recipe.toml", "metrics.jsonl", "timing.jsonl", LOCK, CHECKED}  # of a light run

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
    there = [path.name for path in cell.folder.iterdir()] if cell.finished else []
    if more := [name for name in there if name not in KEPT and name.isprintable()]:
        with change(cell.folder) as new:
            for name in more:
                new.drop(name)


def run_here(
    cells: Sequence[PaperCell],
    run: Callable[[PaperCell], object],
    tell: Tell,
    after: After | None = None,
    patience: float = LONGEST,
) -> list[Failure]:
    """Run cells one after another, and call `after` with each that is there; an interruption ends it.

    Raises:
        Interrupted: After SIGINT or SIGTERM.
    """
    failures, left, until = [], list(cells), time.monotonic() + patience
    for cell in _in_turn(left, tell, until):
        try:
            if lacking := _lacking(cell):
                failures.append(lacking)
                continue
            if not cell.finished:
                run(cell)
            if after is not None:
                after(cell)
        except Interrupted as error:  # the run says how it would be resumed by itself
            raise Interrupted(f"{cell.name}: {AGAIN.sub(GOES_ON, str(error))}") from error
        except InUse as error:  # somebody was faster
            if time.monotonic() < until:
                left.append(cell)
            else:
                failures.append(Failure(cell.name, error.code, str(error)))
        except VeilrecError as error:
            failures.append(Failure(cell.name, error.code, str(error)))
        except Exception:  # a bug in one method: told at the end, and no reason to lose the others
            failures.append(Failure(cell.name, 1, traceback.format_exc(limit=-TAIL // 2).strip()))
    return failures


def _in_turn(left: list[PaperCell], tell: Tell, until: float) -> Iterator[PaperCell]:
    """Cells that nobody else runs, as long as there are any; what is put back meanwhile comes again."""
    told = False
    while left:
        ahead = {cell.folder for cell in left}
        free = next((cell for cell in left if cell.source not in ahead and not _holder(cell)), None)
        if free is None and time.monotonic() < until:
            if not told:
                tell(f"{left[0].name}: {_holder(left[0]) or 'another process'} runs it; waiting for that")
            told = True
            time.sleep(POLL)
            continue
        left.remove(cell := free or next(cell for cell in left if cell.source not in ahead))
        yield cell


def _holder(cell: PaperCell) -> str:
    """Who is at a cell, or at what it begins with; nobody where a folder will not do: the run will tell."""
    try:
        return held_by(cell.folder) or (held_by(cell.source) if cell.source is not None else "")
    except VeilrecError:
        return ""


def run_apart(
    cells: Sequence[PaperCell],
    jobs: int,
    command: Callable[[PaperCell], list[str]],
    tell: Tell,
    after: After | None = None,
    patience: float = LONGEST,
) -> list[Failure]:
    """Run cells in processes, at most `jobs` at once; stopped, all get time for a last checkpoint.

    A cell that takes over another's training begins when that one has ended. `after` is called with each
    cell that has ended. One that another process runs is waited for.

    Raises:
        Interrupted: After SIGINT or SIGTERM.
    """
    failures: list[Failure] = []
    ahead, work = list(cells), dict[Future[list[Failure]], PaperCell]()
    until = time.monotonic() + patience
    with stoppable(2 * GRACE) as stop, ThreadPoolExecutor(jobs) as pool:
        while ahead or work:
            open_ = {cell.folder for cell in (*ahead, *work.values())}
            for cell in [one for one in ahead if one.source not in open_]:
                ahead.remove(cell)
                work[pool.submit(_run, cell, command(cell), jobs, tell, stop, until)] = cell
            for ended in wait(work, return_when=FIRST_COMPLETED).done:
                cell = work.pop(ended)
                failures += ended.result()
                if not stop.asked:
                    how = "finished" if cell.finished else "failed"
                    tell(f"{cell.name}: {how}; {len(ahead) + len(work)} to go")
                    if after is not None:
                        after(cell)
        if stop.asked:
            raise Interrupted(f"interrupted; {GOES_ON}")
    return failures


def _lacking(cell: PaperCell) -> Failure | None:
    """What a cell has to say whose training is another's that did not finish."""
    if cell.source is None or is_finished(cell.source):
        return None
    return Failure(cell.name, BadInput.code, f"{cell.source} is to train its model, and did not finish")


def _run(
    cell: PaperCell, command: list[str], jobs: int, tell: Tell, stop: Stop, until: float
) -> list[Failure]:
    """One cell in a process of its own, whose log stays where it fails: with its code and its last words."""
    if stop.asked:
        return []
    if lacking := _lacking(cell):
        return [lacking]
    log = cell.folder.with_name(f"{cell.folder.name}.log")
    with writing(log):
        log.parent.mkdir(parents=True, exist_ok=True)
        sink = os.fdopen(opened(log, os.O_WRONLY | os.O_CREAT, alone=True), "wb")
    with sink:
        while not grab(sink.fileno()) or _holder(cell):
            if stop.asked or time.monotonic() > until:
                return [] if stop.asked else [Failure(cell.name, InUse.code, "another process runs it")]
            time.sleep(POLL)
        if cell.finished:
            return []
        sink.truncate()
        whole = [sys.executable, "-m", "veilrec", *command]
        quiet = subprocess.DEVNULL
        process = subprocess.Popen(whole, stdin=quiet, stdout=quiet, stderr=sink, env=_environment(jobs))
        began = heard = time.monotonic()
        while process.poll() is None:
            time.sleep(POLL)
            if stop.asked or time.monotonic() - began > LONGEST:
                _end(process)
            elif time.monotonic() - heard > SILENT:
                heard = time.monotonic()
                tell(f"{cell.name}: {_tail(log, 1) or 'at work'}")
    if process.returncode == 0 and cell.finished:
        log.unlink(missing_ok=True)
        return []
    said = _tail(log) or f"ended with code {process.returncode}"
    return [Failure(cell.name, max(process.returncode, 1), said)]


def _environment(jobs: int) -> dict[str, str]:
    """This package is found from wherever the command runs, and processes share the cores."""
    home, threads = str(Path(__file__).resolve().parents[2]), max(1, (os.cpu_count() or 1) // jobs)
    path = os.pathsep.join(filter(None, (home, os.environ.get("PYTHONPATH", ""))))
    return {"OMP_NUM_THREADS": str(threads), **os.environ, "PYTHONPATH": path}


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask a process to stop, and end it where it does not."""
    process.terminate()
    try:
        process.wait(timeout=GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _tail(log: Path, lines: int = TAIL) -> str:
    """The last lines that a process has told."""
    with reading(log) as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - LONG))
        text = file.read().decode(errors="replace")
    return "\n".join(text.strip().splitlines()[-lines:])
