"""What FedAU² costs: rounds that unlearn against undefended ones of the same world, in time and in bytes.

``python -m benchmarks.fedau2`` prints, for the three models of papers/fedau2 and a tenth of MovieLens-1M's
clients a round, wall and CPU seconds a round, how many times an undefended round that is, and the same of
the bytes. Rounds of all arms are run in turn. Each model has a process of its own, whose peak memory is told.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from benchmarks import engine, worlds
from benchmarks.harness import DEADLINE, arguments, say, table
from benchmarks.measurement import peak_mb
from benchmarks.process import calmest
from veilrec.base.plan import Plan
from veilrec.defence import Defence
from veilrec.defences.fedau2 import FedAU2
from veilrec.defences.none import Undefended
from veilrec.model import Recommender
from veilrec.models.fedncf import FedNCF
from veilrec.models.fedrap import FedRAP
from veilrec.models.fedvae import FedVAE
from veilrec.protocols.fedavg import FedAvg
from veilrec.rounds import Federation
from veilrec.wire.traffic import Traffic

ARMS: dict[str, Defence] = {
    "none": Undefended(),
    "fedau2": FedAU2(),
    "fedau2, eq. 6": FedAU2(trigger="continuous"),
    "fedau2, plain head": FedAU2(head="plain"),
}
PLAN = Plan(cohort=0.1, epochs=1, batch=4096, optimiser="adam", lr=0.005, evaluate_every=10**6)
PLANS = {
    "FedVAE": replace(PLAN, negatives=0),
    "FedNCF": replace(PLAN, negatives=4),
    "FedRAP": replace(PLAN, negatives=4, batch=128, lr=0.001),
    "FedRAP, projected": replace(PLAN, negatives=4, batch=128, lr=0.001),
}


def model_of(name: str, items: int) -> Recommender:
    """A model as papers/fedau2 has it."""
    if name == "FedVAE":
        return FedVAE(items, anneal=20_000)
    if name == "FedNCF":
        return FedNCF(items, kind="neumf", dim=32, tower_dim=128, head=(128, 64, 32))
    return FedRAP(items, variant="fedau2", dim=32, project=64 if "projected" in name else 0)


def federation(shape: str, model: str, defence: Defence, workers: int, device: str) -> Federation:
    """The world of the other benchmarks, trained as papers/fedau2 trains."""
    clients = engine.labelled(engine.federation(worlds.make(shape), workers, 1).clients, {"gender": 2})
    protocol = FedAvg(sends="gradients", server="adam", server_lr=0.001)
    plan, made = replace(PLANS[model], rounds=10**6, workers=workers), model_of(model, clients.log.n_items)
    return Federation.of(clients, made, protocol, defence, plan, device=device)


def measure(shape: str, model: str, workers: int, rounds: int, device: str) -> dict[str, Any]:
    """Medians of some rounds under each defence, in turn; the first of each is not timed."""
    runs = {name: _rounds(federation(shape, model, arm, workers, device)) for name, arm in ARMS.items()}
    spent: dict[str, list[tuple[float, ...]]] = {name: [] for name in runs}
    for turn in range(rounds + 1):
        for name, run in runs.items():
            wall, cpu = time.perf_counter(), time.process_time()
            row = next(run)
            if device != "cpu":
                torch.cuda.synchronize()
            took = (time.perf_counter() - wall, time.process_time() - cpu)
            if turn:
                spent[name].append((*took, row["up_bytes"], row["down_bytes"]))
    arms = {name: [statistics.median(one) for one in zip(*some, strict=True)] for name, some in spent.items()}
    return {"arms": arms, "peak_mb": peak_mb()}


def _rounds(federation: Federation) -> Iterator[dict[str, int]]:
    """The bytes of round after round, counted as a run counts them."""
    down = federation.protocol.letter(federation.model, federation.plan.dtype)
    traffic = Traffic(down, len(federation.clients))
    for _ in federation.rounds(federation.start(), until=10**6, watch=[traffic]):
        yield traffic.finish()


def main() -> None:
    """Print a table for each model."""
    parser = arguments(__doc__, shape="ml-1m")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--model", choices=PLANS, help="measure this one in this process, as a line of JSON")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.model:
        world = (options.shape, options.model, options.workers, options.rounds, options.device)
        print(json.dumps(measure(*world)))
        return
    for model in PLANS:
        say(model)
        found = calmest([*sys.orig_argv, "--model", model], DEADLINE, math.inf).report
        wall, cpu, up, down = found["arms"]["none"]
        rows = [
            [name, f"{a:.2f}", f"{b:.2f}", *(f"{x:.2f}" for x in (a / wall, b / cpu, c / up, d / down))]
            for name, (a, b, c, d) in found["arms"].items()
        ]
        print(f"\n{model} ({options.shape}, workers: {options.workers}, {options.device})\n")
        print(table(["defence", "s a round", "CPU s", "÷ none", "CPU ÷ none", "up ÷", "down ÷"], rows))
        print(f"\npeak of the process: {found['peak_mb']:.0f} MB", flush=True)


if __name__ == "__main__":
    main()
