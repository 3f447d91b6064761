"""``python -m tests.reliability``: measure the goals, one row of JSON each."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.corpus.stock import Stock
from tests.forge import forge
from tests.reliability import corpus, kills, network, pairs
from tests.reliability.cases import ROOT, Bench, Goal, code_hash

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; ends with 1 where a goal is missed."""
    given = _parser().parse_args(arguments)
    goals = [goal for goal in _goals(given) if not given.only or goal.id.startswith(tuple(given.only))]
    folder = (given.out or ROOT / "build" / "reliability") / code_hash()
    folder.mkdir(parents=True, exist_ok=True)
    missed = 0
    with forge() as ready, (folder / "goals.jsonl").open("a", encoding="utf-8") as file:
        bench = Bench(ready, folder, given.seed, lambda text: print(text, file=sys.stderr, flush=True))
        if given.share:
            for place, goal in enumerate(goals):
                goal.deal(bench, given.share[0] + place, given.share[1])
            return 0
        print(f"seed {given.seed}, {len(goals)} goals, in {folder}", file=sys.stderr, flush=True)
        if given.jobs > 1:
            _prepare(bench)
            _dealt(sys.argv[1:] if arguments is None else arguments, given.jobs)
        for goal in goals:
            row = json.dumps(goal.measure(bench), ensure_ascii=False)
            print(row, flush=True)
            file.write(row + "\n")
            missed += not json.loads(row)["pass"]
    return int(missed > 0)


def _prepare(bench: Bench) -> None:
    """Make what all processes copy from, and measure what nobody disturbs."""
    stock = Stock(bench.stock)
    for make in (stock.run, stock.begun, stock.store, stock.poster):
        make(bench.place("prepared") / "x")
    kills.prepare(bench)


def _dealt(arguments: Sequence[str], jobs: int) -> None:
    """Let so many processes try the cases, each its share; what they did not come to is tried afterwards."""
    command = [sys.executable, "-m", "tests.reliability", *arguments, "--share"]
    processes = [
        subprocess.Popen(
            [*command, str(which), str(jobs)], cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}
        )
        for which in range(jobs)
    ]
    for process in processes:
        process.wait()


def _goals(given: argparse.Namespace) -> list[Goal]:
    found = [*kills.goals(given.kills), *pairs.goals(given.pairs), *corpus.goals(few=given.few)]
    return found if given.few else [*found, *kills.at_each_touch(), *network.goals()]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m tests.reliability", description="Measure the goals of reliability."
    )
    parser.add_argument("--kills", type=int, default=200, help="kills of each kind (200)")
    parser.add_argument("--pairs", type=int, default=40, help="simultaneous pairs of each kind (40)")
    parser.add_argument(
        "--few", action="store_true", help="of the corpus one case of each kind, and no network"
    )
    parser.add_argument("--seed", type=int, default=0, help="decides every draw (0)")
    parser.add_argument("--jobs", type=int, default=1, help="processes that the cases are dealt over (1)")
    parser.add_argument("--share", type=int, nargs=2, metavar=("K", "N"), help="try share K of N alone")
    parser.add_argument("--only", nargs="*", metavar="ID", help="goals whose id begins so")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where rows lie (build/reliability)")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
