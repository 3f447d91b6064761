"""What noise costs: rounds under APM and FedRec-GN against undefended ones of the same run.

``python -m benchmarks.noise`` prints CPU seconds a round (of all threads together, so that other programs on
the machine disturb little) and the ratio to the undefended round. Rounds of all arms are run in turn. The
loops of the noise are compiled where numba is there; ``--plain`` measures without.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from benchmarks import engine, worlds
from benchmarks.harness import arguments, table
from benchmarks.worlds import World
from veilrec.defence import Defence
from veilrec.defences.apm import APM
from veilrec.defences.gaussian import Gaussian
from veilrec.defences.noise import compiled
from veilrec.defences.none import Undefended
from veilrec.models.fedgcn import FedGCN
from veilrec.rounds import Federation

ARMS: dict[str, Defence] = {
    "none": Undefended(),
    "apm, touched rows": APM(rows="touched"),
    "apm, all rows": APM(rows="all"),
    "gaussian, touched rows": Gaussian(rows="touched"),
}


def federations(world: World, workers: int) -> dict[str, Federation]:
    """The least work that a client can do in a round, and what the paper of APM and our recipe have it do."""
    one_step = engine.federation(world, workers, 1)
    model = FedGCN(world.shape.items, dim=64, head=(64,))
    plan = replace(one_step.plan, epochs=5, batch=32, lr=0.01, cohort=0.1)  # a tenth: steps are many
    recipe = replace(one_step.plan, batch=4096, lr=10.0, cohort=0.5)  # papers/apm/fedrec.toml
    return {
        "FedNCF, one step": one_step,
        "FedGCN, one step": _but(one_step, model=model, plan=recipe),
        "FedGCN, five epochs": _but(one_step, model=model, plan=plan),
    }


def _but(federation: Federation, **changes: Any) -> Federation:
    """The same federation with other settings, and a defence that attaches nothing."""
    fleet = replace(federation.fleet, **changes)
    return Federation(fleet, fleet.protocol.make_server(fleet.shape))


def cost(federation: Federation, rounds: int) -> dict[str, float]:
    """The median of some rounds under each defence, in CPU seconds."""
    runs = {name: _rounds(_but(federation, defence=defence)) for name, defence in ARMS.items()}
    spent: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(rounds + 1):  # the first is not timed
        for name, run in runs.items():
            start = time.process_time()
            next(run)
            if turn:
                spent[name].append(time.process_time() - start)
    return {name: statistics.median(times) for name, times in spent.items()}


def _rounds(federation: Federation) -> Iterator[Any]:
    return federation.rounds(federation.start(), until=10**6)


def main() -> None:
    """Print a table for each model."""
    parser = arguments(__doc__, workers=1)
    parser.add_argument("--plain", action="store_true", help="without compiled loops")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.plain:
        compiled.MANY = 1 << 62
    loops = "compiled" if compiled.loops(1 << 61) else "numpy's"
    for title, federation in federations(worlds.make(options.shape), options.workers).items():
        found = cost(federation, options.rounds)
        rows = [[name, f"{s:.3f}", f"{s / found['none']:.2f}"] for name, s in found.items()]
        print(f"\n{title} ({options.shape}, workers: {options.workers}, loops: {loops})\n")
        print(table(["defence", "CPU s a round", "÷ none"], rows), flush=True)


if __name__ == "__main__":
    main()
