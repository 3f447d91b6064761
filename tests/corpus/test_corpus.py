"""Whatever is bad is refused: one line, the right exit code, nothing written, little memory, soon."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.corpus import Case, cases
from tests.corpus.running import Verdict, judge
from tests.forge import Forge

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
EVERY = cases()
KINDS = ("data", "environment", "folder", "message", "setting")


def of_each(kinds: Sequence[str]) -> list[Case]:
    """The first quick case of each kind."""
    return [
        next(c for c in EVERY if c.kind == kind and not c.slow)
        for kind in kinds
        if Counter(c.kind for c in EVERY)[kind]
    ]


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stock")


def passed(verdict: Verdict) -> None:
    if verdict.skipped:
        pytest.skip(verdict.skipped)
    assert not verdict.faults, f"{verdict.faults}\n{verdict.line}"


@pytest.mark.parametrize("case", of_each(KINDS), ids=lambda case: case.name)
def test_one_of_each_kind(case: Case, forge: Forge, stock: Path, tmp_path: Path) -> None:
    passed(judge(forge, case, tmp_path / "x", stock))


@pytest.mark.slow
@pytest.mark.parametrize("case", EVERY, ids=lambda case: case.name)
def test_every_case(case: Case, forge: Forge, stock: Path, tmp_path: Path) -> None:
    passed(judge(forge, case, tmp_path / "x", stock))


def test_names_are_kinds_and_words() -> None:
    names = [case.name for case in EVERY]
    assert [name for name, count in Counter(names).items() if count > 1] == []
    assert {case.kind for case in EVERY} <= set(KINDS)
    assert all(case.name.partition(": ")[2] for case in EVERY)
    assert all(case.code in (0, 2, 3, 4, 130, 141) for case in EVERY)
