"""``veilrec verify``, and what every other command says of a run that is not what was written."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands import call, of_before
from tests.corpus.folders import EDITS, OPTIONS, Edit, no_state
from tests.corpus.stock import Stock
from veilrec.runs.integrity.changes import change


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Stock:
    return Stock(tmp_path_factory.mktemp("stock"))


@pytest.fixture
def place(stock: Stock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    stock.run(tmp_path / "run")
    return tmp_path


BOTH = [(one, one.read_by[:1]) for one in EDITS if one.quick]
ALL = [pytest.param(one, one.read_by, marks=pytest.mark.slow, id=f"{one.name}, by all") for one in EDITS]


@pytest.mark.parametrize(("one", "readers"), [*(pytest.param(*both, id=both[0].name) for both in BOTH), *ALL])
def test_an_edit_is_noticed_by_whoever_reads_the_file(
    one: Edit, readers: tuple[str, ...], place: Path, stock: Stock, capsys: pytest.CaptureFixture[str]
) -> None:
    one.make(place / "run", stock)
    for command in ("verify", *readers):
        answer = call(capsys, command, "run", *OPTIONS.get(command, ()))
        assert answer.code == 4, (command, answer)
        assert answer.err.count("\n") == 1
        assert answer.err.startswith("veilrec: error: run")
        assert one.file in answer.err
        assert command == "verify" or not answer.out
    assert not (place / "page.html").exists()


@pytest.mark.parametrize("name", ["users.safetensors", "per_user.csv"])
def test_an_audit_of_a_runs_own_vectors_notices_it(
    place: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (place / "run" / name).read_bytes()
    (place / "run" / name).write_bytes(text + b" ")
    answer = call(capsys, "audit", f"run/{name}", "--attributes", "run/per_user.csv")
    assert answer.code == 4
    assert f"run/{name}: not what the run wrote" in answer.err


def test_what_was_written_is_whole(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = call(capsys, "verify", "run")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out == "run: whole: 10 files, generation 1\n"
    (told,) = json.loads(call(capsys, "verify", "run", "--json").out)
    assert told == {
        "run": "run",
        "state": "whole",
        "files": 10,
        "generation": 1,
        "faults": [],
        "pending": False,
    }


def test_a_run_that_trains_on_has_its_checkpoints(
    place: Path, stock: Stock, capsys: pytest.CaptureFixture[str]
) -> None:
    begun = stock.begun(place / "begun")
    answer = call(capsys, "verify", "begun")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.startswith("begun: unfinished, and whole so far: ")
    for name in ("recipe.toml", "world.safetensors", "ids.json", "metrics.jsonl", "timing.jsonl"):
        text = (begun / name).read_bytes()
        (begun / name).write_bytes(text[:5] + b"#" + text[6:])
        answer = call(capsys, "verify", "begun")
        assert answer.code == 4
        assert f"begun/{name}: not what the run wrote" in answer.err
        if name in ("recipe.toml", "world.safetensors"):  # and nothing may follow, either
            (begun / name).write_bytes(text + b"\n")
            assert call(capsys, "verify", "begun").code == 4
        (begun / name).write_bytes(text)
    no_state(begun, stock)
    answer = call(capsys, "verify", "begun", "--json")
    assert answer.code == 4
    (told,) = json.loads(answer.out)
    assert told["state"] == "damaged"
    assert all("does not match its checksum" in fault for fault in told["faults"])


def test_a_sweep_is_all_its_runs(place: Path, stock: Stock, capsys: pytest.CaptureFixture[str]) -> None:
    cells = [{"name": f"seed={k}", "settings": {}, "finished": k < 2} for k in range(4)]
    for k in range(2):
        stock.run(place / "sweep" / f"seed={k}")
    stock.begun(place / "sweep" / "seed=2")
    (place / "sweep" / "index.json").write_text(json.dumps({"version": 1, "cells": cells}), encoding="utf-8")
    answer = call(capsys, "verify", "sweep", "run")
    assert answer.code == 0
    assert [line.partition(": ")[2].split(":")[0] for line in answer.out.splitlines()] == [
        *("whole", "whole", "unfinished, and whole so far", "whole")
    ]
    (place / "sweep" / "seed=1" / "ids.json").write_text("{}", encoding="utf-8")
    answer = call(capsys, "verify", "sweep", "run")
    assert answer.code == 4
    assert answer.err == "veilrec: error: sweep/seed=1/ids.json: not what the run wrote; restore the file\n"
    assert len(answer.out.splitlines()) == 4, "the others are told as well"


def test_every_file_is_hashed_whatever_was_checked_before(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A memory of checksums that lies is believed by nobody who verifies."""
    from veilrec.runs.integrity import checked

    path = place / "run" / "users.safetensors"
    right = path.read_bytes()
    wrong = right[:-1] + bytes([right[-1] ^ 1])
    path.write_bytes(wrong)
    told: dict[str, Any] = json.loads((place / "run" / "manifest.json").read_text())["files"][path.name]
    mark = {path.name: {"mark": checked._mark(path.lstat()), "sha256": told["sha256"]}}
    (place / "run" / checked.CHECKED).write_text(json.dumps({"version": 1, "files": mark}), encoding="utf-8")
    assert call(capsys, "evaluate", "run", "--quiet").code == 0
    assert call(capsys, "verify", "run").code == 4


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nothing"], "nothing: no such folder"),
        (["empty"], "empty: holds no run"),
        ([], "Missing argument"),
    ],
)
def test_where_no_run_is_there_is_nothing_to_verify(
    place: Path, arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "empty").mkdir()
    answer = call(capsys, "verify", *arguments)
    assert answer.code == 2
    assert says in answer.err


@pytest.mark.filterwarnings("always::veilrec.runs.integrity.manifest.Unverified")
def test_a_run_of_before_is_read_and_said_to_be_unverified(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    of_before(place / "run")
    said = "veilrec: warning: run: written before runs had manifests: what it says cannot be verified\n"
    for command in ("evaluate", "recommend", "report", "compare"):
        answer = call(capsys, command, "run", *OPTIONS.get(command, ()))
        assert (answer.code, answer.err) == (0, said), command
    answer = call(capsys, "verify", "run")
    assert answer.code == 0
    assert answer.out == "run: written before runs had manifests: cannot be verified\n"
    with change(place / "run") as new:
        new.keep({})
    answer = call(capsys, "verify", "run")
    assert answer.out == "run: whole: 10 files, generation 1\n"


@pytest.mark.filterwarnings("always::veilrec.runs.integrity.manifest.Unverified")
def test_what_a_run_of_before_does_vouch_for_is_held_against_that(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    of_before(place / "run")
    (place / "run" / "metrics.jsonl").write_text("{}\n", encoding="utf-8")
    assert call(capsys, "compare", "run").code == 0
    answer = call(capsys, "verify", "run")
    assert answer.code == 4
    assert "run/metrics.jsonl: not what the run wrote" in answer.err


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not installed")
def test_a_manifest_is_signed_and_checked_as_the_guide_says(place: Path) -> None:
    guide = (Path(__file__).parents[2] / "docs" / "guide.md").read_text(encoding="utf-8")
    sign, check = (line for line in guide.splitlines() if line.startswith("ssh-keygen "))
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "key"])
    public = (place / "key.pub").read_text(encoding="utf-8")
    (place / "signers").write_text(f"you@example.org {public}", encoding="utf-8")
    assert run(shlex.split(sign.replace("runs/noisy", "run").replace("~/.ssh/id_ed25519", "key"))) == 0
    words, _, source = check.replace("runs/noisy", "run").partition(" < ")
    assert run(shlex.split(words), source) == 0
    with change(place / "run") as new:
        new.drop("transcript.safetensors")
    assert run(shlex.split(words), source) != 0


def run(command: list[str], source: str = os.devnull) -> int:
    with Path(source).open("rb") as file:
        return subprocess.run(command, stdin=file, capture_output=True, timeout=30).returncode
