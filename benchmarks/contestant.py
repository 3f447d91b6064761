"""One contestant in a process of its own: measures, and prints one line of JSON."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from pathlib import Path
from typing import Any

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import worlds
from benchmarks.measurement import peak_mb

CONTESTANTS: dict[str, tuple[str, dict[str, Any]]] = {  # name → module with `measure`, and its options
    "engine": ("benchmarks.engine", {}),
    "loop": ("benchmarks.loop", {}),
    "loop-tuned": ("benchmarks.loop", {"tuned": True}),
    "centralised": ("benchmarks.centralised", {}),
}


def main() -> None:
    """Measure what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=CONTESTANTS)
    parser.add_argument("--shape", choices=worlds.SHAPES, required=True)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    module, extra = CONTESTANTS[options.name]
    world = worlds.make(options.shape)
    measure = importlib.import_module(module).measure
    found = measure(world, workers=options.workers, rounds=options.rounds, **extra)
    found["peak_mb"] = peak_mb() + found.pop("workers_mb", 0.0)
    found["world"] = world.digest()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
