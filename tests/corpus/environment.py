"""Surroundings that are bad: no room, nobody who listens, folders that cannot be written."""

from __future__ import annotations

import errno
import os
import resource
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from unittest import SkipTest

from tests.corpus import NODE, VEILREC, Case, Command, Program
from tests.corpus.machine import need_mounts, read_only, small_disk
from tests.corpus.stock import Stock

__all__ = ["CASES"]

ROOM = 512  # bytes of any one file: enough for an error line, too little for a result
FULL = Path("/dev/full")
LOG = "user,item\n" + "".join(f"u{k % 5},i{k}\n" for k in range(20))
Before = Callable[[], None]


def stream(number: int, path: Path | str, flags: int = os.O_WRONLY) -> None:
    """Lead a stream somewhere else."""
    descriptor = os.open(path, flags)
    os.dup2(descriptor, number)
    os.close(descriptor)


def closed(number: int) -> None:
    """Close a stream, and leave what Python has in its place then."""
    os.close(number)
    setattr(sys, ("stdin", "stdout", "stderr")[number], None)


def unread() -> None:
    """The standard output is a pipe that nobody reads."""
    reader, writer = os.pipe()
    os.close(reader)
    os.dup2(writer, 1)


def no_room() -> None:
    """No file may grow beyond a few bytes, as on a disk that is nearly full."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM, ROOM))


def no_files() -> None:
    """Hardly a file may be open."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (4, 4))


def nowhere() -> None:
    """The working folder is gone."""
    Path("gone").mkdir()
    os.chdir("gone")
    Path("../gone").rmdir()


def failing_disk() -> None:
    """Whatever is brought to the disk does not get there."""

    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    os.fsync = fail


# What each command needs in its folder, and how it is called.


def prepare(folder: Path, stock: Stock, command: str) -> tuple[tuple[str, ...], Program, bytes]:
    match command:
        case "run":
            stock.recipe(folder / "recipe.toml")
            return ("run", "recipe.toml", "--out", "out", "-q"), VEILREC, b""
        case "resume":
            stock.begun(folder / "out")
            stock.recipe(folder / "recipe.toml")
            return ("run", "recipe.toml", "--out", "out", "--resume", "-q"), VEILREC, b""
        case "attack":
            stock.run(folder / "run")
            return ("attack", "run", "-q", "--classifier", "logistic", "--attribute", "gender"), VEILREC, b""
        case "evaluate":
            stock.run(folder / "run")
            return ("evaluate", "run", "-q"), VEILREC, b""
        case "report":
            stock.run(folder / "run")
            (folder / "page.html").write_text("the one of before")
            return ("report", "run", "-o", "page.html"), VEILREC, b""
        case "import":
            (folder / "log.csv").write_text(LOG)
            return ("data", "import", "log.csv", "--yes", "--json"), VEILREC, b""
        case "node":
            stock.store(folder / "store")
            return ("store",), NODE, stock.letter()
        case "list":
            return ("list", "models"), VEILREC, b""
        case "list --json":
            return ("list", "--json"), VEILREC, b""
    return (command,), VEILREC, b""


def when(
    command: str, before: Before | None = None, *, needs: Path | None = None, **variables: str
) -> Callable[[Path, Stock], Command]:
    """A command in surroundings: `before` makes them, `needs` must be there, variables are set."""

    def make(folder: Path, stock: Stock) -> Command:
        if needs is not None and not needs.exists():
            raise SkipTest(f"needs {needs}")
        arguments, program, stdin = prepare(folder, stock, command)
        told = {name: value.format(folder=folder) for name, value in variables.items()}
        return Command(*arguments, program=program, stdin=stdin, before=before, environment=told)

    return make


def unwritable(command: str, *places: str) -> Callable[[Path, Stock], Command]:
    """A command in a folder that cannot be written."""

    def make(folder: Path, stock: Stock) -> Command:
        arguments, program, stdin = prepare(folder, stock, command)
        for place in places:
            (folder / place).mkdir(exist_ok=True)
        before = read_only([folder / place for place in places])
        return Command(*arguments, program=program, stdin=stdin, before=before)

    return make


def on_a_full_disk(*arguments: str, program: Program = VEILREC) -> Callable[[Path, Stock], Command]:
    """A command that writes into the folder ``full``, where nothing is left."""

    def make(folder: Path, stock: Stock) -> Command:
        need_mounts()
        (folder / "full").mkdir()
        stock.recipe(folder / "recipe.toml")
        stock.run(folder / "run")
        return Command(*arguments, program=program, before=partial(small_disk, folder / "full"))

    return make


def worded(*arguments: str, program: Program = VEILREC) -> Callable[[Path, Stock], Command]:
    return lambda folder, stock: Command(*arguments, program=program)


def launched(**variables: str) -> Callable[[Path, Stock], Command]:
    """A run that believes that torchrun has started it."""
    return when("run", TORCHELASTIC_RUN_ID="x", **variables)


def a(name: str, make: Callable[[Path, Stock], Command], code: int, says: str = "", *writes: str) -> Case:
    return Case(f"environment: {name}", make, code, says, writes)


def unheard(name: str, make: Callable[[Path, Stock], Command], code: int) -> Case:
    return Case(f"environment: {name}", make, code, quiet=True)


OUTPUT, CLOSED, UNWRITTEN = "standard output: ", "standard output: is closed", "cannot be written"
full, shut = partial(stream, 1, FULL), partial(closed, 1)
mute, gone = partial(stream, 2, FULL), partial(closed, 2)
SPOOL = "out/transcript/*"  # of the round at hand, which the next attempt begins anew
CASES = [
    a("list, the output is full", when("list", full, needs=FULL), 2, OUTPUT),
    a("list --json, the output is full", when("list --json", full, needs=FULL), 2, OUTPUT),
    a("help, the output is full", when("--help", full, needs=FULL), 2, OUTPUT),
    a("version, the output is full", when("--version", full, needs=FULL), 2, OUTPUT),
    a("evaluate, the output is full", when("evaluate", full, needs=FULL), 2, OUTPUT),
    a("list, the output is closed", when("list", shut), 2, CLOSED),
    a("run, the output is closed", when("run", shut), 2, CLOSED),
    a("report, the output is closed", when("report", shut), 2, CLOSED),
    a("attack, the output is closed", when("attack", shut), 2, CLOSED),
    a("node, the output is closed", when("node", shut), 2, CLOSED),
    unheard("list, nobody reads", when("list", unread), 141),
    unheard("list --json, nobody reads", when("list --json", unread), 141),
    unheard("help, nobody reads", when("--help", unread), 141),
    unheard("evaluate, nobody reads", when("evaluate", unread), 141),
    unheard("the error output is full", when("nonsense", mute, needs=FULL), 2),
    unheard("the error output is closed", when("nonsense", gone), 2),
    a("node, the input is closed", when("node", partial(closed, 0)), 2, "message"),
    a("run, no room for its files", when("run", no_room), 2, UNWRITTEN),
    a("resume, no room for its files", when("resume", no_room), 2, UNWRITTEN, SPOOL),
    a("attack, no room for its files", when("attack", no_room), 2, UNWRITTEN),
    a("report, no room for its files", when("report", no_room), 2, f"page.html: {UNWRITTEN}"),
    a("node, no room for its files", when("node", no_room), 2, UNWRITTEN),
    a("import, no room for its files", when("import", no_room), 2, UNWRITTEN, ".cache", ".cache/*"),
    a("run, the disk fails", when("run", failing_disk), 2, UNWRITTEN),
    a("resume, the disk fails", when("resume", failing_disk), 2, UNWRITTEN, SPOOL),
    a("attack, the disk fails", when("attack", failing_disk), 2, UNWRITTEN),
    a("report, the disk fails", when("report", failing_disk), 2, UNWRITTEN),
    a("node, the disk fails", when("node", failing_disk), 2, UNWRITTEN),
    a("run in a folder that cannot be written", unwritable("run", "out"), 2, UNWRITTEN),
    a("attack on a run that cannot be written", unwritable("attack", "run"), 2, UNWRITTEN),
    a("node with a store that cannot be written", unwritable("node", "store"), 2, UNWRITTEN),
    a("import where home cannot be written", unwritable("import", ".cache"), 2, UNWRITTEN),
    a("import where home is a file", when("import", HOME="{folder}/log.csv"), 2, r"log\.csv"),
    a("run on a full disk", on_a_full_disk("run", "recipe.toml", "--out", "full/out"), 2, "full/out"),
    a("report on a full disk", on_a_full_disk("report", "run", "-o", "full/a.html"), 2, "full/"),
    a("no folder to be in", when("list", nowhere), 2, "the working folder: is gone"),
    a("hardly a file may be open", when("evaluate", no_files), 2, "Too many open files"),
    a("an argument that is no text", worded("run", "\udcff.toml"), 2, "argument 2: .*udcff"),
    a("a store that is no text", worded("b\udcff", program=NODE), 2, "argument 1: .*udcff"),
    a("an argument that clears the screen", worded("run", "\x1b[2J.toml"), 2, r"x1b\[2J"),
    a("an argument of two lines", worded("run", "a\nveilrec: error: b.toml"), 2, "no such file"),
    a("a very long argument", worded("run", "x" * 5000), 2, "…"),
    a("more processes than a number", launched(WORLD_SIZE="many"), 2, 'WORLD_SIZE: "many"'),
    a("a rank that nobody gave", launched(WORLD_SIZE="2"), 2, "RANK: is not set"),
    a("a port that is none", launched(WORLD_SIZE="2", RANK="0", MASTER_PORT="x"), 2, "MASTER_PORT"),
]
