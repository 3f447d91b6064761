"""What people are told while they wait."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from veilrec.cli.show import progress


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(progress, "time", found)
    return found


def test_lines_for_what_was_measured(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with progress.showing("hr@10") as told:
        for done in range(1, 5):
            clock.now += 3
            row = {"loss": 0.5, **({"hr@10": 0.25} if done % 2 == 0 else {})}
            told("clients", 1, 2, None)
            told("rounds", done, 4, row)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines() == [
        "rounds 2/4, loss 0.5000, hr@10 0.2500, about 6.0 s left",
        "rounds 4/4, loss 0.5000, hr@10 0.2500",
    ]


def test_a_long_round_is_heard_of(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with progress.showing("hr@10", "first") as told:
        for done in range(1, 4):
            clock.now += 9
            told("clients", done, 3, None)
        told.begin("second")
        clock.now += 11
        told("rounds", 1, 9, {"loss": 1.0})
    assert capsys.readouterr().err.splitlines() == [
        "first: round 1: 2/3 clients",
        "second: rounds 1/9, loss 1.0000",
    ]


def test_quiet_is_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.showing("hr@10", quiet=True) as told:
        told.phase("loading")
        told("rounds", 1, 1, {"loss": 1.0, "hr@10": 0.5})
    assert capsys.readouterr().err == ""


def test_a_terminal_gets_a_line_that_changes(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Console(file=io.StringIO(), force_terminal=True, width=140, color_system=None)
    monkeypatch.setattr(progress, "console", lambda stderr: screen)
    said = []
    with progress.showing("hr@10", "1 of 2") as told:
        assert isinstance(told, progress.Sentences)
        assert told.status is not None
        monkeypatch.setattr(told.status, "update", said.append)
        told.phase("loading ml-100k")
        told("rounds", 3, 10, {"loss": 0.5, "hr@10": 0.25})
        clock.now += 2
        told("rounds", 4, 10, {"loss": 0.4})
        told("clients", 5, 10, None)
        told("server", 2, 4, None)
        told.begin("2 of 2")
        told("test", 0, 1, None)
    assert said == [
        "1 of 2: loading ml-100k",
        "1 of 2: rounds 3/10, loss 0.5000, hr@10 0.2500",
        "1 of 2: rounds 4/10, loss 0.5000, hr@10 0.2500, about 12 s left",
        "1 of 2: round 5: 5/10 clients, loss 0.5000, hr@10 0.2500",
        "1 of 2: server (2/4)",
        "2 of 2: test (0/1)",
    ]


def test_eighty_columns_hold_all_that_is_said(clock: Clock) -> None:
    """On a terminal the line goes on below, and no time is cut off (B10)."""
    written = io.StringIO()
    screen = Console(file=written, force_terminal=True, width=80)
    with screen.status("") as status:
        told = progress.Sentences(
            "ndcg@10", "3 of 12: defence=laplace,scale=0.01,model.dim=64,seed=2", status
        )
        for done in (276, 277):
            clock.now += 7
            told("rounds", done, 4000, {"loss": 0.0693, "ndcg@10": 0.1591})
        shown = screen.render_lines(status.renderable)
    lines = ["".join(segment.text for segment in line) for line in shown]
    assert all(len(line) <= 80 for line in lines)
    assert " ".join(" ".join(lines).split()).endswith("ndcg@10 0.1591, about 434 min 21 s left")
