"""Summaries: a run says what its model is told about users, a sweep says which cell is which."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.report.results import result
from veilrec.cli.show.summaries import print_cells, print_result


def test_a_run_says_what_its_model_reads(capsys: pytest.CaptureFixture[str]) -> None:
    usual = result("none", 0)
    told = {"width": 2, "names": ["items", "gender=female"], "include_private_features": True}
    print_result(replace(usual, data={**usual.data, "features": told}), Path("runs/x"))
    said = " ".join(capsys.readouterr().out.split())
    assert "The model reads 2 features of each user, among them the attributes themselves (gender)" in said
    print_result(usual, Path("runs/x"))
    assert "The model reads" not in capsys.readouterr().out


def test_swept_defences_are_told_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    choices: list[list[dict[str, object]]] = [
        [{"name": "none"}],
        [{"name": "apm", "low": 3, "clip": 0.5}, {"name": "once"}],
        [{"name": "x\x1b[2J"}],
    ]
    print_cells([({"defence": c, "seed": 0}, result("none", 0)) for c in choices], Path("runs/x"))
    said = capsys.readouterr().out
    assert "apm, low 3, clip 0.5 + once" in " ".join(said.split())
    assert "{" not in said
    assert "\x1b[2J" not in said
