"""``python benchmarks/pairs.py OLD NEW``: CPU seconds and memory of two trees, process by process in turn.

FedNCF on a synthetic world of the shape of MovieLens-100K, in two ways: the command line, with all that
watches a run and writes it down, and the engine alone. Printed is new ÷ old: its mean over pairs of
neighbours, and an interval that holds that mean nine times in ten (Student's t).
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import trees
from benchmarks.harness import say, table

ROUNDS = 12  # of half a second each, beside some two seconds until Python has begun
USERS, ITEMS, EVENTS = 943, 1682, 98_114
RECIPE = f"""
seed = 0
[data]
name = "synthetic"
users = {USERS}
items = {ITEMS}
events = {EVENTS}
[model]
name = "FedNCF"
dim = 64
head = [64, 32]
[plan]
rounds = {ROUNDS}
evaluate_every = {ROUNDS}
workers = 1
"""
Pair = tuple[trees.Ended, trees.Ended]  # of the old tree, of the new one


def bare(tree: Path) -> list[str]:
    """The engine without watches, as arguments for Python.

    What may come to be called otherwise stands here and nowhere else.

    Args:
        tree: Its folder, to be asked where two trees differ: so far all have the same interface.
    """
    return [
        "-c",
        f"""
from functools import partial
from veilrec import Experiment, FedNCF, Plan, synthetic
data = synthetic(users={USERS}, items={ITEMS}, events={EVENTS})
plan = Plan(rounds={ROUNDS}, evaluate_every={ROUNDS}, workers=1)
federation = Experiment(data, partial(FedNCF, dim=64, head=(64, 32)), plan=plan).federation()
federation.run(federation.start(), rounds={ROUNDS})
""",
    ]


def measure(tree: Path, way: str) -> trees.Ended:
    """One process of one tree.

    Raises:
        SystemExit: Where it fails.
    """
    with tempfile.TemporaryDirectory(prefix="pairs-") as place:
        recipe = Path(place) / "recipe.toml"
        recipe.write_text(RECIPE, encoding="utf-8")
        order = [*trees.CLI, "run", str(recipe), "--out", str(Path(place) / "run"), "--quiet"]
        ended = trees.start(tree, bare(tree) if way == "bare" else order)
    if ended.code:
        raise SystemExit(f"{tree}, {way}: {ended.reason}")
    return ended


def alternating(old: Path, new: Path, way: str, pairs: int) -> list[Pair]:
    """Pairs of processes; whoever went second goes first the next time, so that drift favours nobody."""
    found: list[Pair] = []
    for place in range(pairs):
        first, second = (old, new) if place % 2 == 0 else (new, old)
        one, other = measure(first, way), measure(second, way)
        found.append((one, other) if place % 2 == 0 else (other, one))
        before, after = found[-1]
        say(f"{way} {place + 1}/{pairs}: {before.seconds:.2f} s, {after.seconds:.2f} s")
    return found


def interval(ratios: Sequence[float]) -> tuple[float, float, float]:
    """The mean, and the bounds of its interval of 90 %."""
    from scipy.stats import t  # after all processes: what this one weighs would count as theirs

    mean, n = statistics.fmean(ratios), len(ratios)
    if n < 2:
        return mean, math.nan, math.nan
    half = float(t.ppf(0.95, n - 1)) * statistics.stdev(ratios) / math.sqrt(n)
    return mean, mean - half, mean + half


def rows(way: str, pairs: Sequence[Pair]) -> list[list[str]]:
    """A line for seconds and one for memory."""
    found = []
    for what, name in (("CPU seconds", "seconds"), ("peak MB", "peak_mb")):
        values = [(getattr(before, name), getattr(after, name)) for before, after in pairs]
        old, new = (statistics.fmean(side) for side in zip(*values, strict=True))
        mean, low, high = interval([after / before for before, after in values])
        numbers = [f"{old:.2f}", f"{new:.2f}", f"{mean:.4f}", f"{low:.4f} to {high:.4f}"]
        found.append([f"{way}, {what}", *numbers])
    return found


def report(found: Mapping[str, Sequence[Pair]]) -> str:
    """The table of all ways."""
    head = ["", "old", "new", "new ÷ old", "90 % of the mean"]
    return table(head, [line for way, pairs in found.items() for line in rows(way, pairs)])


def main(given: Sequence[str] | None = None) -> int:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("old", type=Path, help="a folder with a veilrec in it")
    parser.add_argument("new", type=Path)
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--only", choices=("watches", "bare"), help="one of the two ways alone")
    options = parser.parse_args(given)
    old, new = trees.check(options.old), trees.check(options.new)
    ways = [options.only] if options.only else ["watches", "bare"]
    for tree in dict.fromkeys((old, new)):
        for way in ways:
            measure(tree, way)  # not counted: Python compiles what it has not seen
    print(report({way: alternating(old, new, way, options.pairs) for way in ways}))
    print(f"\n{options.pairs} pairs; {trees.spent():.0f} CPU seconds")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
