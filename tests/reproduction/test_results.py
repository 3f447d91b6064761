"""``RESULTS.md``: the outcome first, nothing that was not measured, and what is missing in few lines."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.reproduction.tiny import attacked, ranked, shelved, write
from veilrec.metrics.measures import Measure
from veilrec.reproduction.cells import FinishedRuns
from veilrec.reproduction.claims import check
from veilrec.reproduction.contents import Named, Table
from veilrec.reproduction.nearness import HEADING, Printed, line_of, nearness
from veilrec.reproduction.overview import Told, overview
from veilrec.reproduction.paper import Paper
from veilrec.reproduction.results import markdown, marks
from veilrec.reproduction.sheets import sheets_of, unmeasured
from veilrec.reproduction.tables import Page, page_of

World = tuple[Paper, Path]
LESS = "Noisy leaks less gender than Plain (macro-F1, ζ = 0.3, KNN)"


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Plain leaks 0.60, noisy 0.50, on three seeds."""
    return Paper.load(str(write(tmp_path / "tiny"))), shelved(tmp_path / "out")


def changed(world: World, name: str = "table1", **changes: object) -> World:
    """The same runs under another table, and with a second audit that may be asked for."""
    paper, out = world
    table = replace(paper.tables[name], **changes)  # type: ignore[arg-type]
    audits = {**paper.audits, "more": Named("ζ = 0.4")}
    return replace(paper, tables={**paper.tables, name: table}, audits=audits), out


def page(world: World, name: str = "table1", seeds: int = 3) -> Page:
    return page_of(world[0], name, "synthetic", FinishedRuns(world[1], seeds))


def told(world: World) -> list[Told]:
    paper, out = world

    def one(name: str, table: Table) -> Told:
        here = page(world, name)
        claims = [check(paper, table, claim, "synthetic", FinishedRuns(out, 3)) for claim in table.claims]
        return Told(here, sheets_of(paper, here), claims)

    return [one(name, table) for name, table in paper.tables.items()]


def text(world: World, stale: dict[str, str] | None = None) -> str:
    return markdown(world[0], told(world), ["a command"], stale or {})


def titles(world: World) -> list[str]:
    return [sheet.title for sheet in sheets_of(world[0], page(world))]


# ---- the outcome


def test_claims_are_counted_by_dataset(world: World) -> None:
    lines = overview(world[0], told(world))
    assert lines[4] == "Synthetic: 3 yes, 0 no, 1 not told apart, 0 not ranked."
    assert [line.split(": yes")[0] for line in lines if line.startswith("- ")] == [
        f"- {LESS}",
        "- Plain leaks more gender than the best blind guess (macro-F1, ζ = 0.3, KNN)",
        "- Plain recommends better than popularity (Hit@10)",
    ]
    assert "Synthetic, *yes*:" in lines
    assert "Synthetic, *no*:" not in lines


def test_the_same_claim_in_two_tables_is_listed_once(world: World) -> None:
    claims, attack = world[0].tables["table1"].claims, {"audits": ["custom"], "attackers": ["updates/knn"]}
    twice = changed(world, "table2", claims=claims[:1], attributes=["gender"], **attack)
    lines = overview(twice[0], told(twice))
    assert sum(LESS in line for line in lines) == 1
    assert lines[4] == "Synthetic: 3 yes, 0 no, 1 not told apart, 0 not ranked."


def test_leakage_below_popularity_is_counted_as_not_ranked(world: World) -> None:
    run = attacked(0, 0.5)
    low = replace(run, utility=replace(run.utility, collapsed=True))
    low.save(world[1] / "synthetic" / "noisy" / "seed=0")
    lines = overview(world[0], told(world))
    assert lines[4].endswith(": 2 yes, 0 no, 1 not told apart, 1 not ranked.")
    assert not any(LESS in line for line in lines)
    assert "- 1 of the 3 runs of Noisy is below popularity.\n" in text(world)


def test_what_cannot_be_checked_has_a_count_of_its_own(world: World) -> None:
    shutil.rmtree(world[1] / "synthetic" / "noisy")
    lines = overview(world[0], told(world))
    assert lines[4].endswith(": 2 yes, 0 no, 0 not told apart, 0 not ranked, 2 cannot be checked.")


def test_what_does_not_hold_is_listed_apart(world: World) -> None:
    claim = replace(world[0].tables["table1"].claims[0], less="", more="noisy")
    lines = overview((other := changed(world, claims=[claim]))[0], told(other))
    assert lines[4].endswith(": 0 yes, 1 no, 0 not told apart, 0 not ranked.")
    assert lines[lines.index("Synthetic, *no*:") + 2].startswith("- Noisy leaks more gender than Plain")


def test_a_paper_without_claims_has_no_overview(world: World) -> None:
    silent = changed(world, claims=[])
    assert overview(silent[0], told(silent)) == []
    assert "What the paper says" not in text(silent)


def test_the_overview_stands_before_the_tables(world: World) -> None:
    heads = [line for line in text(world).splitlines() if line.startswith("#")]
    assert heads[1:5] == [
        HEADING,
        "## How to read it",
        "## What the paper says, on our numbers",
        "## Synthetic",
    ]


# ---- nothing that was not measured


def test_an_attack_of_which_nothing_was_measured_is_one_line(world: World) -> None:
    absent = changed(world, audits=["more"])
    assert titles(absent) == ["Usefulness, and what is guaranteed"]
    line = "Not measured in these runs: gender (KNN, items, ζ = 0.4)."
    assert unmeasured(absent[0], page(absent)) == [line]
    written = text(absent)
    assert f"### table1 on Synthetic: Two methods\n\n{line}\n\n**Usefulness" in written
    assert "| not measured" not in written


def test_an_attack_of_which_some_was_measured_stays(world: World) -> None:
    for seed in range(3):
        replace(attacked(seed, 0.5), privacy={}).save(world[1] / "synthetic" / "noisy" / f"seed={seed}")
    attack = sheets_of(world[0], page(world))[0]
    assert [row[:3] for row in attack.rows[:2]] == [
        ["Plain", "0.601 [0.581, 0.621]", "0.700"],
        ["Noisy", "not measured", "0.500"],
    ]
    assert unmeasured(world[0], page(world)) == []


def test_scores_that_no_run_has_make_no_sheet(world: World) -> None:
    paper, out = world
    other = replace(paper, beside=["micro_f1"]), out
    assert titles(other) == ["Gender: macro-F1 of the attack, ζ = 0.3", "Usefulness, and what is guaranteed"]


def test_rows_that_nobody_ran_are_named_below(world: World) -> None:
    shutil.rmtree(world[1] / "synthetic" / "noisy")
    shutil.rmtree(world[1] / "synthetic" / "plain" / "seed=1")
    here = page(world)
    for sheet in sheets_of(world[0], here):
        assert [row[0] for row in sheet.rows if row[0] in ("Plain", "Noisy")] == ["Plain"]
    assert marks(world[0], here) == ["Not run on Synthetic: Noisy.", "Plain: without seed 1."]


def test_selected_rounds_stand_below_usefulness_a_seed_each(world: World) -> None:
    shutil.rmtree(world[1] / "synthetic" / "noisy" / "seed=1")
    late = world[1] / "synthetic" / "plain" / "seed=2"
    replace(attacked(2, 0.6), selected=1200, rounds=1200).save(late)
    useful = sheets_of(world[0], page(world))[-1]
    assert useful.note == "Selected rounds, by seed: Plain 5, 5, 1,200; Noisy 5, –, 5."
    assert f" |\n\n{useful.note}\n" in text(world)


def test_a_table_without_runs_says_so(world: World) -> None:
    shutil.rmtree(world[1] / "synthetic")
    assert sheets_of(world[0], page(world)) == []
    written = text(world)
    assert "### table1 on Synthetic: Two methods\n\nNothing was run yet: 6 runs are missing.\n" in written
    assert "\n| Plain" not in written


# ---- sheets that can be read


def with_more(world: World) -> World:
    """Every run was audited twice."""
    for method, value in (("plain", 0.6), ("noisy", 0.5)):
        for seed in range(3):
            run, more = attacked(seed, value), attacked(seed, value + 0.1)
            both = {**run.privacy, "more": more.privacy["custom"]}
            replace(run, privacy=both).save(world[1] / "synthetic" / method / f"seed={seed}")
    return changed(world, audits=["custom", "more"])


def test_several_columns_an_audit_are_a_sheet_an_audit(world: World) -> None:
    both = with_more(world)
    assert titles(both) == [
        "Gender: macro-F1 of the attack, ζ = 0.3",
        "Gender: the same attack by other scores, ζ = 0.3",
        "Gender: macro-F1 of the attack, ζ = 0.4",
        "Gender: the same attack by other scores, ζ = 0.4",
        "Usefulness, and what is guaranteed",
    ]
    first, _, second, *_ = sheets_of(both[0], page(both))
    assert first.head == ["method", "KNN", "paper", "difference", "items", "ε a coordinate"]
    assert second.head == ["method", "KNN", "items", "ε a coordinate"]
    assert second.rows[0][1] == "0.700 [0.680, 0.720]"


def test_one_column_an_audit_is_one_sheet(world: World) -> None:
    paper, out = with_more(world)
    attack = sheets_of(paper, page(changed((paper, out), parts=[])))[0]
    assert attack.title == "Gender: macro-F1 of the attack"
    assert attack.head[1:5] == ["KNN, ζ = 0.3", "paper", "difference", "KNN, ζ = 0.4"]


def test_an_attribute_is_shown_by_its_own_score_and_the_others_beside(world: World) -> None:
    paper, out = world
    named = {"gender": Named("Gender", score="auc")}
    own = replace(paper, attributes=named, beside=["macro_f1", "auc"]), out
    attack, beside, _ = sheets_of(own[0], page(own))
    assert attack.title == "Gender: AUC of the attack, ζ = 0.3"
    assert attack.rows[0][1] == "0.701 [0.601, 0.801]"
    assert beside.head == ["method", "macro-F1: KNN", "macro-F1: items"]
    assert "- The attack is judged by macro-F1, gender by AUC; guesses" in text(own)
    assert "- The attack is judged by macro-F1; guesses" in text(world)


def test_an_attribute_that_a_dataset_does_not_have_is_no_column(world: World) -> None:
    paper, out = world
    named = {**paper.attributes, "age": Named("Age")}
    both = changed((replace(paper, attributes=named), out), attributes=["age", "gender"])
    assert unmeasured(both[0], page(both)) == ["Not measured in these runs: age (KNN, items, ζ = 0.3)."]
    data = {"synthetic": replace(paper.datasets["synthetic"], attributes=["gender"])}
    told = replace(both[0], datasets=data), out
    assert list(page(told).columns) == ["gender"]
    assert unmeasured(told[0], page(told)) == []


def test_a_second_metric_stands_beside_the_first(world: World) -> None:
    paper, out = world
    for seed in range(3):
        ranked(attacked(seed, 0.6), 0.25).save(out / "synthetic" / "plain" / f"seed={seed}")
    figures = [*paper.figures, {"table": "table1", "dataset": "Synthetic", "method": "Plain"}]
    figures[-1] |= {"metric": "ndcg", "k": "10", "value": "0.2"}  # type: ignore[operator]
    columns = {**paper.reported, "ndcg@10": {"metric": "ndcg", "k": "10"}}
    both = replace(paper, metrics_beside=["ndcg@10"], reported=columns, figures=figures), out
    useful = sheets_of(both[0], page(both))[-1]
    assert useful.head[1:9] == [
        "Hit@10",
        "paper",
        "difference",
        "minus popularity",
        "beats popularity",
        "NDCG@10",
        "NDCG@10, paper",
        "NDCG@10, difference",
    ]
    assert useful.rows[0][6].startswith("0.250 [0.2")
    assert useful.rows[0][7:9] == ["0.200", "+0.050"]
    assert useful.rows[1][6:9] == ["not measured", "–", "–"]
    assert useful.rows[-1][:7] == ["popularity", "0.200", "", "", "", "", "0.200"]
    assert {len(row) for row in useful.rows} == {len(useful.head)}


# ---- what is missing


def test_what_is_missing_is_one_line_a_method(world: World) -> None:
    shutil.rmtree(world[1] / "synthetic" / "noisy" / "seed=1")
    stale = {f"synthetic/noisy/seed={seed}": "plan.lr was 1, is 2" for seed in (0, 2)}
    stale["synthetic/plain/seed=0"] = "plan.lr was 3, is 2"
    assert text(world, stale).partition("## What is missing\n\n")[2].splitlines() == [
        "- Synthetic: Noisy: seed 1",
        "- Synthetic: Broken: seeds 0, 1, 2",
        "",
        "Made with other settings or audits than `paper.toml` asks for by now:",
        "",
        "- Synthetic: Noisy, seeds 0, 2: plan.lr was 1, is 2",
        "- Synthetic: Plain, seed 0: plan.lr was 3, is 2",
    ]


def test_rows_that_rest_on_a_verdict_of_before_are_marked(world: World) -> None:
    paper, out = changed(world, attackers=("worst",))
    paper = replace(paper, attackers={**paper.attackers, "worst": Named("worst of all")})
    assert not any("verdict of before" in line for line in marks(paper, page((paper, out))))
    for method in ("plain", "noisy"):
        for seed in range(3):
            run = attacked(seed, 0.5)
            run.privacy["custom"].pop("rule")
            (folder := out / "old" / "synthetic" / method / f"seed={seed}").mkdir(parents=True)
            run.save(folder)
    out = out / "old"
    (told,) = [line for line in marks(paper, page((paper, out))) if "verdict of before" in line]
    assert told.startswith("*Worst of all* is a verdict of before,")
    assert told.endswith("in Plain; Noisy.")


# ---- how near we come


def test_a_table_says_how_near_it_comes(world: World) -> None:
    here = page(world)
    assert line_of("table1", here).startswith("- table1: ")
    pairs = [
        Printed(0.610, Measure(0.604, 0.55, 0.65)),
        Printed(0.700, Measure(0.604, 0.55, 0.65)),
        Printed(0.614, Measure(0.604, 0.604, 0.604)),
        Printed(0.5, None),
    ]
    assert nearness("t", pairs, ["Plain"]) == (
        "- t: 4 printed, 2 within 0.01, 1 inside our interval, 1 not measured here. Not run: Plain."
    )
    assert nearness("t", [], []) == "- t: the paper prints no number."
