"""The page of a receipt shows what the receipt says, to people, and runs nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands import call
from tests.report.hostile import PAYLOADS
from tests.results import result
from veilrec.errors import Corrupted
from veilrec.report.receipts.page import receipt_page
from veilrec.report.receipts.rows import Bar, pairs


def look(value: float, leaning: str = "above", **more: Any) -> dict[str, Any]:
    area = {"value": value, "low": value - 0.05, "high": value + 0.05}
    floor = {"floor": 0.52, "floor_high": 0.56, "attacker": "qda", "known_users": 20, "targets": 80}
    return {"auc": area, "leaning": leaning, "families": {"qda": value, "mlp": 0.5}, **floor, **more}


def receipt(name: str = "gender", **more: Any) -> dict[str, Any]:
    entry = {
        "classes": ["f", "m"],
        "counts": [40, 60],
        "vectors": [{"known": 0.2, "before": look(0.8), "after": look(0.3, "below")}],
        "requesters": {"before": look(0.8), "naive": look(0.51, "none"), "adaptive": {"missing": "too few"}},
        "lists": [
            {"lists": "unseen", "known": "others", "length": 50, "before": look(0.7), "after": look(0.65)}
        ],
        "difference": {"known": 0.2, "former": look(0.8), "both": look(1.0)},
        "history": {"known": 0.8, **look(0.77)},
        "later": [{"rounds": 5, "known": 0.8, **look(0.6)}],
        "sentences": ["a", "b"],
    }
    cost = {"value": 0.1, "low": 0.0, "high": 0.2}
    told: dict[str, Any] = {
        "kind": "receipt",
        "conclusion": ["The vectors still tell gender.", "The lists do too."],
        "is_not": ["This is no deletion of data under any law."],
        "for_release": False,
        "asked": {"attributes": [name], "users": 10, "of": 100, "at": "2026-01-02"},
        "done": {
            "eraser": {"name": "Lethe", "parts": [], "lots": "keyed"},
            "vectors": {"before": "sha256:aa", "after": "b"},
        },
        "model": {"users.safetensors": {"before": "cc", "after": "dd"}},
        "purged": ["checkpoint/state-1.safetensors"],
        "attributes": {name: entry},
        "who_asked": {"known": 0.8, "before": look(0.5, "none"), "after": look(0.95)},
        "usefulness": {"ndcg@10": {"before": cost, "after": cost, "difference": cost, "users": 99}},
        "by_chance": "5 looks at what is left.",
        "how": {"families": ["qda"], "seed": 0},
    }
    return {**told, **more}


def plain(page: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page.partition("<body")[2]))


def test_the_conclusion_comes_first_and_everything_that_was_done_is_there() -> None:
    text = plain(receipt_page(receipt(), "x"))
    assert text.index("The vectors still tell gender.") < text.index("gender, before and after")
    for said in (
        "Not for release",
        "10 of 100 users asked",
        "by Lethe",
        "state-1.safetensors",
        "sha256:aa",
        "dd",
    ):
        assert said in text
    assert "no deletion of data under any law" in text
    assert "turned round" in text
    assert "5 looks at what is left." in text
    assert "too few" in text
    assert "+0.1000 [+0.0000, +0.2000]" in text
    assert "Lethe, lots keyed" in text
    assert "Can it be told who asked? " in text


def test_a_bar_is_how_often_two_users_are_told_apart_by_answers_turned_where_they_must_be() -> None:
    below = Bar(look(0.3, "below"), "after")
    assert (below.times, below.wide, below.turned, below.ends) == ("70", "40.0", True, ("30.0", "50.0"))
    luck = Bar(look(0.51, "none"), "after")
    assert (luck.times, luck.leaks, luck.floor) == ("51", False, "12.0")
    assert luck.ends == ("0.0", "12.0")  # the interval of a distance begins at none
    assert Bar({"missing": "why"}, "after").times == "–"
    told = list(pairs(receipt()["attributes"]["gender"]))
    assert [one.name for one in told if not one.after.measured] == [
        "Those who asked, by who first erases all others"
    ]
    assert len(told) == 6


def test_a_receipt_without_measurements_is_a_page_that_says_so() -> None:
    bare = {
        "asked": {"attributes": ["gender"], "users": "all"},
        "done": {"changed": 3},
        "notes": ["copies are out"],
    }
    text = plain(receipt_page(bare, "x"))
    assert "was not measured" in text
    assert "all users asked" in text
    assert "copies are out" in text


def test_usefulness_of_ten_items_is_shown_and_the_rest_folded() -> None:
    cost = {"value": 0.1, "low": 0.0, "high": 0.2}
    entry = {"before": cost, "after": cost, "difference": cost, "users": 99}
    page = receipt_page(receipt(usefulness={"hr@5": entry, "hr@10": entry}), "x")
    assert page.index("hr@10") < page.index("By other metrics") < page.index("hr@5")
    assert "By other metrics" not in receipt_page(receipt(usefulness={"hr@5": entry}), "x")


def test_a_receipt_that_keeps_no_counts_is_a_page() -> None:
    """A run that was changed on request does not say how many users of each class there were."""
    told = receipt()
    del told["attributes"]["gender"]["counts"]
    assert "Users by class" in plain(receipt_page(receipt(), "x"))
    assert "Users by class" not in plain(receipt_page(told, "x"))


@pytest.mark.parametrize("payload", PAYLOADS[:12])
def test_whatever_a_receipt_says_is_text(payload: str) -> None:
    page = receipt_page(receipt(payload, purged=[payload], conclusion=[payload]), "x", payload)
    assert payload not in page
    assert "<script" not in page.lower()
    assert "http" not in page.replace("http-equiv", "")  # nothing is loaded


@pytest.mark.parametrize("wrong", [{"attributes": {"gender": 3}}, {"done": 5}, {"asked": {}}, {"model": [1]}])
def test_a_receipt_that_cannot_be_read_is_said_to_be_damaged(wrong: dict[str, Any]) -> None:
    with pytest.raises(Corrupted, match="cannot be read"):
        receipt_page(receipt(**wrong), "receipt.json")


def test_the_command_makes_a_page_of_a_receipt(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = tmp_path / "receipt.json", tmp_path / "page.html"
    path.write_text(json.dumps(receipt()), encoding="utf-8")
    answer = call(capsys, "report", path, "-o", out, "--title", "Asked by two")
    assert (answer.code, answer.err) == (0, "")
    assert "<h1>Asked by two</h1>" in out.read_text(encoding="utf-8")
    for more, says in (
        ((path,), "a page of its own"),
        (("--csv", tmp_path / "x"), "--csv"),
        (("-o", path), "itself"),
    ):
        answer = call(capsys, "report", path, *more)
        assert (answer.code, says in answer.err) == (2, True)
    assert json.loads(path.read_text(encoding="utf-8")) == receipt()


def test_a_runs_report_has_the_receipt_that_lies_in_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, out = tmp_path / "run", tmp_path / "page.html"
    run.mkdir()
    result().save(run)
    assert call(capsys, "report", run, "-o", out).code == 0
    assert "Erased on request" not in out.read_text(encoding="utf-8")
    (run / "receipt.json").write_text(json.dumps(receipt("<b>gender")), encoding="utf-8")
    assert call(capsys, "report", run, "-o", out).code == 0
    page = out.read_text(encoding="utf-8")
    assert "Erased on request" in page
    assert "no deletion of data under any law" in page
    assert "<b>gender" not in page
    assert page.count('id="r0who"') == 1
