"""What PARD costs: rounds with estimators on every device against undefended ones of the same world.

``python -m benchmarks.pard`` prints wall and CPU seconds a round and the peak memory of the process; each arm
runs in a process of its own. Three attributes with 2, 3 and 21 classes, vectors of 64, a fifth of the users
consent, batches of 256 with five negatives, one step of the estimators before each step of the recommender.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
import time
from dataclasses import replace

import torch

from benchmarks import engine, worlds
from benchmarks.harness import DEADLINE, arguments, say, table
from benchmarks.measurement import peak_mb
from benchmarks.process import calmest
from veilrec.defence import Defence
from veilrec.defences.none import Undefended
from veilrec.defences.pard import PARD
from veilrec.model import Recommender
from veilrec.models.fedlightgcn import FedLightGCN
from veilrec.models.fedncf import FedNCF
from veilrec.rounds import Federation

CLASSES = {"gender": 2, "age": 3, "occupation": 21}
CONSENT = 0.2
ARMS: dict[str, tuple[type[Recommender], Defence]] = {
    "FedNCF": (FedNCF, Undefended()),
    "FedNCF, pard": (FedNCF, PARD()),
    "FedNCF, pard, all of D_pub": (FedNCF, PARD(public_share=1.0)),
    "FedNCF, pard, each item by itself": (FedNCF, PARD(reads="positives")),
    "FedLightGCN, pard": (FedLightGCN, PARD()),
}


def federation(shape: str, arm: str, workers: int, device: str) -> Federation:
    """The world of the other benchmarks, of whose people some post."""
    plain = engine.federation(worlds.make(shape), workers, 1)
    clients = engine.labelled(plain.clients, CLASSES, CONSENT)
    model, defence = ARMS[arm]
    made, plan = model(clients.log.n_items, dim=64), replace(plain.plan, negatives=5)
    return Federation.of(clients, made, plain.protocol, defence, plan, device=device)


def measure(shape: str, arm: str, workers: int, rounds: int, device: str) -> dict[str, float]:
    """The median of some rounds after two that are not timed: before those nobody has posted anything."""
    fed = federation(shape, arm, workers, device)
    run, spent = fed.rounds(fed.start(), until=10**6), []
    for turn in range(rounds + 2):
        wall, cpu = time.perf_counter(), time.process_time()
        next(run)
        if device != "cpu":
            torch.cuda.synchronize()
        if turn > 1:
            spent.append((time.perf_counter() - wall, time.process_time() - cpu))
    walls, cpus = zip(*spent, strict=True)
    found = {"wall": statistics.median(walls), "least": min(walls), "cpu": statistics.median(cpus)}
    if device != "cpu":
        found["gpu_mb"] = torch.cuda.max_memory_allocated() / 2**20
    return found | {"peak_mb": peak_mb()}


def main() -> None:
    """Print a table, one row an arm."""
    parser = arguments(__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--arm", choices=ARMS, help="measure this one in this process, as a line of JSON")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.arm:
        print(
            json.dumps(measure(options.shape, options.arm, options.workers, options.rounds, options.device))
        )
        return
    rows = []
    for arm in ARMS:
        say(arm)
        found = calmest([*sys.orig_argv, "--arm", arm], DEADLINE, math.inf).report
        rows.append(
            [arm, *(f"{found[key]:.2f}" for key in ("wall", "least", "cpu")), f"{found['peak_mb']:.0f}"]
        )
    print(f"{options.shape}, workers: {options.workers}, {options.device}\n")
    print(table(["arm", "s a round", "fastest", "CPU s", "peak MB"], rows), flush=True)


if __name__ == "__main__":
    main()
