"""What the quick tests cost is measured, and told in one line."""

from __future__ import annotations

import sys

import pytest

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


def test_the_loop_is_timed() -> None:
    assert loop_seconds(10_000) > 0
