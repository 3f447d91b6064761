"""``python -m benchmarks.erasers OUT``: every eraser on fresh trainings, against every family of readers.

Recommenders are trained by ten silos (FedMF under BPR with 128 numbers a user, and FedNCF in its NeuMF form
with 64 and 64) on MovieLens-100K and -1M, whose folders lie in VEILREC_DATA_DIR. Then each eraser makes all
users forget gender, age in seven groups, occupation, or all three. Seven families of readers try to find out
what is left, with a fifth and with four fifths of all labels known; beside them stand the floor of the same
readers on labels that were dealt out again, usefulness with paired intervals, and CPU seconds. A tenth of the
users asks alone; a hundred ask one after the other; lists of recommendations are read as well.

OUT gets ``results.jsonl``, a line a cell as soon as it is done, and the trained vectors: the same command
goes on where it was stopped. ``--list`` prints what there is to do. Three trainings of FedMF on each dataset,
and of FedNCF three on the small one and one on the large; on the large one rivals are run on one training,
with three splits for gender and two for the others. It took 170 CPU minutes, on slow cores that were busy.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from pathlib import Path
from typing import Any

for _library in ("OMP", "OPENBLAS", "MKL"):  # before torch comes: processes work side by side
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.erasing.cells import ALL, ATTRIBUTES, TOLD, Cell, done, known_erasers
from benchmarks.erasing.trained import DATASETS, MODELS
from benchmarks.harness import say

SEEDS = (201, 202, 203)
RESULTS = "results.jsonl"
OURS = ("original", "Lethe")
JOINT = ("LeaceNull", "GaussianTransport", "AegisCS", "Lethe")  # also erase three attributes at once
ASKED = ("original", "Lethe", "LeaceNull", "Obliviator 1")  # of requests by a few
FEW = ("original", "LeaceNull", "GaussianTransport", "AegisCS", "Lethe")  # on FedNCF, and in lists
SLOW = ("Obliviator 2",)  # left out on ML-1M
TRAININGS = {("ml-1m", "fedncf"): 1}  # of the seeds; else all


def planned(datasets: Sequence[str], models: Sequence[str], seeds: Sequence[int]) -> Iterator[Cell]:
    """All cells, those that take longest first."""
    there = known_erasers()
    for dataset in sorted(datasets, key=["ml-1m", "ml-100k", "toy"].index):
        for model in models:
            for place, seed in enumerate(seeds[: TRAININGS.get((dataset, model), len(seeds))]):
                yield Cell("train", dataset, model, seed)
                yield from _erasures(
                    dataset, model, seed, [one for one in there if _wanted(one, dataset, model, place)]
                )
                if model == "fedmf":
                    yield from _others(dataset, seed, place, there)


def _wanted(eraser: str, dataset: str, model: str, place: int) -> bool:
    """Whether an eraser is run on a training, which has a place among the seeds."""
    if eraser in OURS:
        return True
    if model == "fedncf" and eraser not in FEW:
        return False
    return dataset != "ml-1m" or (place == 0 and eraser not in SLOW)


def _erasures(dataset: str, model: str, seed: int, erasers: Sequence[str]) -> Iterator[Cell]:
    large = dataset == "ml-1m"
    for target in (ALL, *reversed(TOLD.get(dataset, ATTRIBUTES))):
        for eraser in erasers:
            untargeted = eraser == "original" or eraser.startswith("noise")
            if untargeted != (target == ALL) and not (target == ALL and eraser in JOINT and model == "fedmf"):
                continue  # what knows no attribute is run once, and read for each
            rival = large and eraser not in OURS
            splits = (
                1 if rival and target == ALL and not untargeted else 2 if rival and target != "gender" else 3
            )
            yield Cell("erase", dataset, model, seed, eraser, target, splits)


def _others(dataset: str, seed: int, place: int, there: Sequence[str]) -> Iterator[Cell]:
    for eraser in ASKED if place == 0 or dataset != "ml-1m" else ASKED[:2]:
        if eraser in there:
            yield Cell("requests", dataset, "fedmf", seed, eraser, "gender", 3)
    if place == 0:
        for eraser in FEW:
            if eraser in there:
                yield Cell("lists", dataset, "fedmf", seed, eraser, "gender", 2)
    yield Cell("stream", dataset, "fedmf", seed, "LeaceNull", "gender")


def finished(path: Path) -> dict[str, dict[str, Any]]:
    """What is there already, by key: a line that was cut off, or that says what failed, is not."""
    found = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if "error" not in row:
            found[row["key"]] = row
    return found


def attempt(cell: Cell, folder: Path) -> dict[str, Any]:
    """The row of a cell, or what went wrong."""
    import torch

    torch.set_num_threads(1)
    try:
        return done(cell, folder)
    except Exception as error:  # one eraser that fails must not cost the work of all others
        return {"key": cell.key, **cell._asdict(), "error": f"{type(error).__name__}: {error}"}


def work(cells: Sequence[Cell], folder: Path, jobs: int) -> int:
    """Do what is left to do, side by side, and return how many failed."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / RESULTS
    there = finished(path)
    left = [cell for cell in cells if cell.key not in there]
    trained = {key for key, row in there.items() if row["kind"] == "train"}
    say(f"{len(left)} of {len(cells)} cells are left")
    failed, running = 0, dict[Future[dict[str, Any]], Cell]()
    with path.open("a", encoding="utf-8") as out, ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        while left or running:
            ready = [cell for cell in left if cell.kind == "train" or training(cell) in trained]
            for cell in sorted(ready, key=lambda one: one.kind != "train")[: jobs - len(running)]:
                left.remove(cell)
                running[pool.submit(attempt, cell, folder)] = cell
            if not running:
                say(f"{len(left)} cells have no training, which failed")
                return failed + len(left)
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                cell, row = running.pop(future), future.result()
                out.write(json.dumps(row) + "\n")
                out.flush()
                failed += "error" in row
                if cell.kind == "train" and "error" not in row:
                    trained.add(cell.key)
                ended = row.get("error", f"{row.get('cpu')} s")
                say(f"{len(left) + len(running)} left: {cell.key} {ended}")
    return failed


def training(cell: Cell) -> str:
    """The key of the training that a cell needs."""
    return Cell("train", cell.dataset, cell.model, cell.seed).key


def main(given: Sequence[str] | None = None) -> int:
    """Do it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, metavar="OUT")
    parser.add_argument("--jobs", type=int, default=max(1, os.cpu_count() or 1))
    parser.add_argument("--dataset", nargs="+", choices=DATASETS, default=list(DATASETS[:2]))
    parser.add_argument("--model", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="PART", help="cells whose key has one of these"
    )
    parser.add_argument("--list", action="store_true", help="print the keys of all cells, and end")
    options = parser.parse_args(given)
    cells = list(planned(options.dataset, options.model, options.seeds))
    if options.only:
        chosen = [cell for cell in cells if any(part in cell.key for part in options.only)]
        needed = {training(cell) for cell in chosen}
        cells = [cell for cell in cells if cell in chosen or cell.key in needed]
    if options.list:
        print("\n".join(cell.key for cell in cells))
        return 0
    return 1 if work(cells, options.out, options.jobs) else 0


if __name__ == "__main__":
    raise SystemExit(main())
