"""The benchmark's round in Flower's simulation engine, with nothing sent anywhere."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks import worlds

QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": str(ROOT),
}


def measure(shape: str, cores: int, rounds: int, folder: str) -> dict[str, Any]:
    """Run the rounds with one simulated node per user, on `cores` Ray actors of one core each."""
    os.environ.update(QUIET, FLWR_HOME=f"{folder}/flower", VEILREC_BENCH_SHAPE=shape)
    # Flower and Ray read their settings when they are imported
    from flwr.simulation import run_simulation

    from benchmarks.peers import flower_app

    world, times, moved = worlds.make(shape), list[float](), list[float]()
    run_simulation(
        flower_app.server(rounds, times, moved),
        flower_app.client,
        num_supernodes=world.shape.users,
        backend_config={
            "client_resources": {"num_cpus": 1},
            "init_args": {"num_cpus": cores, "include_dashboard": False, "_temp_dir": f"{folder}/ray"},
        },
    )
    return {"round_s": times[1:], "clients": world.shape.users, "moved": moved[0], "world": world.digest()}


def main() -> None:
    """Measure what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", choices=worlds.SHAPES, default="ml-100k")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        print(json.dumps(measure(options.shape, options.workers, options.rounds, folder)))


if __name__ == "__main__":
    main()
