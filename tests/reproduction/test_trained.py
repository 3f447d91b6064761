"""Rows that begin with another row's trained model: trained once, whoever asks, and in that order."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.commands import call
from tests.reproduction.tiny import PAPER, write
from veilrec.errors import BadInput
from veilrec.reproduction.cells import cells_of
from veilrec.reproduction.paper import Paper

ERASED = """
[methods.erased]
label = "Erased"
recipe = "mf"
trained = "plain"
set = ["eraser.0.name=leace"]

[tables.table3]
title = "After training"
methods = ["erased"]
extra = ["plain"]
"""
TIMED = PAPER.replace(
    'label = "Synthetic"', 'label = "Synthetic"\nseconds = { plain = 7200, default = 1800 }'
)


def test_a_row_stands_behind_the_one_that_trains_it(tmp_path: Path) -> None:
    paper = Paper.load(str(write(tmp_path / "tiny", TIMED + ERASED)))
    table = {"table3": paper.tables["table3"]}
    cells = cells_of(paper, table, ["synthetic"], 2, tmp_path, only=["erased"])
    assert [cell.method for cell in cells] == ["plain", "erased"] * 2
    assert [cell.source for cell in cells[:2]] == [None, cells[0].folder]
    assert [cell.seconds for cell in cells[:2]] == [7200, 1800]
    with pytest.raises(BadInput, match=r'methods\.erased\.trained: there is no "noise"'):
        Paper.load(str(write(tmp_path / "odd", PAPER + ERASED.replace('"plain"\nset', '"noise"\nset'))))


@pytest.mark.parametrize("jobs", ["1", pytest.param("2", marks=pytest.mark.slow)])
def test_the_model_is_trained_once(jobs: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "tiny", TIMED + ERASED)
    asked = ["table3", "--seeds", "1", "--out", tmp_path / "out", "--jobs", jobs]
    plan = call(capsys, "reproduce", tmp_path / "tiny", *asked, "--plan")
    assert "takes over plain" in plan.out
    assert "2 runs, 0 finished. To run: 2.5 CPU hours" in plan.out
    answer = call(capsys, "reproduce", tmp_path / "tiny", *asked, "--light")
    assert answer.code == 0, answer.err
    plain, erased = (tmp_path / "out" / "synthetic" / name / "seed=0" for name in ("plain", "erased"))
    timing = [(folder / "timing.jsonl").read_text() for folder in (plain, erased)]
    assert timing[0] == timing[1]  # not only its numbers: its very seconds
    told = [json.loads((folder / "result.json").read_text()) for folder in (plain, erased)]
    assert told[0]["utility"]["test"] != told[1]["utility"]["test"]
    assert not list((tmp_path / "out").rglob("model.safetensors"))


def test_without_the_training_nothing_is_erased(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "tiny", PAPER.replace("plan.cohort=0.9", 'plan.cohort=0.9", "model.dim=0') + ERASED)
    asked = ["table3", "--seeds", "1", "--out", tmp_path / "out"]
    answer = call(capsys, "reproduce", tmp_path / "tiny", *asked)
    assert answer.code == 2
    assert not (tmp_path / "out" / "synthetic" / "erased").exists()
