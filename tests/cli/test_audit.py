"""``veilrec audit``: a planted leak is found in anyone's vectors, a coin is not, and wrong input is told."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from tests.cli.commands import Answer, call, tree
from veilrec.base import tensors

USERS = 160
QUICK = ("--classifier", "logistic", "--seeds", "2", "--quiet")
RANDOM = np.random.default_rng(5)
IDS = [f"user-{k:03}" for k in range(USERS)]
SEX = RANDOM.integers(0, 2, USERS)
AGE = RANDOM.uniform(18, 80, USERS).round(1)
COIN = RANDOM.integers(0, 2, USERS)
VECTORS = RANDOM.normal(size=(USERS, 6)).astype(np.float32)
VECTORS[:, 2] += 6.0 * SEX
VECTORS[:, 4] += 0.2 * AGE.astype(np.float32)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Vectors in every format, and a file about the users in another order."""
    monkeypatch.chdir(tmp_path)
    frame = pd.DataFrame(VECTORS, columns=[f"e{k}" for k in range(6)])
    frame.insert(0, "user_id", IDS)
    frame.to_csv("v.csv", index=False)
    frame.to_parquet("v.parquet")
    np.save("v.npy", VECTORS)
    (tmp_path / "ids.txt").write_text("\n".join(IDS))
    tensors.write(tmp_path / "v.safetensors", {"a": torch.from_numpy(VECTORS), "b": torch.zeros(3, 6)})
    people = pd.DataFrame({"user_id": IDS, "sex": np.where(SEX, "male", "female"), "age": AGE, "coin": COIN})
    people.sort_values("age").to_csv("users.csv", index=False)
    return tmp_path


def audit(capsys: pytest.CaptureFixture[str], *arguments: str) -> Answer:
    return call(capsys, "audit", *arguments, "--attributes", "users.csv")


def test_a_leak_is_found_and_told(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = audit(capsys, "v.csv", "--continuous", "age", *QUICK)
    assert answer.code == 0, answer.err
    said = " ".join(answer.out.split())
    for expected in (
        "v.csv: 160 users with a vector of 6 numbers",
        "one vector of every user, and nothing else; 20 % of the users known, drawn 2 times",
        "embeddings/logistic",
        "An attacker who sees the user vectors guesses sex right for",
        "always guessing",
        "guesses age to within",
        "only one family of attackers",
    ):
        assert expected in said, expected
    assert answer.err == ""


def test_all_formats_give_the_same_findings(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever the order of the rows, and whatever they were written as."""
    found = []
    for arguments in (
        ["v.csv"],
        ["v.parquet"],
        ["v.npy", "--ids", "ids.txt", "--id", "user_id"],
        ["v.safetensors", "--tensor", "a", "--ids", "ids.txt"],
    ):
        answer = audit(capsys, *arguments, "--attribute", "sex", "--json", *QUICK)
        assert answer.code == 0, answer.err
        entry = json.loads(answer.out)["audit"]["attributes"]["sex"]
        found.append([(one["name"], one["scores"], one["p"]) for one in entry["attackers"]])
    assert found[0][0][1]["auc"]["value"] > 0.95
    assert all(one == found[0] for one in found[1:])


def test_what_the_vectors_hold_beside_features_is_said(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = pd.DataFrame(VECTORS, columns=[f"e{k}" for k in range(6)]).assign(e1=1.5, answer=SEX, user_id=IDS)
    frame.loc[:19, "e0":"e5"] = frame.loc[100:119, "e0":"e5"].to_numpy()
    frame.to_csv("v.csv", index=False)
    answer = audit(capsys, "v.csv", "--attribute", "sex", *QUICK)
    said = " ".join(answer.out.split())
    assert answer.code == 0, answer.err
    assert 'Before you believe it: Column "e1" of 7 says the same of everybody' in said
    assert 'Before you believe it: Column "answer" is sex itself' in said
    kept = json.loads(audit(capsys, "v.csv", "--attribute", "sex", "--json", *QUICK).out)["audit"]
    assert [one["kind"] for one in kept["soundness"]][-2:] == ["constant", "answer"]


def test_what_is_not_there_is_not_found(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = audit(capsys, "v.csv", "--attribute", "coin", "--json", *QUICK)
    verdict = json.loads(answer.out)["audit"]["attributes"]["coin"]["verdict"]
    assert verdict["leaning"] == "none"
    assert "does not find coin" in verdict["sentence"]


def test_nobody_s_id_is_in_the_result(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = audit(capsys, "v.csv", "--attribute", "sex", "--json", *QUICK)
    assert json.loads(answer.out)["vectors"] == {"file": "v.csv", "users": USERS, "width": 6}
    assert all(name not in answer.out for name in IDS)


def test_the_same_seed_gives_the_same_numbers(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def scores(*more: str) -> object:
        answer = audit(capsys, "v.csv", "--attribute", "coin", "--json", *QUICK, *more)
        return json.loads(answer.out)["audit"]["attributes"]["coin"]["verdict"]["replicates"]

    assert scores() == scores()
    assert scores() != scores("--seed", "1")


def test_fewer_users_may_be_attacked(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = audit(capsys, "v.csv", "--attribute", "sex", "--users", "100", *QUICK)
    assert "Note: 100 of 160 users were drawn by their ids: --users 0 takes all." in answer.out


def test_hostile_names_are_shown_not_obeyed(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    people = pd.DataFrame({"user": IDS, "\x1b[2Jsex": np.where(SEX, "\x1b]0;owned\x07", "[red]f[/red]")})
    people.to_csv("users.csv", index=False)
    answer = audit(capsys, "v.csv", *QUICK)
    assert answer.code == 0, answer.err
    assert "\x1b" not in answer.out
    assert "[red]f[/red]" in answer.out


def test_an_audit_is_saved_shown_and_compared(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From vectors to a page, from a saved audit to the same page, and from two to what changed."""
    quick = ("--attribute", "sex", "--attribute", "coin", *QUICK)
    answer = audit(capsys, "v.csv", *quick, "--out", "before.json", "--html", "now.html", "--title", "Ours")
    assert answer.code == 0, answer.err
    assert answer.out.rstrip().endswith("Saved: before.json\nPage: now.html")
    saved = json.loads((place / "before.json").read_text())
    assert saved["kind"] == "audit of vectors"
    again = call(capsys, "report", "before.json", "-o", "later.html", "--title", "Ours")
    assert (again.code, again.out) == (0, "Report: later.html\n")
    assert (place / "later.html").read_text() == (place / "now.html").read_text()
    assert "<h1>Ours</h1>" in (place / "now.html").read_text()

    pd.DataFrame(RANDOM.normal(size=VECTORS.shape)).assign(user_id=IDS).to_csv("erased.csv", index=False)
    assert audit(capsys, "erased.csv", *quick, "--id", "user_id", "--out", "after.json").code == 0
    said = " ".join(call(capsys, "compare", "before.json", "after.json").out.split())
    assert "sex leaks less after: AUC " in said
    assert "coin: no difference shown: AUC " in said
    assert f"The same {USERS} users, in pairs." in said
    found = json.loads(call(capsys, "compare", "before.json", "after.json", "--json").out)
    assert [one["shown"] for one in found["changes"] if one["attribute"] == "sex"] == [True]


def test_a_pipeline_stops_at_a_leak_once_all_is_written(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = audit(capsys, "v.csv", "--attribute", "sex", *QUICK, "--fail-above", "0.6", "--out", "a.json")
    assert answer.code == 5
    assert answer.err.startswith("veilrec: error: --fail-above 0.6: sex (AUC ")
    assert (place / "a.json").exists()
    assert audit(capsys, "v.csv", "--attribute", "coin", *QUICK, "--fail-above", "0.6").code == 0


def test_a_control_is_read_from_files(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By ids from the same file about users, or by position with a file of its own."""
    frame, some = pd.read_csv("v.csv"), 100
    frame[:some].to_csv("main.csv", index=False)
    frame[some:].to_csv("control.csv", index=False)
    quick = ("--attribute", "sex", *QUICK)
    answer = audit(capsys, "main.csv", *quick, "--control", "control.csv", "--html", "a.html")
    assert answer.code == 0, answer.err
    said = " ".join(answer.out.split())
    assert "sex: Of 60 people on whom nothing was trained it finds as much as far as can be told" in said
    assert "Does training put it there?" in (place / "a.html").read_text()
    np.save("main.npy", VECTORS[:some])
    np.save("control.npy", VECTORS[some:])
    people = pd.DataFrame({"sex": np.where(SEX, "male", "female"), "id": IDS})
    people[:some].to_csv("main.users.csv", index=False)
    people[some:].to_csv("control.users.csv", index=False)
    by_row = ("--attributes", "main.users.csv", "--by-position", "--control", "control.npy", *quick)
    other = call(capsys, "audit", "main.npy", *by_row, "--control-attributes", "control.users.csv", "--json")
    assert json.loads(other.out)["control"] == {"file": "control.npy", "users": USERS - some}
    told = call(capsys, "audit", "main.npy", *by_row)
    assert told.code == 2
    assert "give the file about its people with --control-attributes" in told.err


# what is given · what the line must contain
BAD = {
    "no attributes": (["v.csv"], "Missing option '--attributes'"),
    "no such vectors": (["w.csv", "--attributes", "users.csv"], "w.csv: no such file"),
    "no such users": (["v.csv", "--attributes", "people.csv"], "people.csv: no such file"),
    "no share": (["v.csv", "--attributes", "users.csv", "--known", "1.5"], "--known: 1.5 is no share"),
    "no number": (["v.csv", "--attributes", "users.csv", "--known", "half"], "Invalid value for '--known'"),
    "not a number": (["v.csv", "--attributes", "users.csv", "--known", "nan"], "--known: nan is no share"),
    "no seeds": (["v.csv", "--attributes", "users.csv", "--seeds", "0"], "Invalid value for '--seeds'"),
    "no such classifier": (
        ["v.csv", "--attributes", "users.csv", "--classifier", "logistc"],
        '--classifier: no classifier "logistc"; did you mean "logistic"?',
    ),
    "no such attribute": (
        ["v.csv", "--attributes", "users.csv", "--attribute", "sexx"],
        'users.csv:1: there is no column "sexx"; did you mean "sex"?',
    ),
    "too many classes": (
        ["v.csv", "--attributes", "users.csv", "--attribute", "age"],
        'users.csv: attribute "age" has',
    ),
    "no ids": (["v.npy", "--attributes", "users.csv"], "v.npy: has no ids, so nothing says whose vector"),
    "ids and positions": (
        ["v.npy", "--attributes", "users.csv", "--ids", "ids.txt", "--by-position"],
        "--by-position: v.npy has ids of its own; leave it out: ids are safer",
    ),
    "several tensors": (["v.safetensors", "--attributes", "users.csv"], "v.safetensors: 2 matrices: "),
    "borders that are none": (
        ["v.csv", "--attributes", "users.csv", "--borders", "age"],
        '--borders: "age" is not NAME=NUMBERS; as in age=35,45',
    ),
    "no AUC": (["v.csv", "--attributes", "users.csv", "--fail-above", "6"], "--fail-above: 6 is no AUC"),
    "a page over the vectors": (
        ["v.csv", "--attributes", "users.csv", "--html", "v.csv"],
        "--html: v.csv is read by this audit; name another file",
    ),
    "one file for both": (
        ["v.csv", "--attributes", "users.csv", "--html", "a", "--out", "a"],
        "--html: names the same file as --out",
    ),
    "a title for nothing": (
        ["v.csv", "--attributes", "users.csv", "--title", "x"],
        "--title: there is no page",
    ),
    "attributes of no control": (
        ["v.csv", "--attributes", "users.csv", "--control-attributes", "users.csv"],
        "--control-attributes: there is no control",
    ),
    "users as vectors": (["users.csv", "--attributes", "users.csv"], 'users.csv:2: sex is "'),
    "an id column that is not there": (
        ["v.csv", "--attributes", "users.csv", "--id", "uid"],
        'users.csv:1: there is no column "uid"',
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_wrong_input_gets_one_line(name: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments, expected = BAD[name]
    before = tree(place)
    answer = call(capsys, "audit", *arguments)
    assert answer.code == 2
    assert expected in answer.err
    assert answer.err.startswith("veilrec: error: ")
    assert answer.err.count("\n") == 1
    assert answer.out == ""
    assert tree(place) == before, "nothing is written"


# arguments · what the line must contain
NO_AUDITS = {
    "a page of no audit": (("report", "users.csv"), "users.csv: not an audit of vectors; make one with"),
    "a page of two": (("report", "users.csv", "v.csv"), "v.csv: an audit has a page of its own; name one"),
    "an audit's csv": (("report", "v.csv", "--csv", "x.csv"), "--csv: an audit is its own numbers"),
    "a page over its audit": (("report", "v.csv", "-o", "v.csv"), "--out: names the audit itself"),
    "an audit compared with nothing": (("compare", "v.csv"), "v.csv: one place, with a file among them"),
    "an audit beside a run": (("compare", "v.csv", ".", "v.csv"), "v.csv: 3 places, with a file among them"),
    "an audit by a metric": (
        ("compare", "v.csv", "v.csv", "--metric", "x"),
        "v.csv: an audit of vectors has no",
    ),
}


@pytest.mark.parametrize("name", NO_AUDITS)
def test_a_page_of_something_else_gets_one_line(
    name: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, expected = NO_AUDITS[name]
    before = tree(place)
    answer = call(capsys, *arguments)
    assert answer.code == 2
    assert answer.err.startswith(f"veilrec: error: {expected}")
    assert answer.err.count("\n") == 1
    assert tree(place) == before, "nothing is written"


@pytest.mark.slow  # beside tests/lab/test_controls.py and test_leaks.py
def test_controls_are_attacked_on_request(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = audit(capsys, "v.csv", "--attribute", "sex", "--controls", *QUICK)
    assert answer.code == 0, answer.err
    assert "Controls not passed: XOR of two columns, spread alone." in answer.out
    told = json.loads(audit(capsys, "v.csv", "--attribute", "sex", "--controls", "--json", *QUICK).out)
    assert [one["passed"] for one in told["audit"]["controls"]] == [True, False, False, True, True, True]
