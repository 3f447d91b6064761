"""Sheets of several scores, of components, of costs and of curves; two forms of one dataset."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.reproduction.tiny import PAPER, REPORTED, attacked, ranked, write
from veilrec.errors import BadInput
from veilrec.metrics.measures import Measure, together
from veilrec.reproduction.cells import FinishedRuns, cells_of
from veilrec.reproduction.claims import check
from veilrec.reproduction.contents import Claim, Dataset
from veilrec.reproduction.numbers import Quantity, value_of
from veilrec.reproduction.overview import Told
from veilrec.reproduction.paper import Paper
from veilrec.reproduction.per_round import at_rounds, cells, costs, looks
from veilrec.reproduction.results import plain
from veilrec.reproduction.sheets import Sheet, sheets_of, unmeasured
from veilrec.reproduction.tables import Page, attacks, page_of, reported
from veilrec.result import Result

SEEDS = 3
MACHINE = {"device": "cpu", "processor": "abacus", "cores": 2}


def costly(run: Result, seconds: float, up: float, **environment: Any) -> Result:
    """The same run with so many seconds a round and so many bytes up."""
    timing = {"train": seconds * run.rounds, "total": 99.0, "peak_bytes": 250_000_000}
    traffic = {"up": {"mean": up}, "down": {"mean": 400.0}}
    return replace(run, timing=timing, traffic=traffic, environment={**MACHINE, **environment})


def split(run: Result, correction: float) -> Result:
    """The same run, whose attacker's answer is made of two numbers."""
    privacy = {**run.privacy}
    entry = privacy["custom"]["attributes"]["gender"]
    told = {
        name: {"value": v, "low": v - 0.1, "high": v + 0.1, "median": v}
        for name, v in (("predicted", 0.5), ("correction", correction))
    }
    entry["attackers"][0]["notes"] = {"components": told}
    return replace(run, privacy=privacy)


def curved(run: Result, values: list[float | None]) -> Result:
    rounds = list(range(1, len(values) + 1))
    return replace(run, curves={"round": rounds, "ndcg@10": values, "bacc@gender": values})


def saved(out: Path, method: str, runs: list[Result]) -> None:
    for seed, run in enumerate(runs):
        folder = out / "synthetic" / method / f"seed={seed}"
        folder.mkdir(parents=True, exist_ok=True)
        run.save(folder)


def paper_of(folder: Path, **changes: Any) -> Paper:
    """The tiny paper with its first table changed, whose second method is held against the first."""
    found = Paper.load(str(write(folder)))
    table = replace(found.tables["table1"], **changes)
    methods = {**found.methods, "noisy": replace(found.methods["noisy"], against="plain")}
    return replace(found, tables={**found.tables, "table1": table}, methods=methods)


def page(paper: Paper, out: Path) -> Page:
    return page_of(paper, "table1", "synthetic", FinishedRuns(out, SEEDS))


def named(sheets: list[Sheet], start: str) -> Sheet:
    return next(sheet for sheet in sheets if sheet.title.startswith(start))


# ---- costs


def test_costs_are_seconds_and_bytes_a_round_and_their_ratio(tmp_path: Path) -> None:
    saved(tmp_path, "plain", [costly(attacked(s, 0.6), 2.0, 1000.0) for s in range(SEEDS)])
    saved(tmp_path, "noisy", [costly(attacked(s, 0.5), 2.0 + s, 1500.0) for s in range(SEEDS)])
    paper = paper_of(tmp_path / "tiny", cost=True)
    here = page(paper, tmp_path)
    sheet = sheets_of(paper, here)[0]
    assert sheet.title == "What a round costs"
    assert sheet.head[:5] == [
        "method",
        "seconds a round (machine as it was)",
        "times",
        "bytes up, a client and round",
        "times",
    ]
    assert sheet.rows == [
        ["Plain", "2", "–", "1,000", "–", "400", "–"],
        ["Noisy (times Plain)", "3", "1.50", "1,500", "1.50", "400", "1.00"],
    ]
    told = plain(Told(here, [], []))["rows"]
    assert told[1]["cost"]["up"] == {"mean": 1500.0, "times": 1.5}
    assert told[0]["cost"]["seconds"] == {"mean": 2.0, "times": None}
    assert {number["mute"] for row in told for number in row["numbers"]} == {0}


def test_time_on_another_machine_is_not_compared_but_bytes_are() -> None:
    one, other = costly(attacked(0, 0.6), 2.0, 10.0), costly(attacked(0, 0.6), 1.0, 5.0, processor="other")
    found = costs({0: one}, {0: other})
    assert found["seconds"] == (2.0, None)
    assert found["up"] == (10.0, 2.0)
    assert costs({0: one}, {1: one})["up"] == (10.0, None)  # no seed of both
    assert cells(costs({}, {})) == ["–"] * 6


def test_other_tables_show_no_costs(tmp_path: Path) -> None:
    saved(tmp_path, "plain", [costly(attacked(s, 0.6), 2.0, 1000.0) for s in range(SEEDS)])
    paper = paper_of(tmp_path / "tiny")
    assert not [s for s in sheets_of(paper, page(paper, tmp_path)) if "costs" in s.title]


# ---- curves


def test_a_curve_is_shown_at_a_few_rounds_that_all_have(tmp_path: Path) -> None:
    saved(
        tmp_path, "plain", [curved(attacked(s, 0.6), [None, 0.2, None, 0.4 + s / 10]) for s in range(SEEDS)]
    )
    saved(tmp_path, "noisy", [curved(attacked(s, 0.5), [None, 0.1, 0.7, 0.3]) for s in range(SEEDS)])
    paper = paper_of(tmp_path / "tiny", curves=["ndcg@10", "bacc@gender"])
    sheets = sheets_of(paper, page(paper, tmp_path))
    sheet = named(sheets, "NDCG@10 in validation, by round")
    assert sheet.head == ["method", "2", "4"]
    assert sheet.rows == [["Plain", "0.200", "0.500"], ["Noisy", "0.100", "0.300"]]
    assert named(sheets, "balanced accuracy on gender, by round").rows == sheet.rows
    assert unmeasured(paper, page(paper, tmp_path)) == []


def test_long_curves_are_thinned_and_keep_their_ends() -> None:
    run = curved(attacked(0, 0.6), [k / 100 for k in range(100)])
    rounds = looks([{0: run}], "ndcg@10")
    assert (len(rounds), rounds[0], rounds[-1]) == (8, 1, 100)
    assert at_rounds({0: run}, "ndcg@10", [1, 100]) == [0.0, 0.99]


def test_a_run_that_ends_early_cuts_nobody_else_short() -> None:
    """Its own last value is shown; what it has none of, or one of its seeds, is left empty."""
    long, short = ({0: curved(attacked(0, 0.6), [k / 100 for k in range(n)])} for n in (100, 41))
    rounds = looks([long, short], "ndcg@10")
    assert {1, 41, 100} <= {*rounds}
    assert all(value is not None for value in at_rounds(long, "ndcg@10", rounds))
    assert at_rounds(short, "ndcg@10", [1, 41, 100]) == [0.0, 0.4, None]
    assert at_rounds({0: long[0], 1: short[0]}, "ndcg@10", [41, 100]) == [0.4, None]


def test_the_last_look_of_a_short_run_may_lie_beside_those_of_others() -> None:
    """It then ends at the last round that all looked at, and seeds that end one by one add no column each."""
    long = {0: curved(attacked(0, 0.6), [k / 100 if k % 2 else None for k in range(100)])}
    odd = [0.1 if k % 2 or k == 40 else None for k in range(41)]
    assert {40, 100} <= {*looks([long, {0: curved(attacked(0, 0.6), odd)}], "ndcg@10")}
    ragged = {s: curved(attacked(s, 0.6), [k / 100 for k in range(60 + s)]) for s in range(20)}
    assert len(looks([ragged], "ndcg@10")) <= 9


def test_a_curve_that_nobody_measured_is_one_line(tmp_path: Path) -> None:
    saved(tmp_path, "plain", [attacked(s, 0.6) for s in range(SEEDS)])
    paper = paper_of(tmp_path / "tiny", curves=["bacc@gender"])
    here = page(paper, tmp_path)
    line = "Not measured in these runs: balanced accuracy on gender (round by round)."
    assert unmeasured(paper, here) == [line]
    assert not [sheet for sheet in sheets_of(paper, here) if "by round" in sheet.title]


# ---- several scores, components


def test_every_score_of_a_table_is_a_sheet_with_what_the_paper_prints(tmp_path: Path) -> None:
    saved(tmp_path, "plain", [attacked(s, 0.6) for s in range(SEEDS)])
    paper = paper_of(tmp_path / "tiny", scores=["auc", "macro_f1"], parts=[])
    paper = replace(paper, reported={**paper.reported, "auc": {"metric": "area"}})
    titles = [sheet.title for sheet in sheets_of(paper, page(paper, tmp_path))]
    assert titles == [
        "Gender: AUC of the attack, ζ = 0.3",
        "Gender: macro-F1 of the attack, ζ = 0.3",
        "Usefulness, and what is guaranteed",
    ]
    second = sheets_of(paper, page(paper, tmp_path))[1]
    assert second.rows[0][1:4] == ["0.600 [0.580, 0.620]", "0.700", "−0.100"]


def test_components_are_shown_and_claimed_and_may_be_negative(tmp_path: Path) -> None:
    saved(tmp_path, "plain", [split(attacked(s, 0.6), -0.6 - s / 100) for s in range(SEEDS)])
    saved(tmp_path, "noisy", [split(attacked(s, 0.5), -0.1 - s / 100) for s in range(SEEDS)])
    claim = Claim("plain", more="noisy", attribute="gender")
    paper = paper_of(tmp_path / "tiny", scores=["correction"], parts=[], claims=[claim])
    here = page(paper, tmp_path)
    sheet = sheets_of(paper, here)[0]
    assert sheet.title == "Gender: δ of the true class in the attack, ζ = 0.3"
    assert [row[0] for row in sheet.rows] == ["Plain", "Noisy"]  # nobody guesses a component
    assert sheet.rows[0][1].startswith("−0.610 [−0.7")
    told = check(paper, paper.tables["table1"], claim, "synthetic", FinishedRuns(tmp_path, SEEDS))
    assert told.sentence.startswith(
        "Noisy has a higher δ of the true class than Plain (gender, ζ = 0.3, KNN)"
    )
    assert told.verdict == "yes"


def test_what_an_attacker_has_no_components_of_is_not_measured() -> None:
    what = Quantity("correction", "gender", "custom", "updates/knn")
    assert value_of(attacked(0, 0.6), what) is None
    assert value_of(split(attacked(0, 0.6), -0.4), what) == Measure(-0.4, -0.5, pytest.approx(-0.3))  # type: ignore[arg-type]


def test_only_shares_end_at_zero() -> None:
    some = [Measure(-0.1, -0.2, 0.0), Measure(-0.1, -0.2, 0.0)]
    assert together(some, "auc").low == 0.0
    assert together(some, "correction").low == pytest.approx(-0.2)


def test_a_table_may_have_metrics_of_its_own(tmp_path: Path) -> None:
    saved(tmp_path, "plain", [ranked(attacked(s, 0.6), 0.25) for s in range(SEEDS)])
    paper = paper_of(tmp_path / "tiny", metrics_beside=["ndcg@10"])
    useful = sheets_of(paper, page(paper, tmp_path))[-1]
    assert useful.head[6:9] == ["NDCG@10", "NDCG@10, paper", "NDCG@10, difference"]
    assert useful.rows[0][6].startswith("0.250 [0.2")
    assert paper.metrics == ["hr@10"]


def test_protocols_have_attackers_of_their_own() -> None:
    assert attacks("fedau2-gradients", "iDLG")
    assert attacks("fedau2-gradients", "worst")
    assert not attacks("fedau2", "iDLG")
    assert attacks("fedau2@0.3", "embeddings/mlp-fedau2")
    assert attacks("custom", "anybody")


# ---- two forms of one dataset, two recipes of one file


def test_two_datasets_may_be_forms_of_one(tmp_path: Path) -> None:
    paper = paper_of(tmp_path / "tiny")
    form = Dataset("Synthetic, even", name="synthetic", set=["data.balance=gender"])
    both = replace(paper, datasets={**paper.datasets, "even": form})
    assert both.changes("plain", "even") == ["data.name=synthetic", "data.balance=gender"]
    found = cells_of(both, both.chosen(["table1"]), ["even"], 1, tmp_path / "out")
    assert {(cell.dataset, cell.data) for cell in found} == {("even", "synthetic")}
    assert found[0].folder == tmp_path / "out" / "even" / "plain" / "seed=0"
    knn = Quantity("macro_f1", "gender", "custom", "updates/knn")
    assert reported(both, "table1", "even", "plain", knn) is None


def test_two_recipes_may_share_a_file(tmp_path: Path) -> None:
    text = PAPER.replace(
        "[attributes.gender]",
        '[recipes.guarded]\nfile = "mf.toml"\nset = ["plan.lr=2.0"]\n\n[attributes.gender]',
    ).replace('label = "Noisy"\nrecipe = "mf"', 'label = "Noisy"\nrecipe = "guarded"')
    paper = Paper.load(str(write(tmp_path / "tiny", text)))
    assert paper.changes("noisy", "synthetic")[:2] == ["data.name=synthetic", "plan.lr=2.0"]
    assert paper.recipe("noisy") == paper.recipe("plain")


def test_a_number_that_is_printed_twice_is_one_number(tmp_path: Path) -> None:
    twice = REPORTED + "table1,Synthetic,Plain,,,hit,10,again,0.300\n"
    paper = Paper.load(str(write(tmp_path / "tiny", reported=twice)))
    assert reported(paper, "table1", "synthetic", "plain", Quantity("hr@10")) == 0.3


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ('scores = ["deltas"]', 'tables.table1.scores: there is no "deltas"'),
        ('metrics_beside = ["hit@5"]', 'tables.table1.metrics_beside: there is no "hit"'),
    ],
)
def test_what_means_nothing_in_a_table_is_refused(tmp_path: Path, after: str, expected: str) -> None:
    text = PAPER.replace('parts = ["item"]', f'parts = ["item"]\n{after}')
    with pytest.raises(BadInput, match=expected.replace(".", r"\.")):
        Paper.load(str(write(tmp_path / "tiny", text)))


def test_a_method_is_held_against_one_that_is_there(tmp_path: Path) -> None:
    text = PAPER.replace('note = "made up as well."', 'against = "plane"')
    with pytest.raises(BadInput, match=r'methods\.noisy\.against: there is no "plane"'):
        Paper.load(str(write(tmp_path / "tiny", text)))
