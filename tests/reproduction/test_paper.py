"""``paper.toml``: what it says is found, and what means nothing is refused with file, line and key."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.reproduction.tiny import PAPER, REPORTED, write
from veilrec.errors import BadInput
from veilrec.reproduction.cells import cells_of
from veilrec.reproduction.numbers import Quantity
from veilrec.reproduction.paper import Paper
from veilrec.reproduction.tables import reported

KNN = Quantity("macro_f1", "gender", "custom", "updates/knn")


def test_a_method_is_a_recipe_with_changes(tmp_path: Path) -> None:
    paper = Paper.load(str(write(tmp_path / "tiny")))
    assert paper.name == "tiny"
    assert paper.changes("noisy", "synthetic") == [
        "data.name=synthetic",
        "plan.cohort=0.9",
        "defence.0.name=laplace",
        "defence.0.scale=0.1",
    ]
    assert paper.recipe("noisy") == tmp_path / "tiny" / "mf.toml"


def test_tables_share_their_cells(tmp_path: Path) -> None:
    paper = Paper.load(str(write(tmp_path / "tiny")))
    cells = cells_of(paper, paper.chosen(["all"]), ["synthetic"], 2, tmp_path / "out")
    assert [cell.name for cell in cells] == [
        f"synthetic/{method}/seed={seed}" for seed in (0, 1) for method in ("plain", "noisy", "broken")
    ]
    assert cells[1].folder == tmp_path / "out" / "synthetic" / "noisy" / "seed=0"
    fewer = cells_of(paper, paper.chosen(["table2"]), ["synthetic"], 1, tmp_path, extra=False)
    assert [cell.method for cell in fewer] == ["plain"]


def test_tables_come_once_and_in_order(tmp_path: Path) -> None:
    paper = Paper.load(str(write(tmp_path / "tiny")))
    assert list(paper.chosen(["table2", "table1", "table2"])) == ["table1", "table2"]
    assert list(paper.chosen(["all"])) == ["table1", "table2"]


def test_reported_numbers_are_found_by_labels(tmp_path: Path) -> None:
    paper = Paper.load(str(write(tmp_path / "tiny")))
    assert reported(paper, "table1", "synthetic", "plain", KNN) == 0.7
    assert reported(paper, "table1", "synthetic", "plain", Quantity("hr@10")) == 0.3
    assert reported(paper, "table2", "synthetic", "plain", Quantity("hr@10")) == 0.3  # as table1 has it
    assert reported(paper, "table1", "synthetic", "noisy", Quantity("hr@10")) is None
    assert reported(paper, "table1", "synthetic", "plain", KNN._replace(score="auc")) is None
    assert reported(paper, "table1", "synthetic", "plain", KNN._replace(attacker="", part="item")) is None


def test_two_rows_that_fit_are_refused(tmp_path: Path) -> None:
    twice = REPORTED + "table1,Synthetic,Plain,Gender,,f1,,,0.400\n"
    paper = Paper.load(str(write(tmp_path / "tiny", reported=twice)))
    with pytest.raises(BadInput, match=r"reported\.csv: 2 rows of table1 fit"):
        reported(paper, "table1", "synthetic", "plain", KNN)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (
            'recipe = "mf"\n\n[methods.noisy]',
            'recipe = "mv"\n\n[methods.noisy]',
            'methods.plain.recipe: there is no "mv"',
        ),
        ('file = "mf.toml"', 'file = "gone.toml"', "recipes.mf.file: there is no gone.toml"),
        (
            'methods = ["plain", "noisy"]',
            'methods = ["plane"]',
            'tables.table1.methods: there is no "plane"; did you mean "plain"',
        ),
        ('audits = ["custom"]', 'audits = ["costum"]', 'tables.table1.audits: there is no "costum"'),
        ('parts = ["item"]', 'partz = ["item"]', "tables.table1.partz: Table has no such option"),
        ('metric = "hr@10"\n', "", "metric: a paper needs it"),
        ('metric = "hr@10"\n', 'metric = "hit@10"\n', 'metric: there is no "hit"'),
        ('metric = "hr@10"\n', 'metric = "hr"\n', 'metric: "hr" has no length of a list; write "hr@10"'),
        ('beside = ["auc"]', 'beside = ["aux"]', 'beside: there is no "aux"; did you mean "auc"'),
        ('label = "Gender"', 'label = "Gender"\nscore = "f1"', 'attributes.gender.score: there is no "f1"'),
        ('less = "noisy", than', "than", "tables.table1.claims.0: claims nothing"),
        ('than = "popularity"', 'than = "luck"', 'tables.table1.claims.2.than: there is no "luck"'),
        (
            'attribute = "gender" },\n    { more = "plain", than = "floor"',
            'than_audit = "costum" },\n    { more = "plain", than = "floor"',
            'tables.table1.claims.0.than_audit: there is no "costum"',
        ),
        (
            'than = "popularity", by',
            'than = "popularity", datasets = ["ml-1m"], by',
            'tables.table1.claims.2.datasets: there is no "ml-1m"',
        ),
        ("on = { synthetic", "on = { ml-100k", 'recipes.mf.on: there is no "ml-100k"'),
        ('title = "Two methods"', "title = 2", "tables.table1.title: 2 will not do"),
    ],
)
def test_what_means_nothing_is_refused_with_its_key(
    tmp_path: Path, before: str, after: str, expected: str
) -> None:
    assert PAPER.count(before) == 1
    folder = write(tmp_path / "tiny", PAPER.replace(before, after))
    with pytest.raises(BadInput) as caught:
        Paper.load(str(folder))
    assert str(caught.value).startswith(str(folder / "paper.toml"))
    assert expected in str(caught.value)


def test_the_line_is_named(tmp_path: Path) -> None:
    folder = write(tmp_path / "tiny", PAPER.replace('audits = ["custom"]', 'audits = ["costum"]'))
    line = (folder / "paper.toml").read_text().splitlines().index('audits = ["costum"]') + 1
    with pytest.raises(BadInput, match=f"paper.toml:{line}: tables.table1.audits"):
        Paper.load(str(folder))


def test_a_reported_value_that_is_no_number_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "tiny", reported=REPORTED.replace("0.500", "half"))
    with pytest.raises(BadInput, match=r"reported\.csv:3: no number under value"):
        Paper.load(str(folder))
