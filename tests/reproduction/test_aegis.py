"""papers/aegis: every printed number, rows that differ by their eraser, facts beside the paper's."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.results import result
from veilrec.reproduction.cells import FinishedRuns, cells_of
from veilrec.reproduction.facts import FACTS, fact_of
from veilrec.reproduction.numbers import SHUFFLED, WORST, Quantity, value_of
from veilrec.reproduction.paper import Paper
from veilrec.reproduction.sheets import sheets_of
from veilrec.reproduction.tables import page_of, reported
from veilrec.runs.session import ERASING
from veilrec.runs.taken import AFTER

PAPER = Paper.load("aegis")
XGB = Quantity("micro_f1", "gender", "aegis", "embeddings/xgboost-aegis")
MLP = XGB._replace(attacker="embeddings/mlp-aegis")


@cache
def values(dataset: str) -> dict[str, dict[str, Any]]:
    """What each method on a dataset is run with; the dataset need not be there."""
    found = cells_of(PAPER, PAPER.chosen(["all"]), [dataset], 1, Path())
    return {cell.method: cell.recipe(has_data=False).values for cell in found}


def test_every_printed_number_is_there() -> None:
    counts = {name: sum(row["table"] == name for row in PAPER.figures) for name in PAPER.tables}
    assert {name: count for name, count in counts.items() if count} == {
        "table1": 13,
        "table2": 16,
        "table3": 130,
        "table4": 96,
        "table5": 20,
    }


def test_known_cells() -> None:
    assert reported(PAPER, "table3", "ml-100k", "original", XGB) == 0.7143
    assert reported(PAPER, "table3", "ml-1m", "original", XGB) == 0.8487
    assert reported(PAPER, "table3", "ml-1m", "original", MLP) == 0.7310
    assert reported(PAPER, "table3", "ml-1m", "original", MLP._replace(attribute="occupation")) == 0.1159
    assert reported(PAPER, "table4", "ml-100k", "original", Quantity("hr@5")) == 0.7234
    assert reported(PAPER, "table2", "ml-1m", "original", Quantity("items")) == 3952
    assert reported(PAPER, "table1", "ml-1m", "original", Quantity("ndcg@10")) == 0.699
    assert reported(PAPER, "table3", "renttherunway", "original", XGB._replace(attribute="body type")) is None


def test_rows_of_one_model_differ_by_what_happens_after_training() -> None:
    for dataset in PAPER.datasets:
        found = values(dataset)
        for method, one in found.items():
            if PAPER.methods[method].trained:
                assert one["eraser"]
                same = found[PAPER.methods[method].trained]
                assert all(one[part] == same[part] for part in same if part not in AFTER)


def test_the_federation_is_that_of_the_paper() -> None:
    for dataset in PAPER.datasets:
        one = values(dataset)["original"]
        assert (one["data"]["silos"], one["model"]["dim"], one["model"]["objective"]) == (10, 128, "bpr")
        assert one["protocol"]["weigh"] == "examples"
        assert sorted(one["threat"]["attributes"]) == sorted(PAPER.datasets[dataset].attributes)


def test_facts_stand_beside_those_of_the_paper(tmp_path: Path) -> None:
    run = result(None, 0)
    big = replace(run, data={**run.data, "users": 10, "items": 4, "events": 20})
    for seed in range(2):
        folder = tmp_path / "ml-100k" / "original" / f"seed={seed}"
        folder.mkdir(parents=True)
        big.save(folder)
    (sheet,) = sheets_of(PAPER, page_of(PAPER, "table2", "ml-100k", FinishedRuns(tmp_path, 2)))
    assert sheet.head[1::2] == ["users", "items", "events", "density"]
    assert sheet.rows == [
        ["Original", "10", "943", "4", "1,682", "20", "100,000", "50.00%", "6.30%"],
    ]


def test_seconds_are_those_of_the_eraser_or_of_all_training() -> None:
    run = result(None, 0)
    erased = replace(run, settings={"eraser": [{"name": "x"}]}, timing={ERASING: 1.5, "train": 60.0})
    defended = replace(run, settings={"defence": [{"name": "uc_fedrec"}]}, timing={"train": 60.0})
    plain = replace(run, settings={"defence": [{"name": "none"}]}, timing={"train": 60.0})
    assert [fact_of({0: one}, "seconds") for one in (erased, defended, plain)] == [1.5, 60.0, None]
    assert fact_of({0: erased, 1: defended}, "seconds") == pytest.approx(30.75)
    assert FACTS["seconds"].shown(None) == "–"


def test_luck_with_shuffled_labels_is_read_off_the_verdict() -> None:
    verdict = {"attacker": "x", "shuffled": {"value": 0.54, "high": 0.6}}
    entry = {"verdict": verdict, "attackers": [{"name": "x", "scores": {"auc": {"value": 0.7}}}]}
    run = replace(result(None, 0), privacy={"a": {"attributes": {"gender": entry}}})
    found = value_of(run, Quantity(SHUFFLED, "gender", "a", WORST))
    assert found is not None
    assert (found.value, found.sure) == (0.54, False)
