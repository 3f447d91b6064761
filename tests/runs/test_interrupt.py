"""SIGINT and SIGTERM end a run cleanly: what was finished is on disk, and the rest follows later."""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path

import pytest

from tests.forking import Order, Pool, small
from tests.runs.test_resume import hashes
from veilrec.errors import Interrupted
from veilrec.result import Result
from veilrec.runs.interrupt import stoppable

CHUNKS = 4  # of a round of `small`: twelve clients, three at a time

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


@pytest.fixture(scope="module")
def whole(runner: Pool, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    out = tmp_path_factory.mktemp("whole") / "run"
    assert runner.run(Order(str(out)))["code"] == 0
    return hashes(out)


def rounds_on_disk(out: Path) -> int:
    """The round of the newest checkpoint."""
    newest = max(out.glob("checkpoint/round-*.json"))
    return int(json.loads(newest.read_text(encoding="utf-8"))["round"])


@needs_fork
@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_the_round_at_hand_is_finished(
    runner: Pool, whole: dict[str, str], tmp_path: Path, number: int
) -> None:
    out = tmp_path / "run"
    asked = [(int(number), "clients", 4 * CHUNKS + 2, 1)]  # in the middle of round 5
    ended = runner.run(Order(str(out), seconds=1e9, signals=asked))
    assert ended == {"code": 130, "error": "stopped after round 5; continue with --resume"}
    assert rounds_on_disk(out) == 5
    assert runner.run(Order(str(out), resume=True))["code"] == 0
    assert hashes(out) == whole


@needs_fork
def test_a_second_signal_ends_it_at_once(runner: Pool, whole: dict[str, str], tmp_path: Path) -> None:
    out = tmp_path / "run"
    asked = [(int(signal.SIGINT), "clients", 4 * CHUNKS + 2, 2)]
    ended = runner.run(Order(str(out), signals=asked))
    assert ended == {"code": 130, "error": "interrupted; continue with --resume"}
    assert rounds_on_disk(out) == 4
    assert runner.run(Order(str(out), resume=True))["code"] == 0
    assert hashes(out) == whole


@pytest.mark.slow
@needs_fork
def test_a_round_that_takes_too_long_is_left(runner: Pool, whole: dict[str, str], tmp_path: Path) -> None:
    out = tmp_path / "run"
    asked = [(int(signal.SIGTERM), "clients", 4 * CHUNKS + 1, 1)]
    ended = runner.run(Order(str(out), signals=asked, grace=0.0, stall=4 * CHUNKS + 2))
    assert ended["code"] == 130
    assert rounds_on_disk(out) == 4
    assert runner.run(Order(str(out), resume=True))["code"] == 0
    assert hashes(out) == whole


@needs_fork
@pytest.mark.parametrize("phase", [pytest.param("test", marks=pytest.mark.slow), "write"])
def test_after_the_last_round(runner: Pool, whole: dict[str, str], tmp_path: Path, phase: str) -> None:
    out = tmp_path / "run"
    ended = runner.run(Order(str(out), signals=[(int(signal.SIGINT), phase, 1, 2)]))
    assert ended["code"] == 130
    assert not (out / "result.json").exists()
    assert runner.run(Order(str(out), resume=True))["code"] == 0
    assert hashes(out) == whole


@needs_fork
def test_one_signal_while_the_end_is_written_changes_nothing(
    runner: Pool, whole: dict[str, str], tmp_path: Path
) -> None:
    out = tmp_path / "run"
    assert runner.run(Order(str(out), signals=[(int(signal.SIGINT), "write", 1, 1)]))["code"] == 0
    assert hashes(out) == whole


def test_handlers_are_put_back() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with stoppable() as stop:
        assert signal.getsignal(signal.SIGTERM) == stop.handle
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
    with pytest.raises(Interrupted), stoppable():
        raise KeyboardInterrupt
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_other_threads_leave_signals_alone() -> None:
    results: list[Result] = []
    before = signal.getsignal(signal.SIGINT)

    def work() -> None:
        results.append(small(2).run(progress=lambda *_: seen.append(signal.getsignal(signal.SIGINT))))

    seen: list[object] = []
    thread = threading.Thread(target=work)
    thread.start()
    thread.join(timeout=60)
    assert results[0].rounds == 2
    assert set(seen) == {before}


def test_the_code_of_an_interrupted_command() -> None:
    assert Interrupted("").code == 130
