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


@pytest.mark.slow  # beside tests/lab/test_controls.py and test_leaks.py
def test_controls_are_attacked_on_request(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = audit(capsys, "v.csv", "--attribute", "sex", "--controls", *QUICK)
    assert answer.code == 0, answer.err
    assert "Controls not passed: XOR of two columns, spread alone." in answer.out
    told = json.loads(audit(capsys, "v.csv", "--attribute", "sex", "--controls", "--json", *QUICK).out)
    assert [one["passed"] for one in told["audit"]["controls"]] == [True, False, False, True, True, True]
