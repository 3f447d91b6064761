"""``python benchmarks/ranks_cost.py``: seconds and memory of a run on one rank, on two and on four.

Speed is FedNCF on the shape of MovieLens-1M, memory a model with item tables of each device's own (FedRAP)
on many clients and items. Printed are seconds a round on the wall (the median), CPU seconds of all processes
and the most memory that any one rank had.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import trees
from benchmarks.harness import say, table

TREE = Path(__file__).parents[1]
DEADLINE = 3600.0
SPEED = """
seed = 0
[data]
name = "synthetic"
users = 6040
items = 3706
events = 1000209
[model]
name = "FedNCF"
dim = 64
head = [64, 32]
[plan]
rounds = {rounds}
evaluate_every = {rounds}
workers = 1
[evaluation]
candidates = 100
"""
MEMORY = """
seed = 0
[data]
name = "synthetic"
users = {clients}
items = {items}
events = {events}
[model]
name = "FedRAP"
dim = 16
[plan]
passes = 1
order = "deal"
cohort = 0.1
evaluate_every = 1
workers = 1
[evaluation]
validation = false
candidates = 20
"""


class Cost(NamedTuple):
    """What a run took."""

    ranks: int
    round_s: float  # on the wall, the median of all rounds but the first
    cpu_s: float  # of all processes, starting Python included
    peak_mb: float  # of the largest rank


def run(recipe: str, ranks: int) -> Cost:
    """One run on so many ranks.

    Raises:
        SystemExit: Where it fails.
    """
    with tempfile.TemporaryDirectory(prefix="ranks-cost-") as place:
        path, out = Path(place, "recipe.toml"), Path(place, "run")
        path.write_text(recipe, encoding="utf-8")
        torchrun = ("-m", "torch.distributed.run", "--nproc-per-node", str(ranks)) if ranks > 1 else ()
        order = [*torchrun, *trees.CLI, "run", str(path), "--out", str(out), "--quiet", "--no-world"]
        peaks: dict[int, float] = {}

        def watch(process: subprocess.Popen[bytes]) -> None:
            while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                peaks.update(_peaks(str(out), ranks))
                time.sleep(0.2)

        ended = trees.start(TREE, order, watch, deadline=DEADLINE)
        if ended.code:
            raise SystemExit(f"{ranks} ranks: {ended.reason}")
        rows = (out / "timing.jsonl").read_text(encoding="utf-8").splitlines()
        took = [json.loads(row) for row in rows]
    seconds = [row["train"] for row in took[1:] or took]
    return Cost(ranks, statistics.median(seconds), ended.seconds, max(peaks.values(), default=0.0))


def _peaks(name: str, ranks: int) -> dict[int, float]:
    """Process → the most memory it has had, of every rank of a run."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            line = (folder / "cmdline").read_bytes()
            if name.encode() not in line or (ranks > 1 and b"torch.distributed.run" in line):
                continue
            status = (folder / "status").read_text(encoding="utf-8").splitlines()
        except OSError:  # it has ended meanwhile
            continue
        found[int(folder.name)] = next(int(s.split()[1]) / 1024 for s in status if s.startswith("VmHWM"))
    return found


def main(given: Sequence[str] | None = None) -> int:
    """Measure, and print two tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", nargs="+", type=int, default=[1, 2, 4])
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--clients", type=int, default=100_000)
    parser.add_argument("--items", type=int, default=50_000)
    parser.add_argument("--events", type=int, default=2_000_000)
    parser.add_argument("--only", choices=("speed", "memory"))
    options = parser.parse_args(given)
    recipes = {
        "speed": SPEED.format(rounds=options.rounds),
        "memory": MEMORY.format(clients=options.clients, items=options.items, events=options.events),
    }
    for what in [options.only] if options.only else recipes:
        rows = []
        for ranks in options.ranks:
            cost = run(recipes[what], ranks)
            rows.append([what, str(ranks), f"{cost.round_s:.2f}", f"{cost.cpu_s:.0f}", f"{cost.peak_mb:.0f}"])
            say(" ".join(rows[-1]))
        print(table(["", "ranks", "wall s a round", "CPU s in all", "peak MB of a rank"], rows))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
