"""What the quick tests cost is measured, and told in one line."""

from __future__ import annotations

import sys

import pytest

from tests import budget, example_cost
from tests.budget import cpu_of, loop_seconds, summary

BUSY = "import time\nwhile time.process_time() < 0.3: pass\n"


def test_the_processes_of_a_process_count() -> None:
    inner = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {BUSY!r}])\nsys.exit(3)"
    code, spent = cpu_of([sys.executable, "-c", inner])
    assert code == 3
    assert spent >= 0.25  # and no upper bound: the machine may be busy


def test_the_closing_line_says_what_was_spent_and_what_is_allowed() -> None:
    assert summary(271, 0.5) == "quick tier: 271 CPU s of 300 (loop of 10 million additions: 0.50 s)"


@pytest.mark.parametrize(("spent", "loop", "warns"), [(299, 0.5, False), (301, 0.5, True), (700, 1.5, False)])
def test_a_slower_machine_has_a_larger_budget(spent: float, loop: float, warns: bool) -> None:
    assert ("WARNING" in summary(spent, loop)) == warns


@pytest.mark.parametrize(
    ("arguments", "code", "spent", "ends"),
    [
        (["--strict", "-q"], 0, 300 * 1.14, 0),
        (["--strict", "-q"], 0, 300 * 1.16, 1),
        (["-q"], 0, 900, 0),  # a warning is all
        (["--strict", "-q"], 2, 900, 2),  # as pytest ended
    ],
)
def test_strictly_more_than_the_slack_is_a_failure(
    arguments: list[str], code: int, spent: float, ends: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = []

    def pretend(command: list[str]) -> tuple[int, float]:
        commands.append(command)
        return code, spent

    monkeypatch.setattr(budget, "cpu_of", pretend)
    monkeypatch.setattr(budget, "loop_seconds", lambda: 0.5)
    assert budget.main(arguments) == ends
    assert commands == [[sys.executable, "-m", "pytest", "-q"]]


def test_an_example_that_is_too_dear_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    one = next(iter(example_cost.examples()))
    monkeypatch.setattr(example_cost, "examples", lambda: iter([one]))
    monkeypatch.setattr(example_cost, "loop_seconds", lambda: 10.0)
    assert example_cost.main() == 0
    monkeypatch.setattr(example_cost, "cpu_of", lambda test: 5.1)
    assert example_cost.main() == 1


def test_the_loop_is_timed() -> None:
    assert loop_seconds(10_000) > 0
