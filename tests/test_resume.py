"""Runs that are killed at any moment and taken up again end as if nothing had happened, to the byte."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.forking import Order, Pool, pool, small
from veilrec.checkpoint import Damaged
from veilrec.errors import BadInput, Corrupted
from veilrec.keys import Keys
from veilrec.result import Result

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
SAME = ("model.safetensors", "users.safetensors", "metrics.jsonl", "per_user.csv", "transcript.safetensors")
SAME += ("recipe.toml", "world.safetensors", "ids.json")


@pytest.fixture(scope="module")
def runner() -> Iterator[Pool]:
    with pool() as ready:
        yield ready


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
        self.counts: dict[str, int] = json.loads((folder / "counts.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def whole(runner: Pool, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    return Whole(runner, tmp_path_factory.mktemp("whole"))


def hashes(folder: Path) -> dict[str, str]:
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in SAME}


def assert_same(out: Path, whole: Whole) -> None:
    """The same files, the same result but for time, and nothing left behind."""
    assert hashes(out) == whole.hashes
    result = Result.load(out)
    for name in ("utility", "selected", "rounds", "stopped", "traffic", "fingerprint", "data"):
        assert getattr(result, name) == getattr(whole.result, name)
    assert not list(out.rglob("*.tmp"))
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
    return ended["code"] != 0


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
    killed_enough(runner, whole, tmp_path, 6)


@pytest.mark.slow
def test_twenty_killed_at_random_times(runner: Pool, whole: Whole, tmp_path: Path) -> None:
    killed_enough(runner, whole, tmp_path, 40)


@pytest.mark.parametrize("kind", ["fsync", "replace", "unlink", "write"])
def test_killed_while_something_is_written(runner: Pool, whole: Whole, tmp_path: Path, kind: str) -> None:
    for trial, place in enumerate(Keys.seed(3).fold(kind).integers(whole.counts[kind], 5).tolist()):
        out = tmp_path / str(trial)
        assert runner.run(Order(str(out), fail={kind: place + 1}))["code"] == -signal.SIGKILL
        assert runner.run(Order(str(out), resume=True))["code"] == 0
        assert_same(out, whole)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["fsync", "replace", "unlink", "write"])
def test_killed_at_every_place(runner: Pool, whole: Whole, tmp_path: Path, kind: str) -> None:
    for place in range(1, whole.counts[kind] + 1):
        out = tmp_path / str(place)
        assert runner.run(Order(str(out), fail={kind: place}))["code"] == -signal.SIGKILL
        assert runner.run(Order(str(out), resume=True))["code"] == 0
        assert_same(out, whole)
