"""The page of erasers: rows survive the small table, means are right, and nothing on it is stale."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from benchmarks import erasers_page
from benchmarks.erasing import page
from benchmarks.erasing import rows as table
from benchmarks.erasing.picture import frontier
from benchmarks.erasing.readers import FAMILIES


@dataclass(frozen=True)
class Cell:
    """One cell as the file of results has it."""

    eraser: str
    seed: int
    worst: float
    change: float

    def row(self) -> dict[str, Any]:
        useful = {"before": 0.4, "after": 0.4 + self.change, "change": self.change, "half": 0.004}
        auc = {str(share): {family: [0.4, 0.5] for family in FAMILIES} for share in (0.2, 0.8)}
        told = {"auc": auc, "worst": self.worst, "reader": "svc 0.8", "way": 1 - self.worst, "floor": 0.51}
        return {
            "kind": "erase",
            "dataset": "ml-1m",
            "model": "fedmf",
            "seed": self.seed,
            "eraser": self.eraser,
            "target": "all" if self.eraser == "original" else "gender",
            "reads": {"gender": told},
            "difference": {"gender": {"logistic": 0.1, "mlp": 0.6}},
            "useful": dict.fromkeys(table.KEPT, useful),
            "seconds": 0.25,
        }


CELLS = [Cell("Lethe", 1, 0.52, -0.008), Cell("Lethe", 2, 0.54, -0.004), Cell("original", 1, 0.8, 0.0)]


@pytest.fixture
def rows(tmp_path: Path) -> list[table.Row]:
    table.packed(table.rows_of(cell.row() for cell in CELLS), tmp_path / "table.csv")
    return table.read_packed(tmp_path / "table.csv")


def test_rows_survive_the_small_table(rows: list[table.Row]) -> None:
    assert [(row.eraser, row.seed) for row in rows] == [("Lethe", 1), ("original", 1), ("Lethe", 2)]
    first = rows[0]
    assert (first.worst, first.reader, first.seconds, first.difference) == (0.52, "svc 0.8", 0.25, 0.9)
    assert first.auc == (0.45,) * 14
    assert first.useful == ((-2.0, 1.0),) * 4


def test_an_interval_is_students_over_trainings(rows: list[table.Row]) -> None:
    both = table.alone(rows, "ml-1m", "fedmf", "Lethe", "gender")
    assert both.mean(lambda row: row.worst) == pytest.approx(0.53)
    assert both.half(lambda row: row.worst) == pytest.approx(12.706 * 0.02 / 2**0.5 / 2**0.5, rel=1e-3)
    assert math.isinf(table.alone(rows, "ml-1m", "fedmf", "original", "gender").half(lambda row: row.worst))


def test_tables_have_the_means_and_what_was_erased_for_all(rows: list[table.Row]) -> None:
    found = page.filled("<!-- erasers: ml-1m fedmf -->\nold\n<!-- end -->", rows)
    lines = [line.replace(" ", "") for line in found.splitlines()]
    assert "|Lethe|0.530|0.510|−1.5%|||||||0.25|" in lines
    assert "|original|0.800|0.510|+0.0%|||||||0.25|" in lines
    assert page.filled(found, rows) == found
    apart = page.filled("<!-- erasers: difference -->\n<!-- end -->", rows).replace(" ", "")
    assert "|ML-1M|Lethe|0.900|||||" in apart
    assert "|ML-1M|original|0.550|||||" in apart  # its own readings, and no difference to itself
    bars = page.filled("<!-- erasers: bars -->\n<!-- end -->", rows)
    assert "+0.020" in bars
    assert "0.04" in bars


def test_the_picture_has_a_mark_for_each_eraser(rows: list[table.Row]) -> None:
    drawn = ElementTree.fromstring(frontier(rows))
    marks = [one for one in drawn.iter() if one.tag.endswith("circle")]
    assert sorted(one.attrib["class"] for one in marks) == ["at", "low"]
    words = [one.text for one in drawn.iter() if one.tag.endswith("text")]
    assert {"Lethe", "none", "ML-1M, gender"} <= set(words)


def test_the_page_is_what_the_committed_table_says(capsys: pytest.CaptureFixture[str]) -> None:
    assert erasers_page.main(["--check"]) == 0, capsys.readouterr().out
    assert erasers_page.TABLE.stat().st_size < 200_000
