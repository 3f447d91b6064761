"""The runner of the corpus: makes a case, runs its command in a process of its own, says what is wrong."""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
import re
import resource
import signal
import stat
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from unittest import SkipTest

from tests.corpus import Case, Command
from tests.corpus.stock import Stock
from tests.forge import Ended, Forge, Order, Setting, forked, waited
from veilrec.errors import LENGTH, VeilrecError, visible

__all__ = ["Verdict", "faults_of", "judge", "tree"]

SECONDS, MEMORY = 10.0, 1 << 30
PATIENCE = 60.0  # seconds until a command that waits is ended
ADDRESSES = 12 << 30  # bytes of address space: what asks for more is refused, and the machine lives on
PREFIX = "veilrec: error: "
WHOLE = 64 << 20  # bytes of a file that are looked at


@dataclass(frozen=True)
class Verdict:
    """What came of a case.

    Attributes:
        faults: In words; none where it passed.
        line: What the command said.
        skipped: Why the case could not be made here.
        seconds, peak: CPU time and the most memory of the command.
    """

    name: str
    faults: tuple[str, ...] = ()
    code: int = 0
    line: str = ""
    seconds: float = 0.0
    peak: int = 0
    skipped: str = ""


def judge(forge: Forge, case: Case, folder: Path, stock: Path, listed: str = "tests.corpus:cases") -> Verdict:
    """Run a case in a new folder.

    Args:
        forge: Forks the process.
        case: What is run.
        folder: Where; it stays.
        stock: Where whole things lie.
        listed: The function that lists the case among others.
    """
    folder.mkdir(parents=True)
    said = folder / "verdict.json"
    order = {"name": case.name, "folder": str(folder), "stock": str(stock), "listed": listed}
    ended = forge.run(Order("tests.corpus.running:run", order, Setting(stderr=str(folder / "trace"))))
    if ended.code:
        trace = (folder / "trace").read_text(encoding="utf-8")
        return Verdict(case.name, (f"the case itself failed: {trace[-2000:]}",))
    found = json.loads(said.read_text(encoding="utf-8"))
    return Verdict(**{**found, "faults": tuple(found["faults"])})


def run(name: str, folder: str, stock: str, listed: str) -> None:
    """In a process of its own: make a case, run its command in another process, and write down what came."""
    module, function = listed.split(":")
    case = next(case for case in getattr(import_module(module), function)() if case.name == name)
    verdict = tried(case, Path(folder), Stock(Path(stock)))
    (Path(folder) / "verdict.json").write_text(json.dumps(asdict(verdict)), encoding="utf-8")


def tried(case: Case, folder: Path, stock: Stock) -> Verdict:
    """Make a case and run its command."""
    place, scratch = folder / "case", folder / "tmp"
    place.mkdir()
    scratch.mkdir()
    try:
        command = case.make(place, stock)
    except SkipTest as reason:
        return Verdict(case.name, skipped=str(reason))
    before = {**tree(place), **tree(scratch, "TMPDIR/")}
    ended, out, err = _run(command, folder, place, scratch)
    after = {**tree(place), **tree(scratch, "TMPDIR/")}
    changed = sorted(path for path in {*before, *after} if before.get(path) != after.get(path))
    changed = [path for path in changed if not any(fnmatch.fnmatch(path, one) for one in case.writes)]
    faults = tuple(faults_of(case, ended, out, err, changed))
    return Verdict(
        case.name, faults, ended.code if ended else -1, err, *((ended.seconds, ended.peak) if ended else ())
    )


def _run(command: Command, folder: Path, place: Path, scratch: Path) -> tuple[Ended | None, bytes, str]:
    """How a command ended, None where it did not, and what it said."""
    names = {name: folder / name for name in ("stdin", "stdout", "stderr")}
    names["stdin"].write_bytes(command.stdin)
    own = {"HOME": str(place), "TMPDIR": str(scratch), **command.environment}
    setting = Setting(str(place), *(str(path) for path in names.values()), own)
    process = forked(partial(_call, command), setting)
    ended = waited(process, PATIENCE)
    if ended is None:
        os.killpg(process, signal.SIGKILL)
        waited(process, PATIENCE)
    return (
        ended,
        names["stdout"].read_bytes(),
        names["stderr"].read_text(encoding="utf-8", errors="backslashreplace"),
    )


def _call(command: Command) -> int | None:
    """In the process of the command."""
    sys.dont_write_bytecode = True
    for name in ("VEILREC_HOME", "VEILREC_DATA_DIR", "XDG_CACHE_HOME"):
        if name not in command.environment:
            os.environ.pop(name, None)
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
    if command.before is not None:
        command.before()
    try:
        return command.program(command.arguments)
    except VeilrecError as error:  # of the library: told as a command tells it
        print(f"{PREFIX}{visible(error)}", file=sys.stderr)
        return error.code


def faults_of(case: Case, ended: Ended | None, out: bytes, err: str, changed: list[str]) -> Iterator[str]:
    """What is wrong with an end."""
    if ended is None:
        yield f"has not ended within {PATIENCE:.0f} s"
        return
    if ended.code != case.code:
        yield f"ended with {ended.code}, not with {case.code}"
    if case.quiet:
        if err:
            yield "said something"
    elif not err.startswith(PREFIX) or err.count("\n") != 1 or not err.endswith("\n"):
        yield "did not say one line"
    elif not re.search(case.says, err):
        yield f'did not say "{case.says}"'
    if len(err) > len(PREFIX) + LENGTH + 1 and not err.count("\n") > 1:
        yield f"a line of {len(err)} letters"
    if any(not letter.isprintable() for letter in err.rstrip("\n")) and err.count("\n") <= 1:
        yield "letters that do not print"
    if out:
        yield f"wrote {len(out)} bytes to the standard output"
    if changed:
        yield f"wrote {', '.join(changed[:5])}"
    if ended.seconds > SECONDS:
        yield f"took {ended.seconds:.1f} s"
    if ended.peak > MEMORY:
        yield f"took {ended.peak / MEMORY:.2f} GB"


def tree(folder: Path, prefix: str = "") -> Mapping[str, str]:
    """Everything below a folder, links and devices as what they are, with a hash of what files hold."""
    found = {}
    for path in sorted(folder.rglob("*")):
        about = path.lstat()
        kind = f"{stat.filemode(about.st_mode)} {about.st_uid}"
        if stat.S_ISLNK(about.st_mode):
            kind += f" {os.readlink(path)}"
        elif stat.S_ISREG(about.st_mode):
            kind += f" {about.st_size} {_hash(path, about)}"
        found[prefix + path.relative_to(folder).as_posix()] = kind
    return found


def _hash(path: Path, about: os.stat_result) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if about.st_size <= WHOLE else str(about.st_mtime_ns)
