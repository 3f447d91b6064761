"""``veilrec demo``: no arguments, no data, no network."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from tests.cli.commands import call, tree
from veilrec.cli import demo


@pytest.fixture(autouse=True)
def _short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A demo of a few rounds, in an empty place, without a network."""

    def refuse(*arguments: object) -> None:
        raise AssertionError("the demo opened a socket")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VEILREC_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setitem(demo.BASE, "plan", {**demo.BASE["plan"], "rounds": 2, "cohort": 0.1})
    monkeypatch.setitem(demo.BASE, "data", {"name": "synthetic", "users": 60})
    threat = {**demo.BASE["threat"], "resamples": 100, "permutations": 99, "by_part": False}
    monkeypatch.setitem(demo.BASE, "threat", threat)
    quick = {"name": "AttributeInference", "reads": "profile", "classifiers": ["lda", "knn"]}
    monkeypatch.setitem(demo.BASE, "attack", [quick])


@pytest.fixture
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A demo of one run."""
    monkeypatch.setattr(demo, "DEFENCES", {"undefended": [{"name": "none"}]})


def test_it_shows_usefulness_leakage_a_list_and_commands_that_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = call(capsys, "demo", "--quiet")
    assert answer.code == 0, answer.err
    told = ("60 people", "popularity", "laplace", "EarlyStop", "gender (AUC)", "region (AUC)")
    for said in (*told, "Whether a user touched an item", "hr@10", "u0042", "Try next:", "report.html"):
        assert said in answer.out
    assert "ndcg@" not in answer.out
    assert "Nothing is said of" not in answer.out
    folder = tmp_path / "runs" / "demo"
    assert {path.name for path in folder.iterdir()} == {"report.html", *demo.DEFENCES}
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "veilrec demo" in page
    assert "early-stop" in page
    proposed = [line.split()[1:] for line in answer.out.splitlines() if "  veilrec " in line]
    assert len(proposed) >= 3
    for arguments in proposed:
        assert call(capsys, *arguments).code == 0, arguments


@pytest.mark.usefixtures("_alone")
def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    results = json.loads(call(capsys, "demo", "-q", "--json").out)
    assert results["undefended"]["utility"]["floor"]["hr@10"] > 0


@pytest.mark.usefixtures("_alone")
def test_an_earlier_demo_is_shown_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "runs" / "demo"
    first = call(capsys, "demo", "-q")
    assert first.code == 0
    (folder / "mine.txt").write_text("keep me")
    before = tree(folder)
    assert call(capsys, "demo", "-q").out == first.out
    assert tree(folder) == before


@pytest.mark.usefixtures("_alone")
def test_what_is_no_demo_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "runs" / "demo" / "undefended"
    place.mkdir(parents=True)
    (place / "thing").write_text("x")
    answer = call(capsys, "demo", "-q")
    assert answer.code == 2
    assert "not a run" in answer.err
    assert [path.name for path in place.iterdir()] == ["thing"]
