"""What people are told while they wait."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from veilrec.cli.show import progress
from veilrec.cli.show.tables import amount, minutes


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


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Console(file=io.StringIO(), force_terminal=True, width=140, color_system=None)
    monkeypatch.setattr(progress, "console", lambda stderr: screen)
    with progress.showing("hr@10", "1 of 2") as told:
        assert isinstance(told, progress.Bar)
        told.phase("loading ml-100k")
        told.bars.refresh()
        told("rounds", 3, 10, {"loss": 0.5, "hr@10": 0.25})
        told("clients", 5, 10, None)
        told.bars.refresh()
        assert told.bars.tasks[0].completed == 3.5
        told("server", 2, 4, None)  # it says so, and the bar stays
        assert (told.bars.tasks[0].completed, told.bars.tasks[0].fields["unit"]) == (3.5, "server 2/4")
        told.begin("2 of 2")
        told("test", 0, 1, None)
        told.bars.refresh()
    shown = screen.file.getvalue()  # type: ignore[attr-defined]
    for said in (
        "1 of 2  loading ml-100k",
        "training",
        "3/10 rounds",
        "hr@10 0.2500",
        "left:",
        "2 of 2  test",
    ):
        assert said in shown


def test_amounts_for_people() -> None:
    assert [amount(n) for n in (0, 999, 1000, 12_345_678, 7e12)] == [
        "0 B",
        "999 B",
        "1.0 kB",
        "12.3 MB",
        "7000.0 GB",
    ]
    assert [minutes(s) for s in (0.04, 9.94, 42.4, 59.6, 185)] == [
        "0.0 s",
        "9.9 s",
        "42 s",
        "1 min 00 s",
        "3 min 05 s",
    ]
