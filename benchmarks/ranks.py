"""``python benchmarks/ranks.py``: whether a run on several ranks ends where it ends in one process.

Every case of `bit_cases` runs by its command line in one process, under ``torchrun`` with so many ranks, and
in one process with chunks of another size, which is what rounding alone does. Printed is the largest
difference of any weight of the server's, of any weight that a device keeps, and of any value in the
transcript, device by device; whether metrics, traffic, ledger and findings of attacks are equal; and the
seconds of each run on the wall, starting Python included. With ``--device cuda`` all of them work on GPUs.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from torch import Tensor

from benchmarks import trees
from benchmarks.bit_cases import CASES, DATA, FEDMF, FEDNCF, RENAMED
from benchmarks.harness import say, table
from veilrec.base.params import Params, Rows
from veilrec.cli import finished
from veilrec.wire.transcript import Transcript

TREE = Path(__file__).parents[1]
EVERYBODY = "[plan]\nrounds = 3\nbatch = 16\nchunk = 8\nevaluate_every = 3\nlr = 0.1\n"
ADAM = '[protocol]\nserver = "adam"\nserver_lr = 0.01\n'
LONG = EVERYBODY.replace("rounds = 3", "rounds = 20").replace("evaluate_every = 3", "evaluate_every = 20")
SUMS = "forwards = 7\n"
MORE = {  # where everybody takes part, homes are whole chunks
    "whole-chunks": DATA + FEDNCF + EVERYBODY,
    "whole-chunks-adam": DATA + FEDNCF + ADAM + EVERYBODY,
    "whole-chunks-fedmf": DATA + FEDMF + EVERYBODY,
    "adam-20-rounds": DATA + FEDNCF + ADAM + LONG,
    "adam-20-float64": DATA + FEDNCF + ADAM + LONG + 'precision = "float64"\n',
    "sums-of-seven": DATA + FEDNCF + EVERYBODY + SUMS,
    "one-sum": DATA + FEDNCF + EVERYBODY + 'forwards = "all"\n',
    "dealt": DATA + FEDNCF + EVERYBODY + 'order = "deal"\ncohort = 0.4\n',
}
EVERY = MORE | CASES | RENAMED
EQUAL = ("metrics", "utility", "traffic", "ledger", "privacy")
CHUNK = "7"  # devices, in the run that differs by rounding alone


class Ran(NamedTuple):
    """A finished run, and the seconds that it took on the wall."""

    out: Path
    seconds: float


def run(recipe: Path, out: Path, ranks: int = 1, *more: str) -> Ran:
    """One run of a recipe, in one process or in several.

    Raises:
        SystemExit: With the last line of what it said, where it failed.
    """
    torchrun = ("-m", "torch.distributed.run", "--nproc-per-node", str(ranks)) if ranks > 1 else ()
    order = [*torchrun, *trees.CLI, "run", str(recipe), "--out", str(out), "--quiet", *more]
    began = time.monotonic()
    ended = trees.start(TREE, order)
    if ended.code:
        told = [line for line in ended.errors.splitlines() if "veilrec: error" in line]
        raise SystemExit(f"{recipe.stem}, {ranks} ranks: {(told or [ended.reason])[0]}")
    return Ran(out, time.monotonic() - began)


def held(out: Path) -> tuple[Params, Params]:
    """What a finished run left: the server's weights, and what devices keep, in the order of the clients."""
    opened = finished.reopen(out)
    devices = opened.federation.fleet.devices
    clients = devices.clients().sort().values
    return dict(opened.state.server), {**devices.get(clients), "clients": clients}


def recorded(out: Path) -> Iterator[tuple[str, Tensor]]:
    """Every tensor of a transcript, with the devices of a round in ascending order."""
    path = out / "transcript.safetensors"
    kept = Transcript.open(path) if path.is_file() else None
    for round in kept.rounds if kept else ():
        assert kept is not None
        exchange = kept.exchange(round)
        order = exchange.received.cohort.argsort()
        yield f"{round}/cohort", exchange.received.cohort[order]
        for name, value in exchange.received.values.items():
            tensor = value.value if isinstance(value, Rows) else value
            yield f"{round}/{name}", tensor[order]


def apart(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> float:
    """The largest difference of two tables of tensors; infinite where they do not hold the same."""
    if one.keys() != other.keys() or any(one[name].shape != other[name].shape for name in one):
        return float("inf")
    gaps = [(one[n].double() - other[n].double()).abs().max() for n in one if one[n].numel()]
    return float(torch.stack(gaps).max()) if gaps else 0.0


def told(out: Path) -> dict[str, Any]:
    """What must be equal, as text."""
    result = json.loads((out / "result.json").read_text(encoding="utf-8"))
    rows = (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    whole = {**result, "metrics": [_rounded(json.loads(row)) for row in rows]}
    return {name: json.dumps(_timeless(whole[name]), sort_keys=True) for name in EQUAL}


def _timeless(value: Any) -> Any:
    """A value without the seconds that anything took."""
    if isinstance(value, dict):
        return {name: _timeless(entry) for name, entry in value.items() if name != "seconds"}
    return [_timeless(entry) for entry in value] if isinstance(value, list) else value


def _rounded(row: dict[str, Any]) -> dict[str, Any]:
    """A row of metrics whose loss, a sum over devices in the order of the ranks, is cut to nine digits."""
    return {**row, "loss": float(f"{row['loss']:.9g}")}


def compare(first: Ran, second: Ran) -> list[str]:
    """The cells of a row: differences, what is equal, and how long the second took beside the first."""
    one, other = first.out, second.out
    (server, devices), (server2, devices2) = held(one), held(other)
    gaps = [
        apart(server, server2),
        apart(devices, devices2),
        apart(dict(recorded(one)), dict(recorded(other))),
    ]
    before, after = told(one), told(other)
    told_apart = ["=" if before[n] == after[n] else "≠" for n in EQUAL]
    took = f"{second.seconds:.0f} / {first.seconds:.0f}"
    return [*(f"{gap:.1e}" if gap else "=" for gap in gaps), *told_apart, took]


def main(given: Sequence[str] | None = None) -> int:
    """Compare, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=EVERY, default=list(EVERY), metavar="NAME")
    parser.add_argument("--ranks", nargs="+", type=int, default=[2, 4])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    options = parser.parse_args(given)
    rows, more = [], ("--device", options.device)
    for name in options.only:
        with tempfile.TemporaryDirectory(prefix="ranks-") as place:
            folder = Path(place)
            recipe = folder / f"{name}.toml"
            recipe.write_text(EVERY[name], encoding="utf-8")
            one = run(recipe, folder / "one", 1, *more)
            for ranks in options.ranks:
                cells = compare(one, run(recipe, folder / f"ranks-{ranks}", ranks, *more))
                rows.append([name, f"{ranks} ranks", *cells])
                say(" ".join(rows[-1]))
            cells = compare(one, run(recipe, folder / "chunks", 1, *more, "--set", f"plan.chunk={CHUNK}"))
            rows.append([name, f"chunks of {CHUNK}", *cells])
            say(" ".join(rows[-1]))
    print(
        table(
            ["case", "against one process", "server", "devices", "transcript", *EQUAL, "seconds / of one"],
            rows,
        )
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
