"""`make bench`: the engine against the careful loop and centralised training, from one run.

Every contestant trains all clients of the same synthetic world; see README.md beside this file.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.harness import Contestant, Result, interleaved, say, table

ENTRIES = [("engine", 1), ("engine", 2), ("loop", 1), ("loop", 2), ("loop-tuned", 2), ("centralised", 2)]
CALM = "run a process again where other programs kept more cores busy"
TIMED = {"ml-100k": 3, "ml-1m": 1, "tiny": 1}  # rounds timed in each process
HEAD = [
    "contestant",
    "workers",
    "median s",
    "min s",
    "× loop",
    "× (min)",
    "clients/s",
    "peak MB",
    "ranking s",
    "others",
]


def contestants(shape: str) -> list[Contestant]:
    """The commands that measure one shape."""
    return [Contestant(name, workers, command(name, shape, workers)) for name, workers in ENTRIES]


def command(name: str, shape: str, workers: int) -> list[str]:
    """How to measure one contestant in a process of its own."""
    script = str(Path(__file__).with_name("contestant.py"))
    options = ["--shape", shape, "--workers", str(workers), "--rounds", str(TIMED[shape])]
    return [sys.executable, script, name, *options]


def rows(results: Sequence[Result]) -> list[list[str]]:
    """One line per contestant; `× loop` is the loop's time with as many workers over its own."""
    loops = {result.workers: result for result in results if result.name == "loop" and result.round_s}
    return [_row(result, loops.get(result.workers)) for result in results]


def _row(result: Result, loop: Result | None) -> list[str]:
    if not result.round_s:
        return [result.name, str(result.workers), "failed", *[""] * (len(HEAD) - 3)]
    return [
        result.name,
        str(result.workers),
        f"{result.median_s:.3f}",
        f"{result.min_s:.3f}",
        f"{loop.median_s / result.median_s:.2f}" if loop else "",
        f"{loop.min_s / result.min_s:.2f}" if loop else "",
        f"{result.clients / result.median_s:.0f}",
        f"{result.peak_mb:.0f}",
        f"{min(result.evaluate_s):.3f}" if result.evaluate_s else "",
        f"{statistics.median(result.others):.2f}" if result.others else "",
    ]


def scaling(results: Sequence[Result]) -> dict[str, float]:
    """How many times faster two workers are than one, by contestant."""
    medians = {(result.name, result.workers): result.median_s for result in results if result.round_s}
    return {
        name: medians[name, 1] / medians[name, 2]
        for name, workers in medians
        if workers == 1 and (name, 2) in medians
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, and print tables (or JSON); 1 if a contestant failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", choices=["ml-100k", "ml-1m"], action="append", help="default: both")
    parser.add_argument("--repeats", type=int, default=3, help="processes per contestant, interleaved")
    parser.add_argument("--quick", action="store_true", help="a tiny world once: shows that it runs, no more")
    parser.add_argument("--calm", type=float, default=math.inf, metavar="CORES", help=CALM)
    parser.add_argument("--only", action="append", metavar="NAME", help="leave the other contestants out")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    options = parser.parse_args(arguments)
    shapes = ["tiny"] if options.quick else options.shape or ["ml-100k", "ml-1m"]
    found: dict[str, list[Result]] = {}
    for shape in shapes:
        say(f"world of shape {shape}")
        chosen = [one for one in contestants(shape) if not options.only or one.name in options.only]
        found[shape] = interleaved(chosen, 1 if options.quick else options.repeats, calm=options.calm)
        if not options.json:
            print(f"\n{shape}: one round of all clients\n{table(HEAD, rows(found[shape]))}")
            print(
                "; ".join(f"{name}: 2 workers × {gain:.2f}" for name, gain in scaling(found[shape]).items())
            )
    if options.json:
        summary = {
            shape: {"contestants": [result.as_dict() for result in results], "scaling": scaling(results)}
            for shape, results in found.items()
        }
        print(json.dumps(summary, indent=2))
    return int(any(result.error for results in found.values() for result in results))


if __name__ == "__main__":
    raise SystemExit(main())
