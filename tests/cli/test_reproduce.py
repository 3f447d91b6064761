"""``veilrec reproduce``: runs what is missing, shows ours beside theirs, and says what failed."""

from __future__ import annotations

import json
import os
import shutil
import threading
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands import call, tree
from tests.reproduction.tiny import PAPER, RECIPE, write
from tests.results import result
from tests.together import together
from veilrec.base.locks import locked
from veilrec.base.plain import grab
from veilrec.cli import reproduce
from veilrec.errors import BadInput, Interrupted, InUse
from veilrec.recipe import Recipe
from veilrec.reproduction.cells import PaperCell, other_settings
from veilrec.reproduction.popularity import floor_of
from veilrec.reproduction.running import run_apart, run_here
from veilrec.result import Result


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny paper, and all runs of its first table with two seeds."""
    from veilrec.cli import main

    place = tmp_path_factory.mktemp("reproduce")
    write(place / "tiny")
    arguments = ["reproduce", place / "tiny", "table1", "--seeds", "2", "--out", place / "out", "--quiet"]
    assert main([str(argument) for argument in arguments]) == 0
    return place


def stamps(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("[!.]*") if path.is_file()}


def test_finished_runs_are_not_run_again(done: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = stamps(done / "out")
    answer = call(capsys, "reproduce", done / "tiny", "table1", "--seeds", "2", "--out", done / "out")
    assert answer.code == 0
    assert "4 runs: 4 finished, 0 to run" in answer.err
    assert stamps(done / "out") == before


def test_a_table_shows_ours_theirs_and_the_floors(done: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = call(capsys, "reproduce", done / "tiny", "table1", "--seeds", "2", "--out", done / "out", "-q")
    for expected in (
        "table1 on Synthetic: Two methods",
        "Gender: macro-F1 of the attack, ζ = 0.3",
        "ε a coordinate",
        "0.700",
        "guess: always",
        "minus popularity",
        "ε an upload",
        "Noisy leaks less gender than Plain (macro-F1, ζ = 0.3, KNN): ",
        "Noisy: made up as well.",
    ):
        assert expected in answer.out, expected
    assert "\x1b" not in answer.out


def test_json_has_every_number(done: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["table1", "--seeds", "2", "--out", done / "out", "--json", "-q", "--no-run"]
    answer = call(capsys, "reproduce", done / "tiny", *arguments)
    table = json.loads(answer.out)["tables"][0]
    plain, noisy = table["rows"]
    assert plain["seeds"] == noisy["seeds"] == [0, 1]
    attack = next(n for n in plain["numbers"] if n["attacker"] and n["score"] == "macro_f1")
    mean = [
        json.loads((done / "out" / "synthetic" / "plain" / f"seed={s}" / "result.json").read_text())[
            "privacy"
        ]
        for s in (0, 1)
    ]
    each = [
        one["custom"]["attributes"]["gender"]["attackers"][0]["scores"]["macro_f1"]["value"] for one in mean
    ]
    assert attack["ours"]["value"] == pytest.approx(sum(each) / 2)
    assert attack["difference"] == pytest.approx(sum(each) / 2 - 0.7)
    assert attack["ours"]["low"] <= attack["ours"]["value"] <= attack["ours"]["high"]
    assert noisy["ledger"][0].startswith("values are differentially private")
    assert [claim["seeds"] for claim in table["claims"]] == [2, 2, 2, 2]
    assert table["missing"] == []


def test_popularity_is_paired_by_user(done: Path) -> None:
    """The kept floor is that of the runs, on the resamples by which runs are resampled."""
    kept = json.loads((done / "out" / "synthetic" / "popularity.json").read_text())
    run = json.loads((done / "out" / "synthetic" / "plain" / "seed=0" / "result.json").read_text())
    assert kept["value"] == run["utility"]["floor"]["hr@10"]
    assert len(kept["replicates"]) == len(run["utility_replicates"]["hr@10"])
    assert sum(kept["replicates"]) / len(kept["replicates"]) == pytest.approx(kept["value"], abs=0.02)
    assert {"hr@10", *kept["beside"]} == set(run["utility"]["test"]) == set(run["utility_replicates"])
    result = Result.load(done / "out" / "synthetic" / "plain" / "seed=0")
    other = floor_of(done / "out" / "synthetic", result, "ndcg@10")
    assert other is not None
    assert other.value == result.utility.floor["ndcg@10"]
    assert list(other.replicates) == kept["beside"]["ndcg@10"]["replicates"]


def test_missing_runs_are_shown_as_missing(done: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = done / "RESULTS.md"
    arguments = ["all", "--seeds", "3", "--out", done / "out", "-q", "--no-run", "--results", target]
    answer = call(capsys, "reproduce", done / "tiny", *arguments)
    assert answer.code == 0
    text = target.read_text(encoding="utf-8")
    assert "| Broken" not in text
    assert "- Not run on Synthetic: Broken.\n" in text
    assert "2 of 3" in text
    assert "- Plain: without seed 2.\n" in text
    lines = ["- Synthetic: Plain: seed 2", "- Synthetic: Noisy: seed 2", "- Synthetic: Broken: seeds 0, 1, 2"]
    assert text.endswith("\n".join(["## What is missing", "", *lines, ""]))
    assert "Not run on Synthetic: Broken." in answer.out
    assert "veilrec reproduce tiny all --dataset synthetic --seeds 3\n" in text
    call(capsys, "reproduce", done / "tiny", *arguments, "--no-extra")
    assert "veilrec reproduce tiny all --dataset synthetic --seeds 3 --no-extra\n" in target.read_text(
        "utf-8"
    )
    assert "- All of it is made up." in text
    assert str(done) not in text


def test_results_are_the_same_again(done: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = []
    for name in ("one.md", "two.md"):
        arguments = [
            "table1",
            "--seeds",
            "2",
            "--out",
            done / "out",
            "-q",
            "--no-run",
            "--results",
            done / name,
        ]
        call(capsys, "reproduce", done / "tiny", *arguments)
        texts.append((done / name).read_bytes())
    assert texts[0] == texts[1]


def test_a_run_that_was_stopped_goes_on(
    done: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped by a bug after training, the same command finishes it to the same numbers."""
    from veilrec.lab.examiner import Examiner

    def failing(self: Examiner, *arguments: object) -> None:
        raise RuntimeError("planted")

    arguments = ["table1", "--seeds", "1", "--only", "plain", "--out", tmp_path / "out", "-q"]
    with monkeypatch.context() as patch:
        patch.setattr(Examiner, "examine", failing)
        answer = call(capsys, "reproduce", done / "tiny", *arguments)
    assert answer.code == 1
    assert "synthetic/plain/seed=0 failed (code 1)" in answer.err
    assert "RuntimeError: planted" in answer.err
    plan = call(capsys, "reproduce", done / "tiny", *arguments, "--plan", "--json")
    assert [cell["state"] for cell in json.loads(plan.out)] == ["begun"]
    assert call(capsys, "reproduce", done / "tiny", *arguments).code == 0
    whole, again = (
        json.loads((place / "out" / "synthetic" / "plain" / "seed=0" / "result.json").read_text())
        for place in (done, tmp_path)
    )
    assert whole["utility"] == again["utility"]
    assert whole["fingerprint"] == again["fingerprint"]


def test_one_that_fails_loses_no_other(
    done: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["table2", "--seeds", "1", "--out", tmp_path / "out"]
    answer = call(capsys, "reproduce", done / "tiny", *arguments)
    assert answer.code == 2
    assert 'defence.0.name=nothing: no defence "nothing"' in answer.err
    assert answer.err.splitlines()[-1] == "veilrec: error: 1 runs failed; the same command tries them again"
    assert (tmp_path / "out" / "synthetic" / "plain" / "seed=0" / "result.json").is_file()
    assert "Broken" in answer.out


@pytest.mark.parametrize("jobs", ["1", pytest.param("2", marks=pytest.mark.slow)])
def test_light_runs_are_their_results(
    done: Path, tmp_path: Path, jobs: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["table1", "--seeds", "1", "--only", "plain", "--jobs", jobs, "--out", tmp_path / "out"]
    first = call(capsys, "reproduce", done / "tiny", *arguments, "--light")
    assert first.code == 0, first.err
    kept = {path.name for path in (tmp_path / "out" / "synthetic" / "plain" / "seed=0").iterdir()}
    kept -= {".checked.json"}  # whoever reads a run of another process remembers what was checked
    assert kept == {"manifest.json", "metrics.jsonl", "recipe.toml", "result.json", "timing.jsonl"}
    again = call(capsys, "reproduce", done / "tiny", *arguments)
    assert "1 runs: 1 finished, 0 to run" in again.err
    assert again.out == first.out


@pytest.mark.slow
def test_processes_give_the_same_bits(done: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["table1", "--seeds", "1", "--jobs", "2", "--out", tmp_path / "out"]
    answer = call(capsys, "reproduce", done / "tiny", *arguments)
    assert answer.code == 0, answer.err
    assert "synthetic/plain/seed=0: finished; " in answer.err
    for method in ("plain", "noisy"):
        one, other = (place / "out" / "synthetic" / method / "seed=0" for place in (done, tmp_path))
        assert (one / "metrics.jsonl").read_bytes() == (other / "metrics.jsonl").read_bytes()
    assert not list((tmp_path / "out").rglob("*.log"))


@pytest.mark.slow
def test_a_process_that_fails_is_told_with_its_last_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The learning rate is one that only training finds out about."""
    write(tmp_path / "tiny")
    (tmp_path / "tiny" / "mf.toml").write_text(RECIPE.replace("lr = 1.0", "lr = 1e30"))
    arguments = ["table1", "--seeds", "1", "--only", "plain", "--jobs", "2", "--out", tmp_path / "out"]
    answer = call(capsys, "reproduce", tmp_path / "tiny", *arguments)
    assert answer.code == 2
    assert "synthetic/plain/seed=0: failed; " in answer.err
    assert "lower the learning rate" in answer.err
    assert (tmp_path / "out" / "synthetic" / "plain" / "seed=0.log").is_file()


def test_other_settings_are_told(done: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A number of an old recipe stays in the table, with what has changed since."""
    changed = PAPER.replace('"plan.cohort=0.9"', '"plan.cohort=0.8"')
    folder = write(tmp_path / "tiny", changed)
    answer = call(
        capsys, "reproduce", folder, "table1", "--seeds", "2", "--out", done / "out", "-q", "--no-run"
    )
    assert answer.code == 0
    said = " ".join(answer.out.split())
    assert "plain/seed=0 was made with other settings" in said
    assert "plan.cohort was 0.9, is 0.8" in said


@pytest.mark.parametrize(
    ("was", "sets", "told"),
    [
        ({}, [], []),
        ({"lr": None}, [], []),  # a default that the run did not know of
        ({"lr": None}, ["plan.lr=0.7"], ["plan.lr was nothing, is 0.7"]),
        (
            {"lr": 1.0},
            ["plan.lr={item = 1.0}"],
            ["plan.lr.item was nothing, is 1.0", "plan.lr was 1.0, is nothing"],
        ),
        (
            {"lr": {"item": 1.0, "default": 2.0}},
            ["plan.lr={item = 1.0}"],
            ["plan.lr.default was 2.0, is nothing"],
        ),
        (
            {"lr": {"item": 1.0}, "gone": 3},
            ["plan.lr={item = 1.0}"],
            [],
        ),  # what no recipe can ask for any more
        ({"chunk": 7, "lr": None}, ["plan.chunk=9"], []),  # changes no number
    ],
    ids=str,
)
def test_what_an_old_run_does_not_know_counts_where_it_is_asked_for(
    tmp_path: Path, was: dict[str, Any], sets: list[str], told: list[str]
) -> None:
    file = tmp_path / "a.toml"
    file.write_text(RECIPE.replace("lr = 1.0\n", ""), encoding="utf-8")
    cell = PaperCell("synthetic", "synthetic", "plain", 0, file, tuple(sets), tmp_path)
    settings = Recipe.load(file).values
    plan = {key: value for key, value in {**settings["plan"], **was}.items() if value is not None}
    old = replace(result(None, 0), settings={**settings, "plan": plan})
    assert other_settings(cell, old) == told


def test_an_audit_that_is_asked_for_by_now_is_told(
    done: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = PAPER.replace('"plan.cohort=0.9"', """"plan.cohort=0.9", 'threat.also=["apm"]\'""")
    folder, target = write(tmp_path / "tiny", asked), tmp_path / "RESULTS.md"
    shutil.copytree(done / "out", tmp_path / "out")
    table = ["reproduce", folder, "table1", "--seeds", "1", "--out", tmp_path / "out", "-q", "--no-run"]
    answer = call(capsys, *table, "--results", target)
    assert "audit apm was not made" in " ".join(answer.out.split())
    text = target.read_text(encoding="utf-8")
    assert "- Synthetic: Noisy, seed 0: audit apm was not made\n" in text
    place = tmp_path / "out" / "synthetic" / "plain" / "seed=0"
    one = Result.load(place)
    replace(one, privacy={**one.privacy, "apm": {"threat": {"known": 0.4}, "attributes": {}}}).save(place)
    assert json.loads(call(capsys, *table, "--json").out)["other_settings"] == {
        "synthetic/plain/seed=0": "known of audit apm was 0.4, is 0.1",
        "synthetic/noisy/seed=0": "audit apm was not made",
    }


def test_a_table_of_another_dataset_is_left_out_of_all(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = call(capsys, "reproduce", "apm", "all", "--dataset", "ml-1m", "--plan", "--json")
    assert answer.code == 0
    runs = {Path(cell["run"]).parent.name for cell in json.loads(answer.out)}
    assert "pure" in runs
    assert "ours-16" not in runs  # of figure 7 alone


def test_a_plan_writes_nothing(done: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = tree(tmp_path)
    arguments = ["table1", "--seeds", "1", "--out", tmp_path / "out", "--plan"]
    answer = call(capsys, "reproduce", done / "tiny", *arguments)
    assert answer.code == 0
    assert "2 runs, 0 finished." in answer.out
    assert "defence.0.name=laplace" in answer.out
    assert tree(tmp_path) == before


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["apx", "table1"], 'PAPER: no paper "apx"; did you mean "apm"?'),
        (["apm", "tabel2"], 'TABLE: apm has no "tabel2"; did you mean "table2"?'),
        (["apm"], "TABLE: none is named; choose of: fig2, fig4"),
        (["apm", "table2", "--dataset", "ml-10"], '--dataset: apm has no "ml-10"; did you mean "ml-100k"?'),
        (["apm", "table2", "--only", "purr"], '--only: apm has no "purr"; did you mean "pure"?'),
        (["apm", "fig7", "--dataset", "ml-1m"], "--dataset: fig7 is not on ml-1m; choose of: ml-100k"),
        (["apm", "table3", "--only", "pure"], '--only: "pure" is no row of table3 here'),
        (["apm", "fig4", "--only", "pure-no-private", "--no-extra"], '--only: "pure-no-private" is no row'),
        (["apm", "table2", "--seeds", "0"], "Invalid value for '--seeds'"),
        (["apm", "table2", "--device", "tpu"], '--device: "tpu" is no device'),
    ],
)
def test_wrong_names_get_one_line(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    expected: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = call(capsys, "reproduce", *arguments)
    assert answer.code == 2
    assert answer.err.startswith(f"veilrec: error: {expected}")
    assert answer.err.count("\n") == 1
    assert tree(tmp_path) == {}


def test_papers_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    answer = call(capsys, "list", "papers")
    assert answer.code == 0
    assert "apm" in answer.out
    found = {entry["name"]: entry for entry in json.loads(call(capsys, "list", "papers", "--json").out)}
    assert "table2" in found["apm"]["tables"]


def test_data_that_is_not_there_is_said_once_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("VEILREC_DATA_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    code, _, err = call(capsys, "reproduce", "apm", "table3", "--data-dir", str(tmp_path / "none"))
    assert code == 2
    assert err.startswith("veilrec: error: ml-100k: not found in ")
    assert err.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_who_writes_the_results_last_has_looked_last(
    done: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One looks, another has a run more and writes, and then the first one writes."""
    results, begun, written = tmp_path / "RESULTS.md", threading.Event(), threading.Event()
    told = iter(("what there was", "and one more"))

    def look(*given: Any, **options: Any) -> str:
        found = next(told)
        if found == "what there was":
            begun.set()
            written.wait(0.3)  # the other one is through by then, if nothing keeps it
        return found

    def write_down(paper: Any, found: Any, path: Path, *rest: Any) -> None:
        path.write_text(found, encoding="utf-8")

    monkeypatch.setattr(reproduce, "_told", look)
    monkeypatch.setattr(reproduce, "_write", write_down)
    monkeypatch.setattr(reproduce, "_show", lambda *given: None)
    again = partial(
        reproduce.reproduce, str(done / "tiny"), ["table1"], out=done / "out", no_run=True, results=results
    )

    def later() -> None:
        begun.wait(30)
        again()
        written.set()

    together(again, later)
    assert results.read_text(encoding="utf-8") == "and one more"


@pytest.mark.skipif(os.name != "posix", reason="needs links")
def test_a_link_is_no_place_for_results_and_that_is_said_first(
    done: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "precious").write_text("years of work", encoding="utf-8")
    (tmp_path / "RESULTS.md").symlink_to("precious")
    told = ["--results", tmp_path / "RESULTS.md", "--out", tmp_path / "out"]
    answer = call(capsys, "reproduce", done / "tiny", "table1", *told)
    assert answer.code == 2
    assert "RESULTS.md: is a link, no plain file" in answer.err
    assert (tmp_path / "precious").read_text(encoding="utf-8") == "years of work"
    assert not (tmp_path / "out").exists()


def test_what_a_crash_cut_off_behind_the_commit_of_a_run_is_completed(
    done: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(done / "out", tmp_path / "out")
    run, other = sorted(path.parent for path in (tmp_path / "out").rglob("manifest.json"))[:2]
    before = tree(tmp_path / "out")
    (run / "result.json").rename(run / "result.json.g1")
    (run / "lock").write_text("4194304\n")
    (run / "transcript" / "r000001").mkdir(parents=True)
    (run / "transcript" / "r000001" / "0").write_bytes(b"an upload")
    (tmp_path / "out" / "synthetic" / ".popularity.json.lock").write_text("4194304\n")
    with locked(other):  # whoever is at it cleans up
        (other / "transcript").mkdir()
        arguments = ["reproduce", done / "tiny", "table1", "--seeds", "2", "--out", tmp_path / "out"]
        assert call(capsys, *arguments, "--quiet").code == 0
        assert (other / "transcript").is_dir()
    assert call(capsys, *arguments, "--quiet").code == 0
    assert tree(tmp_path / "out") == before


@pytest.mark.skipif(os.name != "posix", reason="needs links")
@pytest.mark.parametrize("name", ["", "m", "m/seed=0"])
def test_a_cell_lies_in_no_folder_behind_a_link(name: str, tmp_path: Path) -> None:
    (tmp_path / "elsewhere" / "m" / "seed=0").mkdir(parents=True)
    cell = PaperCell("d", "d", "m", 0, tmp_path / "x.toml", (), tmp_path / "out" / "d" / "m" / "seed=0")
    link = tmp_path / "out" / "d" / name
    link.parent.mkdir(parents=True)
    link.symlink_to(tmp_path / "elsewhere" / name)
    with pytest.raises(BadInput, match="is a link, no folder"):
        cell.check_place()


def test_what_somebody_else_runs_comes_last_and_is_waited_for(tmp_path: Path) -> None:
    """Two callers of the same cells: each begins with what is free, and no cell is lost to either."""
    cells = [PaperCell("d", "d", "m", seed, tmp_path / "x.toml", (), tmp_path / f"{seed}") for seed in (0, 1)]
    cells[0].folder.mkdir()
    ran: list[int] = []
    with ExitStack() as held:
        held.enter_context(locked(cells[0].folder))

        def free(text: str) -> None:
            assert f"d/m/seed=0: pid {os.getpid()} runs it" in text
            held.close()

        def run(cell: PaperCell) -> None:
            ran.append(cell.seed)
            if ran == [1]:  # somebody was faster
                raise InUse(cell.folder, "locked by pid 1")

        assert run_here(cells, run, free) == []
    assert ran == [1, 1, 0]


def test_who_waits_does_not_do_so_for_ever(tmp_path: Path) -> None:
    cell = PaperCell("d", "d", "m", 0, tmp_path / "x.toml", (), tmp_path)

    def run(cell: PaperCell) -> None:
        with locked(cell.folder):
            raise AssertionError("it was held")

    with locked(tmp_path):
        (failure,) = run_here([cell], run, print, patience=0.0)
    assert failure.code == 2
    assert f"locked by pid {os.getpid()}" in failure.said


def test_two_processes_do_not_run_one_cell(tmp_path: Path) -> None:
    """The log of a cell is held by whoever runs it."""
    cell = PaperCell("d", "d", "m", 0, tmp_path / "x.toml", (), tmp_path / "out" / "seed=0")
    cell.folder.parent.mkdir()
    log = cell.folder.with_name("seed=0.log")
    log.write_text("at work", encoding="utf-8")
    with log.open("rb") as held:
        assert grab(held.fileno())
        failures = run_apart([cell], 1, lambda cell: ["list"], lambda text: None, patience=0.0)
    assert [(one.code, one.said) for one in failures] == [(2, "another process runs it")]
    assert log.read_text(encoding="utf-8") == "at work"


def test_a_stop_says_how_it_goes_on(tmp_path: Path) -> None:
    """By the same command: `veilrec reproduce` has no --resume (B6)."""

    def stopped(cell: PaperCell) -> None:
        raise Interrupted("stopped after round 187; continue with --resume")

    cell = PaperCell("d", "d", "m", 0, tmp_path / "x.toml", (), tmp_path / "0")
    said = "d/m/seed=0: stopped after round 187; the same command goes on where it was$"
    with pytest.raises(Interrupted, match=said):
        run_here([cell], stopped, print)
