"""Runs that are killed at any moment and taken up again end as if nothing had happened, to the byte."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.forking import Order, Pool, small
from tests.worlds import checkerboard
from veilrec.base.keys import Keys
from veilrec.errors import BadInput, Corrupted
from veilrec.result import Result
from veilrec.runs.checkpoint import Damaged
from veilrec.runs.integrity.verify import verified

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
SAME = ("model.safetensors", "users.safetensors", "metrics.jsonl", "per_user.csv", "transcript.safetensors")
WORLD = ("recipe.toml", "world.safetensors", "ids.json")


class Whole:
    """The run that nobody disturbs: its hashes, its length in seconds, and what it called how often."""

    def __init__(self, runner: Pool, folder: Path) -> None:
        runner.run(Order(str(folder / "warm")))
        before = time.perf_counter()
        ended = runner.run(Order(str(folder / "whole"), report=str(folder / "counts.json")))
        self.seconds = time.perf_counter() - before
        assert ended == {"code": 0, "error": ""}
        self.hashes = hashes(folder / "whole")
        self.result = Result.load(folder / "whole")
        assert 0 < self.result.selected < self.result.rounds  # or a lost selection would not show
        self.counts: dict[str, int] = json.loads((folder / "counts.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def whole(runner: Pool, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    return Whole(runner, tmp_path_factory.mktemp("whole"))


def hashes(folder: Path) -> dict[str, str]:
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in SAME + WORLD}


def assert_same(out: Path, whole: Whole) -> None:
    """The same files, the same result but for time, and nothing left behind."""
    assert hashes(out) == whole.hashes
    result = Result.load(out)
    for name in ("utility", "selected", "rounds", "stopped", "traffic", "fingerprint", "data"):
        assert getattr(result, name) == getattr(whole.result, name)
    assert not [*out.rglob("*.tmp"), *out.glob("*.g*")]
    assert not (out / "transcript").exists()
    assert not (out / "lock").exists()


def kill(runner: Pool, order: Order, seconds: float) -> bool:
    """Kill a run after some time; False where it was faster."""
    process = runner.start(order)
    ended = runner.wait(seconds)
    if ended is not None:
        assert ended["code"] == 0, ended["error"]
        return False
    os.kill(process, signal.SIGKILL)
    ended = runner.wait()
    assert ended is not None
    assert ended["code"] in (-signal.SIGKILL, 0)  # it may have ended in between
    return bool(ended["code"])


def killed_and_resumed(runner: Pool, whole: Whole, out: Path, trial: int) -> int:
    """Kill a run, kill its resumption, resume it to the end; returns how many of the kills were in time."""
    draws = Keys.seed(trial).fold("kills").uniform(3).tolist()
    every = 0.0 if draws[0] < 0.5 else 0.1  # seconds between checkpoints
    first = kill(runner, Order(str(out), seconds=every), draws[1] * whole.seconds)
    second = kill(runner, Order(str(out), resume=True, seconds=every), draws[2] * whole.seconds)
    assert runner.run(Order(str(out), resume=True, seconds=every))["code"] == 0
    assert_same(out, whole)
    return first + second


def killed_enough(runner: Pool, whole: Whole, folder: Path, kills: int) -> None:
    done = 0
    for trial in range(3 * kills):
        done += killed_and_resumed(runner, whole, folder / str(trial), trial)
        if done >= kills:
            return
    pytest.fail(f"only {done} kills came in time")


def test_killed_at_random_times(runner: Pool, whole: Whole, tmp_path: Path) -> None:
    killed_enough(runner, whole, tmp_path, 2)


@pytest.mark.slow
def test_twenty_killed_at_random_times(runner: Pool, whole: Whole, tmp_path: Path) -> None:
    killed_enough(runner, whole, tmp_path, 40)


KINDS = [*(pytest.param(kind, marks=pytest.mark.slow) for kind in ("fsync", "unlink", "write")), "replace"]


def killed_at(runner: Pool, whole: Whole, out: Path, kind: str, place: int) -> None:
    """Kill a run at its n-th call of a kind, and resume it."""
    assert runner.run(Order(str(out), fail={kind: place}))["code"] == -signal.SIGKILL
    assert runner.run(Order(str(out), resume=True))["code"] == 0
    assert_same(out, whole)


@pytest.mark.parametrize("kind", KINDS)
def test_killed_while_something_is_written(runner: Pool, whole: Whole, tmp_path: Path, kind: str) -> None:
    for trial, place in enumerate(Keys.seed(3).fold(kind).integers(whole.counts[kind], 1).tolist()):
        killed_at(runner, whole, tmp_path / str(trial), kind, place + 1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_killed_at_many_places(runner: Pool, whole: Whole, tmp_path: Path, kind: str) -> None:
    for place in range(1, whole.counts[kind] + 1, max(1, whole.counts[kind] // 25)):
        killed_at(runner, whole, tmp_path / str(place), kind, place)


@pytest.mark.parametrize(
    ("kind", "last"),
    [
        ("replace", 1),  # between the commit and the name of what is committed
        ("replace", 2),  # right before the commit
        *(
            pytest.param(kind, last, marks=pytest.mark.slow)
            for kind in ("replace", "write", "fsync", "unlink")
            for last in range(1, 12)
        ),
    ],
)
def test_killed_at_its_end(runner: Pool, whole: Whole, tmp_path: Path, kind: str, last: int) -> None:
    """What is left is a run that is finished or one that is not, and never half of either."""
    out = tmp_path / "run"
    order = Order(str(out), fail={kind: whole.counts[kind] + 1 - last})
    assert runner.run(order)["code"] == -signal.SIGKILL
    left = verified(out)
    assert left.faults == ()
    assert left.state == ("whole" if (kind, last) == ("replace", 1) else left.state)
    assert left.state == ("unfinished" if (kind, last) == ("replace", 2) else left.state)
    assert runner.run(Order(str(out), resume=True))["code"] == 0
    assert_same(out, whole)
    assert verified(out).state == "whole"


@pytest.fixture(scope="module")
def stopped(runner: Pool, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run killed in its seventh round, with checkpoints of rounds 5 and 6."""
    out = tmp_path_factory.mktemp("stopped") / "run"
    assert runner.run(Order(str(out), signals=[(signal.SIGKILL, "clients", 6 * 4 + 2, 1)]))["code"] == -9
    assert [p.name for p in sorted(out.glob("checkpoint/round-*"))] == [
        "round-000005.json",
        "round-000006.json",
    ]
    return out


QUICK = {
    ("truncated", "state-000006.safetensors"),
    ("flipped", "round-000006.json"),
    ("missing", "round-000006.json"),
}


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(folder)): p.read_bytes()
        for p in folder.rglob("*")
        if p.is_file() and p.name != "lock"
    }


@pytest.mark.parametrize(
    ("damage", "name"),
    [
        pytest.param(damage, name, marks=() if (damage, name) in QUICK else pytest.mark.slow)
        for damage in ("truncated", "flipped", "missing", "empty")
        for name in ("state-000006.safetensors", "round-000006.json")
    ],
)
def test_a_damaged_checkpoint_is_noticed_and_the_one_before_used(
    stopped: Path, whole: Whole, tmp_path: Path, name: str, damage: str
) -> None:
    out = tmp_path / "run"
    shutil.copytree(stopped, out)
    path = out / "checkpoint" / name
    data = path.read_bytes()
    flipped = data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :]
    path.write_bytes({"truncated": data[: len(data) // 2], "flipped": flipped}.get(damage, b""))
    if damage == "missing":
        path.unlink()
    if (damage, name) == ("missing", "round-000006.json"):  # as if it had never been written
        small().run(out, resume=True)
    else:
        with pytest.warns(Damaged, match="using the checkpoint of round 5") as told:
            small().run(out, resume=True)
        assert len(told) == 1
    assert_same(out, whole)


def test_with_no_checkpoint_that_is_whole_nothing_is_touched(stopped: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    shutil.copytree(stopped, out)
    for path in out.glob("checkpoint/state-*"):
        path.write_bytes(path.read_bytes()[:-1])
    before = contents(out)
    with pytest.raises(Corrupted, match="no older one is whole"):
        small().run(out, resume=True)
    assert contents(out) == before


def test_metrics_that_were_changed_are_noticed(stopped: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    shutil.copytree(stopped, out)
    text = (out / "metrics.jsonl").read_text(encoding="utf-8")
    (out / "metrics.jsonl").write_text(text.replace('"round": 1', '"round": 9', 1), encoding="utf-8")
    with pytest.raises(Corrupted, match=r"metrics\.jsonl"):
        small().run(out, resume=True)


def test_lost_checkpoints_are_noticed(stopped: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    shutil.copytree(stopped, out)
    shutil.rmtree(out / "checkpoint")
    with pytest.raises(Corrupted, match="no checkpoint is left"):
        small().run(out, resume=True)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"seed": 6}, "another recipe: seed was 5, is 6"),
        ({"consent": 0.25}, r"another recipe: data\.consent was 0\.5, is 0\.25"),
        ({"data": checkerboard(22)}, "a checkpoint of another recipe or other data"),
        ({"split_seed": 1}, r"another recipe: data\.split_seed was 0, is 1"),
    ],
)
def test_another_recipe_or_other_data_is_refused(
    stopped: Path, tmp_path: Path, change: dict[str, Any], says: str
) -> None:
    out = tmp_path / "run"
    shutil.copytree(stopped, out)
    before = contents(out)
    with pytest.raises(BadInput, match=says):
        replace(small(), **change).run(out, resume=True)
    assert contents(out) == before


@pytest.mark.parametrize("name", WORLD)
def test_what_a_run_began_with_must_be_there_as_it_was(stopped: Path, tmp_path: Path, name: str) -> None:
    out = tmp_path / "run"
    shutil.copytree(stopped, out)
    text = (out / name).read_bytes()
    (out / name).write_bytes(text.replace(b"\n[", b"\n\n[", 1) if name == "recipe.toml" else text[:-1] + b"#")
    before = contents(out)
    with pytest.raises(Corrupted, match=rf"{name}: not what the run wrote"):
        small().run(out, resume=True)
    assert contents(out) == before


def test_the_number_of_workers_is_free(stopped: Path, whole: Whole, tmp_path: Path) -> None:
    out = tmp_path / "run"
    shutil.copytree(stopped, out)
    run = small()
    replace(run, plan=replace(run.plan, workers=1)).run(out, resume=True)
    assert hashes(out) == whole.hashes
