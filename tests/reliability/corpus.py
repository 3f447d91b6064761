"""The corpus as goals: of each kind, how many cases were refused as they should be."""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from pathlib import Path

from tests.corpus import Case, cases
from tests.corpus.running import judge
from tests.reliability.cases import Bench, Found, Goal

__all__ = ["goals"]

LEAST = 120  # cases that the corpus must have
WHAT = "one line, the right exit code, nothing written, below 1 GB and 10 s: "


def goals(*, few: bool = False) -> list[Goal]:
    """One for each kind, and one for how many cases there are; of a few, the first quick one of each kind."""
    kinds: dict[str, dict[str, Case]] = defaultdict(dict)
    for case in cases():
        if not (few and (case.slow or kinds[case.kind])):
            kinds[case.kind][case.name] = case
    found = [
        Goal(f"C1.{kind}", f"{WHAT}{kind}", list(named), partial(_one, named))
        for kind, named in kinds.items()
    ]
    size = Goal("C1.size", f"the corpus has at least {LEAST} cases", ["all"], _enough)
    return found if few else [*found, size]


def _one(named: dict[str, Case], bench: Bench, name: str, folder: Path) -> Found:
    verdict = judge(bench.forge, named[name], folder / "x", bench.stock)
    about = f"{verdict.code}, {verdict.seconds:.2f} CPU s, {verdict.peak / 1e6:.0f} MB"
    if verdict.skipped:
        return Found(True, about, verdict.skipped, skipped=True)
    return Found(
        not verdict.faults, about, "; ".join([*verdict.faults, verdict.line[-300:]]) if verdict.faults else ""
    )


def _enough(bench: Bench, name: str, folder: Path) -> Found:
    count = len(cases())
    return Found(count >= LEAST, f"{count} cases", f"{count} cases" if count < LEAST else "")
