"""The quick tests and what they cost: CPU seconds of pytest and all its processes, beside a budget.

``python -m tests.budget`` takes the arguments of pytest, prints one line after its output, ends as it ends;
with ``--strict`` it ends with 1 where the tests pass and cost more than the budget and `SLACK`. The budget
grows with the seconds that a plain loop takes, so that it means the same on a slower machine; on one that is
busy with other work both are measured less well, which is what the slack is for.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from statistics import median

ALLOWED = 360 / 0.6  # CPU seconds of tests for each second that the loop takes
SLACK = 1.15  # times the budget: what other work on a machine may add to the CPU seconds of ours
STRICT = "--strict"
LOOP = """import time
began, total = time.process_time(), 0
for number in range({additions}):
    total += number
print(time.process_time() - began)
"""


def loop_seconds(additions: int = 10_000_000) -> float:
    """CPU seconds of a script that only adds: the middle one of three."""
    script = [sys.executable, "-c", LOOP.format(additions=additions)]
    runs = [subprocess.run(script, capture_output=True, text=True, check=True) for _ in range(3)]
    return median(float(run.stdout) for run in runs)


def cpu_of(command: Sequence[str]) -> tuple[int, float]:
    """How a command ends, and the CPU seconds of it and of every process that it waited for."""
    settings = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before = os.times()  # without bytecode on disk, every process would compile the same files again
    code = subprocess.run(command, check=False, env=settings).returncode
    after = os.times()
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    return code, spent


def summary(spent: float, loop: float) -> str:
    """The closing line: seconds spent, seconds allowed, and a warning where they are too many."""
    allowed = ALLOWED * loop
    line = f"quick tier: {spent:.0f} CPU s of {allowed:.0f} (loop of 10 million additions: {loop:.2f} s)"
    if spent <= allowed:
        return line
    return f"{line}\nWARNING: over budget: make the slowest quick tests cheaper, or mark them slow"


def main(arguments: Sequence[str]) -> int:
    """Run pytest with these arguments."""
    loop = loop_seconds()
    given = [word for word in arguments if word != STRICT]
    code, spent = cpu_of([sys.executable, "-m", "pytest", *given])
    print(summary(spent, loop), flush=True)
    return code or int(STRICT in arguments and spent > SLACK * ALLOWED * loop)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
