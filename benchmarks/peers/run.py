"""`make bench-peers`: the same round with Flower and pfl-research, in environments of their own."""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
if __package__ in (None, ""):
    sys.path.insert(0, str(ROOT))

from benchmarks import run as bench
from benchmarks.harness import Contestant, Result, interleaved, say, table

INSTALL_DEADLINE = 1800  # seconds
PEERS = [("flower", 2, 1), ("pfl", 1, 3), ("pfl", 2, 3)]  # name, workers, rounds timed in each process
HEAD = ["contestant", "workers", "median s", "min s", "n", "÷ loop × 2", "(min)", "others"]


def python_of(peer: str) -> Path:
    """The interpreter of a peer's own environment, made and filled on first use."""
    folder = ROOT / "build" / "bench-peers" / peer
    python, done = folder / "bin" / "python", folder / "installed.txt"
    requirements = Path(__file__).with_name(f"{peer}.txt")
    wanted = shared_pins() + requirements.read_text()
    if not done.exists() or done.read_text() != wanted:
        say(f"installing {peer} (minutes)")
        _call(sys.executable, "-m", "venv", "--clear", str(folder))
        pins = folder / "constraints.txt"
        pins.write_text(shared_pins())
        pip = [str(python), "-m", "pip", "install", "--quiet", "-c", str(pins)]
        _call(*pip, "torch")  # first and alone: pip then takes the wheel that the pin names
        _call(*pip, "-r", str(requirements))
        done.write_text(wanted)
    return python


def shared_pins() -> str:
    """The versions of torch and numpy that veilrec is tested with; peers clash with some other pins."""
    lines = (ROOT / "constraints.txt").read_text().splitlines(keepends=True)
    return "".join(line for line in lines if line.startswith(("torch==", "numpy==")))


def _call(*command: str) -> None:
    subprocess.run(command, check=True, timeout=INSTALL_DEADLINE, stdout=sys.stderr)


def peers(shape: str) -> list[Contestant]:
    """The commands that measure the peers."""
    found = []
    for name, workers, rounds in PEERS:
        script = str(Path(__file__).with_name(f"{name}_round.py"))
        options = ["--shape", shape, "--workers", str(workers), "--rounds", str(rounds)]
        # Ray's processes are nobody's children, so that what they use cannot be told from other programs
        counted = name != "flower"
        found.append(Contestant(name, workers, [str(python_of(name)), script, *options], counted))
    return found


def rows(results: Sequence[Result]) -> list[list[str]]:
    """One line per contestant; the last columns are its time over that of the loop in two processes."""
    loop = next((r for r in results if (r.name, r.workers) == ("loop", 2) and r.round_s), None)
    return [_row(result, loop) for result in results]


def _row(result: Result, loop: Result | None) -> list[str]:
    name = [result.name, str(result.workers)]
    if not result.round_s:
        return [*name, "failed", *[""] * (len(HEAD) - 3)]
    times = [f"{result.median_s:.3f}", f"{result.min_s:.3f}", str(len(result.round_s))]
    ratios = ["", ""]
    if loop is not None:
        ratios = [f"{result.median_s / loop.median_s:.2f}", f"{result.min_s / loop.min_s:.2f}"]
    return [
        *name,
        *times,
        *ratios,
        f"{statistics.median(result.others):.2f}" if result.name != "flower" else "",
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, and print one table (or JSON); 1 if a contestant failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", choices=["ml-100k", "tiny"], default="ml-100k")
    parser.add_argument("--repeats", type=int, default=3, help="processes per contestant, interleaved")
    parser.add_argument("--calm", type=float, default=math.inf, metavar="CORES", help=bench.CALM)
    parser.add_argument("--only", action="append", metavar="NAME", help="leave the other contestants out")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args(arguments)
    everyone = [*bench.contestants(options.shape), *peers(options.shape)]
    chosen = [one for one in everyone if not options.only or one.name in options.only]
    results = interleaved(chosen, options.repeats, calm=options.calm)
    if options.json:
        print(json.dumps([result.as_dict() for result in results], indent=2))
    else:
        print(f"\n{options.shape}: one round of all clients\n{table(HEAD, rows(results))}")
    return int(any(result.error for result in results))


if __name__ == "__main__":
    raise SystemExit(main())
