"""``python benchmarks/ranks_cost.py``: seconds and memory of a run on one rank, on two and on four.

``--only memory`` is many clients and items, in one pass: the most memory that the leader had, and the largest
of the other ranks. Devices have a perceptron of their own (``networks``: FedNCF under Adam, 6.7 kB a device,
in memory), or item tables of their own (``tables``: FedRAP, so many rows that each device has a file).

``--only speed`` is FedNCF on the shape of MovieLens-1M and of MovieLens-100K: one thread, several threads of
one process (``plan.workers``), and several ranks of one thread each, in turn. Printed are seconds a round on
the wall (the median and the least), CPU seconds a round of all threads, and how much of these the busiest
thread had: no more can overlap than the rest. Starting and the first round are left out. ``--most`` leaves
out the ways that need more cores.

Each run prints a line of JSON as it ends, the tables come last: what was cut off still tells.
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
from benchmarks.harness import table

TREE = Path(__file__).parents[1]
DEADLINE = 3600.0
TORCHRUN = ("-m", "torch.distributed.run", "--standalone")  # a port of its own: runs may stand side by side
TICK = 1 / os.sysconf("SC_CLK_TCK")
SPEED = """
seed = 0
[data]
name = "synthetic"
users = {users}
items = {items}
events = {events}
[model]
name = "FedNCF"
dim = 64
head = [64, 32]
[plan]
rounds = {rounds}
evaluate_every = {rounds}
workers = {workers}
[evaluation]
candidates = 100
"""
SHAPES = {"ml-1m": (6040, 3706, 1_000_209, 4), "ml-100k": (943, 1682, 98_114, 9)}  # and rounds
WAYS = {  # ranks, and threads of each
    "one thread": (1, 1),
    "two threads": (1, 2),
    "two ranks": (2, 1),
    "four threads": (1, 4),
    "four ranks": (4, 1),
}
MEMORY = """
seed = 0
[data]
name = "synthetic"
users = {clients}
items = {items}
events = {events}
[model]
{model}
[plan]
passes = 1
order = "deal"
cohort = 0.1
evaluate_every = 1
workers = 1
{plan}
[evaluation]
validation = false
candidates = 20
"""
NETWORKS = 'name = "FedNCF"\ndim = 16\nhead = [16]\nsharing = "private"'
OWN = {  # what each device has of its own: a model, and how it is stepped
    "networks": (NETWORKS, 'optimiser = "adam"\nlr = 0.01'),
    "tables": ('name = "FedRAP"\ndim = 16', ""),
}


class Cost(NamedTuple):
    """What a run took."""

    rounds_s: list[float]  # on the wall, all but the first and the last
    threads_s: list[float]  # of the CPU in these rounds, thread by thread, the busiest first
    cpu_s: float  # of all processes, starting Python included
    peaks_mb: dict[int, float]  # the most memory of each rank


class Watch:
    """Looks at the ranks of a run while it lasts: their memory, and what their threads have worked."""

    def __init__(self, out: Path, rounds: int) -> None:
        self.out, self.rounds = out, rounds
        self.peaks: dict[int, float] = {}
        self.worked: dict[int, dict[str, float]] = {}  # rounds that were over → thread → seconds by then

    def __call__(self, process: subprocess.Popen[bytes]) -> None:
        while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            found = ranks_of(self.out)
            for rank, folder in found.items():
                self.peaks[rank] = max(self.peaks.get(rank, 0.0), peak(folder))
            done = len(rows_of(self.out))
            if done in (1, self.rounds - 1) and done not in self.worked:
                threads = {rank: threads_of(folder) for rank, folder in found.items()}
                self.worked[done] = {f"{r} {n}": v for r, own in threads.items() for n, v in own.items()}
            time.sleep(0.05)

    def between(self) -> list[float]:
        """The CPU seconds of each thread in all rounds but the first and the last."""
        before, after = self.worked.get(1, {}), self.worked.get(self.rounds - 1, {})
        return sorted((value - before.get(name, 0.0) for name, value in after.items()), reverse=True)


def ranks_of(out: Path) -> dict[int, Path]:
    """The processes of a run, by rank."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            line = (folder / "cmdline").read_bytes()
            told = (folder / "environ").read_bytes().split(b"\0")
        except OSError:  # it has ended meanwhile
            continue
        if str(out).encode() in line and b"torch.distributed.run" not in line:
            rank = next((entry.partition(b"=")[2] for entry in told if entry.startswith(b"RANK=")), b"0")
            found[int(rank)] = folder
    return found


def peak(folder: Path) -> float:
    """The most memory that a process has had, in megabytes; 0 where it has ended."""
    try:
        status = (folder / "status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM")), 0.0)


def threads_of(folder: Path) -> dict[str, float]:
    """Thread → the CPU seconds that it has worked."""
    found = {}
    for stat in (folder / "task").glob("*/stat"):
        try:
            fields = stat.read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:
            continue
        found[stat.parent.name] = TICK * (int(fields[11]) + int(fields[12]))
    return found


def rows_of(out: Path) -> list[dict[str, float]]:
    """The seconds of the rounds so far."""
    journal = out / "timing.jsonl"
    lines = journal.read_text(encoding="utf-8").splitlines(keepends=True) if journal.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def run(recipe: str, ranks: int, rounds: int) -> Cost:
    """One run on so many ranks.

    Raises:
        SystemExit: Where it fails.
    """
    with tempfile.TemporaryDirectory(prefix="ranks-cost-") as place:
        path, out = Path(place, "recipe.toml"), Path(place, "run")
        path.write_text(recipe, encoding="utf-8")
        torchrun = (*TORCHRUN, "--nproc-per-node", str(ranks)) if ranks > 1 else ()
        order = [*torchrun, *trees.CLI, "run", str(path), "--out", str(out), "--quiet", "--no-world"]
        watch = Watch(out, rounds)
        ended = trees.start(TREE, order, watch, deadline=DEADLINE)
        if ended.code:
            raise SystemExit(f"{ranks} ranks: {ended.reason}")
        took = [row["train"] for row in rows_of(out)]
    return Cost(took[1:-1] or took, watch.between(), ended.seconds, watch.peaks)


def tell(cost: Cost, **about: str | int) -> None:
    """A line of JSON: what was run, and what it took."""
    print(json.dumps({**about, **cost._asdict()}), flush=True)


def speed(shape: str, repeats: int, most: int) -> list[list[str]]:
    """The rows of a shape: every way in turn, and that several times, since others may use the machine."""
    users, items, events, rounds = SHAPES[shape]
    ways = {way: each for way, each in WAYS.items() if max(each) <= most}
    costs: dict[str, list[Cost]] = {way: [] for way in ways}
    for _ in range(repeats):
        for way, (ranks, workers) in ways.items():
            recipe = SPEED.format(users=users, items=items, events=events, rounds=rounds, workers=workers)
            costs[way].append(run(recipe, ranks, rounds))
            tell(costs[way][-1], shape=shape, way=way)
    return [[shape, way, *_speed(some, rounds - 2)] for way, some in costs.items()]


def _speed(costs: Sequence[Cost], counted: int) -> list[str]:
    wall = [seconds for cost in costs for seconds in cost.rounds_s]
    cpu = statistics.median(sum(cost.threads_s) / counted for cost in costs)
    busiest = statistics.median(cost.threads_s[0] / max(sum(cost.threads_s), TICK) for cost in costs)
    whole = statistics.median(cost.cpu_s for cost in costs)
    return [
        f"{statistics.median(wall):.2f}",
        f"{min(wall):.2f}",
        f"{cpu:.2f}",
        f"{busiest:.0%}",
        f"{whole:.0f}",
    ]


def memory(options: argparse.Namespace) -> list[list[str]]:
    """A row for each number of ranks."""
    world = {name: getattr(options, name) for name in ("clients", "items", "events")}
    world["model"], world["plan"] = OWN[options.own]
    rows = []
    for ranks in options.ranks:
        cost = run(MEMORY.format(**world), ranks, 10)
        others = [value for rank, value in cost.peaks_mb.items() if rank]
        largest = f"{max(others):.0f}" if others else "-"
        rows.append([str(ranks), f"{cost.peaks_mb.get(0, 0.0):.0f}", largest, f"{cost.cpu_s:.0f}"])
        tell(cost, own=options.own, ranks=ranks)
    return rows


def main(given: Sequence[str] | None = None) -> int:
    """Measure, and print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=("speed", "memory"))
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--most", type=int, default=os.cpu_count() or 1, help="threads, or ranks, of a run")
    parser.add_argument("--ranks", nargs="+", type=int, default=[1, 2, 4])
    parser.add_argument("--clients", type=int, default=100_000)
    parser.add_argument("--items", type=int, default=50_000)
    parser.add_argument("--events", type=int, default=2_000_000)
    parser.add_argument("--own", choices=OWN, default="networks")
    options = parser.parse_args(given)
    if options.only != "memory":
        rows = [row for shape in options.shapes for row in speed(shape, options.repeats, options.most)]
        head = ["median s", "least s", "CPU s", "of it the busiest thread", "CPU s in all"]
        print(table(["shape", "", *head], rows))
    if options.only != "speed":
        head = ["ranks", "peak MB of the leader", "of the largest other rank", "CPU s in all"]
        print(table(head, memory(options)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
