"""The examples of catalogue entries and what they cost: CPU seconds of each, beside a limit.

``python -m tests.example_cost`` names the dearest one, and ends with 1 where it is over. The cheaper one of
two runs counts, as the first one of a process pays for what torch sets up once; the limit grows with the
seconds that a plain loop takes, as the budget of the quick tests does.
"""

from __future__ import annotations

import doctest
import time
from collections.abc import Iterator

from tests.budget import loop_seconds
from veilrec.recipe import catalogue

ALLOWED = 0.3 / 0.6  # CPU seconds of an example for each second that the loop takes


def examples() -> Iterator[doctest.DocTest]:
    """The examples of all entries that are ours."""
    finder = doctest.DocTestFinder(recurse=False)
    for kind in catalogue.KINDS:
        for name, entry in catalogue.entries(kind).items():
            if entry.__module__.startswith("veilrec."):
                yield from (test for test in finder.find(entry, f"{kind}/{name}") if test.examples)


def cpu_of(test: doctest.DocTest) -> float:
    """CPU seconds of an example."""
    began = time.process_time()
    doctest.DocTestRunner(verbose=False).run(test, out=lambda _: None, clear_globs=False)
    return time.process_time() - began


def main() -> int:
    """Measure all of them."""
    allowed = ALLOWED * loop_seconds()
    spent, name = max((min(cpu_of(test), cpu_of(test)), test.name) for test in examples())
    print(f"dearest example: {name}, {spent:.2f} CPU s of {allowed:.2f}")
    return int(spent > allowed)


if __name__ == "__main__":
    raise SystemExit(main())
