"""A corpus of what is bad: files, settings, messages, folders and machines, each made anew by a function.

A module of this folder lists its cases in ``CASES``. A case makes what is bad in an empty folder of its own
and says which command shall refuse it, and how. What is whole to begin with comes from the `Stock`, which
makes it once and hands out copies:

    def swapped(folder: Path, stock: Stock) -> Command:
        run = stock.run(folder / "run")
        (run / "world.safetensors").write_bytes((run / "model.safetensors").read_bytes())
        return Command("evaluate", "run")

    def from_far_ahead(folder: Path, stock: Stock) -> Command:
        stock.store(folder / "store")
        return Command("store", program=NODE, stdin=stock.letter(round=2**31 - 1))

    CASES = [
        Case("folder: another file in the place of the world", swapped, 4, "world.safetensors"),
        Case("message: a round of the year 5000", from_far_ahead, 2, "round"),
    ]

The runner, ``tests/corpus/running.py``, forks a process that has all loaded, goes into the folder, which
is HOME, too, and runs the command. A case passes if it ends with its exit code and one line of bounded length
on the standard error, in which its words are found, and has written nothing: no file of the folder changed,
came or went; in less than 10 s and 1 GB. What a case shall write all the same it lists in `writes`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.corpus.stock import Stock

__all__ = ["NODE", "VEILREC", "Case", "Command", "cases"]

Program = Callable[[Sequence[str]], "int | None"]


def VEILREC(arguments: Sequence[str]) -> int:  # noqa: N802
    """``veilrec …``."""
    from veilrec.cli import main

    return main(arguments)


def NODE(arguments: Sequence[str]) -> int:  # noqa: N802
    """``python -m veilrec.node …``."""
    from veilrec.node import main

    return main(arguments)


@dataclass(frozen=True, init=False)
class Command:
    """What a case runs in its folder.

    Attributes:
        arguments: Words of the command; paths are relative to the folder of the case.
        program: ``VEILREC``, ``NODE``, or a function of the library, for what no command reaches: an error of
            veilrec that it raises is told as a command tells it.
        stdin: What it reads.
        environment: Variables that are set besides.
        before: Called in its process right before: a limit, a file closed, the clock put back.
    """

    arguments: tuple[str, ...]
    program: Program
    stdin: bytes
    environment: Mapping[str, str]
    before: Callable[[], None] | None

    def __init__(
        self,
        *arguments: str | Path,
        program: Program = VEILREC,
        stdin: bytes = b"",
        environment: Mapping[str, str] | None = None,
        before: Callable[[], None] | None = None,
    ) -> None:
        given = {
            "arguments": tuple(map(str, arguments)),
            "program": program,
            "stdin": stdin,
            "environment": environment or {},
            "before": before,
        }
        for name, value in given.items():
            object.__setattr__(self, name, value)


@dataclass(frozen=True)
class Case:
    """One bad thing.

    Attributes:
        name: Its kind (``data``, ``setting``, ``message``, ``folder`` or ``environment``), a colon, and what
            is bad, in words; no two cases have the same.
        make: Makes it in an empty folder and says what to run; may skip with ``pytest.skip``.
        code: The exit code: 2, 3 or 4, mostly.
        says: What the line on the standard error must have in it: a regular expression.
        writes: Names in the folder that may have changed, as in ``("out/*",)``; mostly none.
        quiet: Whether nothing is said: of a pipe that nobody reads, for instance.
        slow: Whether it takes more than a second or two of CPU time: left to the slow tier.
    """

    name: str
    make: Callable[[Path, Stock], Command]
    code: int
    says: str = ""
    writes: Sequence[str] = field(default=())
    quiet: bool = False
    slow: bool = False

    @property
    def kind(self) -> str:
        return self.name.partition(":")[0]


def cases() -> list[Case]:
    """Every case of every module here, in the order of their names."""
    return sorted(_found(), key=lambda case: case.name)


def _found() -> Iterator[Case]:
    for module in pkgutil.iter_modules(__path__):
        if not module.name.startswith("test_"):
            yield from getattr(importlib.import_module(f"{__name__}.{module.name}"), "CASES", ())
