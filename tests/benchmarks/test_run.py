"""`make bench` runs from end to end, and refuses to compare what is not comparable."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.harness import Contestant, Result, check_same_work, interleaved, table

ROOT = Path(__file__).parents[2]


def printing(text: str) -> list[str]:
    return [sys.executable, "-c", text]


def result(name: str, *, world: str = "w", moved: float | None = None) -> Result:
    return Result(name, 1, round_s=[1.0], clients=3, world=world, moved=moved)


@pytest.mark.slow
def test_quick_run_prints_every_contestant() -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "run.py"), "--quick", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    found = json.loads(done.stdout)["tiny"]
    rows = {(row["name"], row["workers"]): row for row in found["contestants"]}
    assert {("loop", 1), ("loop", 2), ("centralised", 2)} <= rows.keys()
    assert all(row["median_s"] > 0 and row["peak_mb"] > 50 and not row["error"] for row in rows.values())
    assert rows["loop", 1]["evaluate_s"]
    assert found["scaling"]["loop"] > 0


def test_repeats_are_interleaved_and_failures_do_not_stop_the_others(tmp_path: Path) -> None:
    log = tmp_path / "log"
    line = json.dumps({"round_s": [0.5, 0.7], "evaluate_s": None, "clients": 3, "world": "w", "peak_mb": 1.0})
    good = "print('chatter'); print({!r}); open({!r}, 'a').write({!r})"
    contestants = [
        Contestant("a", 1, printing(good.format(line, str(log), "a"))),
        Contestant("broken", 1, printing("raise SystemExit('no such thing')")),
        Contestant("b", 1, printing(good.format(line, str(log), "b"))),
    ]
    first, broken, last = interleaved(contestants, repeats=2)
    assert log.read_text() == "abab"
    assert first.round_s == last.round_s == [0.5, 0.7, 0.5, 0.7]
    assert first.median_s == pytest.approx(0.6)
    assert "no such thing" in broken.error
    assert not broken.round_s


def test_a_contestant_that_hangs_is_ended() -> None:
    hanging = Contestant("hangs", 1, printing("import threading; threading.Event().wait()"))
    (found,) = interleaved([hanging], repeats=2, deadline=0.5)
    assert "no result in" in found.error


def test_other_worlds_and_other_weights_are_refused() -> None:
    check_same_work([result("a", moved=1.0), result("b", moved=1.0001), result("c")])
    with pytest.raises(RuntimeError, match="not the same world"):
        check_same_work([result("a"), result("b", world="v")])
    with pytest.raises(RuntimeError, match="not the same work"):
        check_same_work([result("a", moved=1.0), result("b", moved=1.1)])


def test_table_lines_up() -> None:
    lines = table(["name", "s"], [["a", "1.0"], ["longer", "10.0"]]).splitlines()
    assert lines[2] == "a        1.0"
    assert lines[3] == "longer  10.0"
