"""The numbers as rows: complete, each with its floor, and harmless in a spreadsheet."""

from __future__ import annotations

import csv
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.report.results import FLOOR, result, results
from veilrec.report import table, to_csv
from veilrec.report.exports import COLUMNS, embedded

RISKY = [
    "=1+1",
    "+1",
    "-1",
    "@SUM(A1)",
    "\tx",
    "\rx",
    "\nx",
    '=HYPERLINK("http://x")',
    "-2+3+cmd|' /C calc'!A0",
]


def test_one_row_for_each_number() -> None:
    rows = table([("runs/x", result("laplace", 2))])
    assert all(tuple(row) == COLUMNS for row in rows)
    assert {row["about"] for row in rows} == {
        "usefulness", "verdict", "attacker", "part", "group", "membership", "traffic", "time",
    }  # fmt: skip
    useful = next(row for row in rows if row["measure"] == "ndcg@10")
    assert (useful["run"], useful["seed"], useful["defence"], useful["floor"]) == (
        "runs/x",
        2,
        "laplace",
        FLOOR,
    )
    assert useful["low"] < useful["value"] < useful["high"]


def test_no_score_stands_without_its_floor() -> None:
    judged = {"usefulness", "verdict", "attacker", "part", "group", "membership"}
    rows = [row for row in table(results()) if row["about"] in judged]
    assert len(rows) > 500
    assert [row for row in rows if row["floor"] is None or row["floor_of"] is None] == []


def test_the_floor_of_guessing_right_is_the_majority() -> None:
    row = next(
        r for r in table([("x", result())]) if r["attribute"] == "gender" and r["measure"] == "micro_f1"
    )
    assert (row["floor"], row["floor_of"]) == (670 / 943, "majority")


@pytest.mark.parametrize("text", RISKY)
def test_formulas_become_text(text: str) -> None:
    read = list(csv.DictReader(io.StringIO(to_csv([{"run": text, "value": -1.5}]), newline="")))
    assert read == [{"run": f"'{text}", "value": "-1.5"}]


@given(st.text())
def test_a_cell_never_begins_a_formula(text: str) -> None:
    read = list(csv.reader(io.StringIO(to_csv([{"run": text, "other": 1}]), newline="")))
    cell = read[1][0]
    assert not cell.startswith(("=", "+", "-", "@", "\t", "\r", "\n"))
    assert cell in (text, f"'{text}")


def test_nothing_is_an_empty_cell_and_truth_is_a_word() -> None:
    assert to_csv([{"a": None, "b": True, "c": 0.25}]) == "a,b,c\r\n,true,0.25\r\n"
    assert to_csv([]).startswith("run,seed,")


@given(st.text())
def test_data_cannot_leave_its_element(text: str) -> None:
    found = embedded({"name": text})
    assert not set("<>&\u2028\u2029") & set(found)
    assert json.loads(found) == {"name": text}


def test_what_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="Out of range"):
        embedded({"x": float("nan")})
