"""The runner finds what is wrong: each planted fault is one that a command might have."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.corpus import Case, Command
from tests.corpus.running import judge, tree
from tests.corpus.stock import Stock
from tests.forge import Forge

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def ends(
    text: str, code: int = 2, act: Callable[[], object] = lambda: None
) -> Callable[[Path, Stock], Command]:
    """A command that does something, says something and ends with a code."""

    def program(arguments: Sequence[str]) -> int:
        act()
        sys.stderr.write(text)
        return code

    return lambda folder, stock: Command(program=program)


LINE = "veilrec: error: a.csv:3: bad; mend it\n"
PLANTED = {
    "nothing": (ends(LINE), ()),
    "another code": (ends(LINE, 1), ("ended with 1, not with 2",)),
    "no line": (ends(""), ("did not say one line",)),
    "two lines": (ends(LINE + LINE), ("did not say one line",)),
    "other words": (ends(LINE.replace("bad", "odd")), ('did not say "bad"',)),
    "a long line": (ends(LINE.replace("it", "x" * 500)), ("a line of 536 letters",)),
    "an escape": (ends(LINE.replace("it", "\x1b[2J")), ("letters that do not print",)),
    "a result": (ends(LINE, act=lambda: print("x")), ("wrote 2 bytes to the standard output",)),
    "a file": (ends(LINE, act=lambda: Path("x").write_text("")), ("wrote x",)),
    "memory": (ends(LINE, act=lambda: b"x" * (5 << 28)), ("took 1.",)),
    "a traceback": (ends(LINE, act=lambda: 1 // 0), ("ended with 1, not with 2", "did not say one line")),
}


def planted() -> list[Case]:
    return [Case(f"data: {name}", make, 2, "bad") for name, (make, _) in PLANTED.items()]


@pytest.mark.parametrize("case", planted(), ids=lambda case: case.name)
def test_a_planted_fault_is_found(case: Case, forge: Forge, tmp_path: Path) -> None:
    expected = PLANTED[case.name.removeprefix("data: ")][1]
    verdict = judge(forge, case, tmp_path / "x", tmp_path / "stock", "tests.corpus.test_running:planted")
    assert len(verdict.faults) == len(expected), verdict
    assert all(fault.startswith(one) for fault, one in zip(verdict.faults, expected, strict=True)), verdict


def test_a_tree_shows_every_change(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    (tmp_path / "link").symlink_to("a")
    os.mkfifo(tmp_path / "pipe")
    seen = [tree(tmp_path)]
    (tmp_path / "a").write_text("2")
    seen.append(tree(tmp_path))
    (tmp_path / "a").chmod(0o600)
    seen.append(tree(tmp_path))
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to("pipe")
    seen.append(tree(tmp_path))
    (tmp_path / "pipe").unlink()
    (tmp_path / "pipe").write_text("")
    seen.append(tree(tmp_path))
    assert len({tuple(sorted(one.items())) for one in seen}) == len(seen)
    assert tree(tmp_path) == seen[-1]
