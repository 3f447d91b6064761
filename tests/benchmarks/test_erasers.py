"""The table of erasers: what it reads and counts, what it goes on with, and that it runs from end to end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from benchmarks import erasers, erasers_cost
from benchmarks.erasing.cells import Cell, known_erasers
from benchmarks.erasing.readers import Target, drawn, known_of, read
from veilrec.base.keys import Keys
from veilrec.metrics.inference import auc

KEYS = Keys.seed(3)
LABEL = (torch.arange(300) % 3 == 0).long()


def test_a_share_of_each_class_is_known() -> None:
    known = known_of(torch.where(torch.arange(300) < 5, -1, LABEL), 0.2, KEYS)
    assert int(known[LABEL == 1].sum()) == round(0.2 * 98)
    assert int(known[:5].sum()) == 0


def test_what_leaks_is_read_and_what_does_not_is_at_the_floor() -> None:
    target, families = Target(LABEL, 2), ("qda", "knn")
    draws = drawn(target, 0.8, 2, KEYS)
    noise = KEYS.normal(300, 4)
    told = read(noise + 3.0 * LABEL[:, None], target, draws, KEYS, families)
    assert min(min(each) for each in told["auc"].values()) > 0.95
    blind = read(noise, target, draws, KEYS, families)
    assert max(abs(one - 0.5) for each in blind["auc"].values() for one in each) < 0.25
    assert 0.0 < float(blind["luck"].abs().mean()) < 0.15


def test_an_area_is_that_of_the_lab() -> None:
    """Of three classes as well, where a reader says the same of everybody but one column of noise."""
    from benchmarks.erasing import readers

    label = torch.arange(90) % 3
    target = Target(label, 3)
    draws = drawn(target, 0.5, 1, KEYS)
    features = KEYS.normal(90, 3)
    found = read(features, target, draws, KEYS, ("logistic",))["auc"]["logistic"][0]
    rows = draws[0].known.nonzero().flatten()
    said = readers.fit_predict("logistic", features, [readers.Job(rows, label[rows], 3, 0)])[0]
    where = draws[0].target
    assert found == pytest.approx(float(auc(label[where], said[where])[0]), abs=1e-4)


def test_every_cell_has_its_training_and_a_key_of_its_own() -> None:
    cells = list(erasers.planned(("ml-100k", "ml-1m"), ("fedmf", "fedncf"), erasers.SEEDS))
    keys = [cell.key for cell in cells]
    assert len(set(keys)) == len(keys)
    assert {erasers.training(cell) for cell in cells} <= set(keys)
    erased = {(cell.dataset, cell.eraser) for cell in cells if cell.kind == "erase" and cell.model == "fedmf"}
    assert erased == {
        (dataset, name)
        for dataset in ("ml-100k", "ml-1m")
        for name in known_erasers()
        if (dataset, name) != ("ml-1m", erasers.SLOW[0])
    }


def test_a_line_that_was_cut_off_or_failed_is_done_again(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    rows = [{"key": "a", "kind": "train"}, {"key": "b", "error": "no"}]
    path.write_text("\n".join(json.dumps(row) for row in rows) + '\n{"key": "c", "ki', encoding="utf-8")
    assert list(erasers.finished(path)) == ["a"]


def test_costs_are_of_everything_asked(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        erasers_cost.main(["--quick", "--json", "--repeats", "1", "--only", "LEACE", erasers_cost.SWEEP]) == 0
    )
    found = json.loads(capsys.readouterr().out)
    assert list(found) == ["LEACE", erasers_cost.SWEEP]
    assert all(set(row) == set(erasers_cost.SHAPES) for row in found.values())
    assert all(one >= 0 for row in found.values() for one in row.values())


@pytest.mark.slow
def test_a_toy_goes_through_and_nothing_is_done_twice(tmp_path: Path) -> None:
    parts = [
        "erase/toy/fedncf/201/Lethe/gender",
        "requests/toy/fedmf/201/LeaceNull",
        "stream/",
        "lists/toy/fedmf/201/Lethe",
    ]
    order = [str(tmp_path), "--dataset", "toy", "--seeds", "201", "--jobs", "1", "--only", *parts]
    assert erasers.main(order) == 0
    path = tmp_path / erasers.RESULTS
    rows = erasers.finished(path)
    assert sorted(row["kind"] for row in rows.values()) == [
        "erase",
        "lists",
        "requests",
        "stream",
        "train",
        "train",
    ]
    erased = next(row for row in rows.values() if row["kind"] == "erase")
    read_ = erased["reads"]["gender"]
    assert 0.5 <= read_["floor"] < read_["worst"] + 0.1
    assert set(erased["useful"]) == {"hr@10/99", "ndcg@10/99", "hr@10/all", "ndcg@10/all"}
    assert next(row for row in rows.values() if row["kind"] == "stream")["moved"] == 100
    text = path.read_text(encoding="utf-8")
    assert erasers.main(order) == 0
    assert path.read_text(encoding="utf-8") == text


def test_a_cell_that_fails_says_why(tmp_path: Path) -> None:
    row = erasers.attempt(Cell("erase", "toy", "fedmf", 9, "LEACE", "gender"), tmp_path)
    assert "error" in row
    assert row["key"] == "erase/toy/fedmf/9/LEACE/gender/1"
