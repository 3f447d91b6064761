"""The harness measures what it says, goes on where it stopped, and misses a goal where a bug is planted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.forge import Forge, Order, Setting
from tests.reliability import kills, network, pairs
from tests.reliability.__main__ import main
from tests.reliability.cases import Bench, Found, Goal, numbered
from tests.reliability.failpoints import install
from tests.reliability.pairs import PAIRS
from tests.reliability.victims import VICTIMS, stable
from veilrec.base.files import atomic

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
SLOW_COUNT = 10


@pytest.fixture
def bench(forge: Forge, tmp_path: Path) -> Bench:
    return Bench(forge, tmp_path, 0, lambda text: None)


@pytest.fixture(scope="module")
def shared(forge: Forge, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """Where whole things are made once for several tests."""
    return Bench(forge, tmp_path_factory.mktemp("reliability"), 0, lambda text: None)


def judged(tried: list[str], bad: str = "", skipped: str = "") -> Goal:
    def judge(bench: Bench, name: str, folder: Path) -> Found:
        tried.append(name)
        (folder / "left").touch()
        return Found(name != bad, "", "odd" if name == bad else "no disk", skipped=name == skipped)

    return Goal("X1", "what", ["a", "b", "c"], judge)


def test_a_case_is_tried_once_and_what_failed_is_named_and_kept(bench: Bench) -> None:
    tried: list[str] = []
    row = judged(tried, bad="b").measure(bench)
    assert (row["value"], row["limit"], row["pass"], row["failed"]) == (2, 3, False, ["b: odd"])
    assert judged(tried, bad="b").measure(bench) == row
    assert tried == ["a", "b", "c"]
    assert len(list(bench.folder.glob("work/X1/*/left"))) == 1
    judged(tried).measure(replace(bench, seed=1))
    assert tried == ["a", "b", "c"] * 2, "another seed is another measurement"
    assert {"veilrec", "code", "python", "torch"} <= row["versions"].keys()


def test_what_cannot_be_tried_here_is_said_and_counts_for_nothing(bench: Bench) -> None:
    row = judged([], skipped="c").measure(bench)
    assert (row["value"], row["limit"], row["pass"], row["skipped"]) == (2, 2, True, ["no disk"])
    nothing = Goal("X2", "what", ["a"], lambda bench, name, folder: Found(True, "", "no disk", skipped=True))
    assert not nothing.measure(bench)["pass"]


def touching(fatal: int, folder: str) -> int:
    """In a process of its own: make a file, up to a failpoint."""
    tell = install(fatal)
    with atomic(Path(folder) / "file") as sink:
        sink.write(b"0123456789")
    tell(Path(folder) / "count")
    return 0


def test_a_failpoint_ends_it_before_each_touch_and_within_a_write(forge: Forge, tmp_path: Path) -> None:
    def left(fatal: int) -> list[bytes]:
        place = tmp_path / str(fatal)
        place.mkdir()
        asked = {"fatal": fatal, "folder": str(place)}
        ended = forge.run(Order("tests.reliability.test_reliability:touching", asked, Setting(str(place))))
        assert ended.code == (-signal.SIGKILL if fatal else 0)
        return sorted(path.read_bytes() for path in place.iterdir() if path.name != "count")

    assert left(0) == [b"0123456789"]
    count = json.loads((tmp_path / "0" / "count").read_text())
    assert count >= 5, "opened, written, brought to the disk, renamed, its folder brought to the disk"
    found = [left(fatal) for fatal in range(1, count + 1)]
    assert found[0] == []
    assert [b"01234"] in found
    assert found[-1] == [b"0123456789"]


def test_a_result_is_compared_without_what_tells_of_time() -> None:
    value = {"a": [{"seconds": 3, "b": 1}], "timing": {"total": 1}, "environment": {}, "files": {}}
    assert stable(value) == {"a": [{"b": 1}]}


def test_a_device_that_is_killed_answers_once(shared: Bench) -> None:
    row = next(goal for goal in kills.goals(1) if goal.id == "A1.node").measure(shared)
    assert row["pass"], row


def test_a_request_that_was_taken_is_done_once(shared: Bench) -> None:
    row = next(goal for goal in kills.goals(1) if goal.id == "A1.unlearn").measure(shared)
    assert row["pass"], row


@pytest.mark.slow
@pytest.mark.parametrize("name", VICTIMS)
def test_ten_kills(name: str, shared: Bench) -> None:
    row = next(goal for goal in kills.goals(SLOW_COUNT) if goal.id == f"A1.{name}").measure(shared)
    assert row["pass"], row
    assert row["limit"] == SLOW_COUNT


@pytest.mark.slow
@pytest.mark.parametrize("name", kills.SHORT)
def test_a_kill_at_each_touch(name: str, shared: Bench) -> None:
    row = next(goal for goal in kills.at_each_touch() if goal.id == f"A1.each.{name}").measure(shared)
    assert row["pass"], row


@pytest.mark.slow
@pytest.mark.parametrize("name", PAIRS)
def test_ten_pairs(name: str, shared: Bench) -> None:
    row = next(goal for goal in pairs.goals(SLOW_COUNT) if goal.id == f"A14.{name}").measure(shared)
    assert row["pass"], row
    assert row["limit"] == SLOW_COUNT


@pytest.mark.slow
@pytest.mark.parametrize(
    ("goal", "planted"),
    [
        (kills.at_each_touch()[0], "written in place"),
        (replace(pairs.goals(2)[0], id="A14.node"), "no lock"),
        (replace(pairs.goals(2)[1], id="A14.attack"), "no lock"),
    ],
    ids=lambda value: getattr(value, "id", value),
)
def test_a_planted_bug_misses_the_goal(goal: Goal, planted: str, bench: Bench) -> None:
    kills._whole("attack", bench)  # of code without the bug
    assert not goal.measure(replace(bench, planted=planted))["pass"]


@pytest.mark.slow
@pytest.mark.parametrize("few", [["--few", "--only", "C1"]])
def test_the_command_prints_a_row_for_each_goal(
    few: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*few, "--out", str(tmp_path), "--seed", "3"]) == 0
    said = capsys.readouterr()
    rows = [json.loads(line) for line in said.out.splitlines()]
    assert {"id", "what", "value", "limit", "pass", "seconds", "seed", "versions"} <= rows[0].keys()
    assert rows[0]["seed"] == 3
    assert "seed 3" in said.err
    assert main([*few, "--out", str(tmp_path), "--seed", "3"]) == 0
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == rows


needs_namespaces = pytest.mark.skipif(bool(network.missing()), reason=network.missing())


@pytest.mark.slow
@needs_namespaces
def test_commands_need_no_network_and_write_at_home(tmp_path: Path) -> None:
    network.prepare(tmp_path / "home")
    faults = [
        network.alone(words, tmp_path / "home", tmp_path / "tmp") for words in network.COMMANDS.values()
    ]
    assert not any(faults), list(filter(None, faults))


@pytest.mark.slow
@needs_namespaces
def test_who_is_cut_off_reaches_nobody() -> None:
    """Or the test of the commands would show nothing."""
    code = "import socket; s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen(); "
    code += "socket.create_connection(s.getsockname(), 5)"
    done = subprocess.run(
        [*network.CUT_OFF, sys.executable, "-c", code], capture_output=True, timeout=60, check=False
    )
    assert done.returncode
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


def test_numbers_are_names() -> None:
    assert numbered(3) == ["0", "1", "2"]
