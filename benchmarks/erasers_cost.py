"""``python -m benchmarks.erasers_cost``: CPU seconds of erasers, on one thread.

Vectors are noise in which classes differ in means and spreads; three shapes: MovieLens-1M's users with gender
and with occupation, and ModCloth's. A sweep is one exchange of ranks along all columns. The least of some
repeats is printed, for other programs only ever add to it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

for _library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from torch import Tensor

from benchmarks.harness import say, table
from veilrec.base.draws import Draws
from veilrec.base.keys import Keys
from veilrec.eraser import AttributeEraser, Request
from veilrec.erasers.common.null import Survey
from veilrec.erasers.common.ranks import Coordinates
from veilrec.erasers.common.sums import Holder
from veilrec.recipe import catalogue

SHAPES = {"gender": (6040, 2), "occupation": (6040, 21), "ModCloth": (44_784, 7)}
WIDTH, SMALL = 128, 60
NAMES = ("LEACE", "LeaceNull", "GaussianTransport", "Lethe", "AegisCS", "D2D", "U2U", "Obliviator")
SWEEP = "Lethe, a sweep"
USUAL = ("LEACE", "LeaceNull", "GaussianTransport", "Lethe")


def world(users: int, classes: int) -> tuple[Tensor, Request]:
    """Vectors of users, and the request that all of them make."""
    keys = Keys.seed(0)
    label = keys.choose(-torch.arange(classes).expand(users, -1) / 4)
    far, wide = (keys.fold(name).normal(classes, WIDTH) for name in ("mean", "spread"))
    vectors = keys.normal(users, WIDTH) * (0.1 * wide[label]).exp() + 0.2 * far[label]
    return vectors, Request({"attribute": label}, {"attribute": classes})


def seconds(work: Callable[[], object], repeats: int) -> float:
    """The least CPU seconds of some repeats."""
    found = []
    for _ in range(repeats):
        began = time.process_time()
        work()
        found.append(time.process_time() - began)
    return min(found)


def sweep(vectors: Tensor, request: Request) -> Callable[[], object]:
    """One exchange of ranks: what a holder counts, the map, and its vectors after it."""
    draws, step = Draws(Keys.seed(1)), Coordinates()
    held = Holder(vectors, request, draws).held("attribute", needs_labels=True)
    letter = Survey().fit(Survey().statistics(held, {}), {}, draws)
    return lambda: step.apply(step.fit(step.statistics(held, letter), letter, draws), held)


def cost(name: str, vectors: Tensor, request: Request, repeats: int) -> float:
    """CPU seconds of an eraser, or of a sweep."""
    if name == SWEEP:
        return seconds(sweep(vectors, request), repeats)
    eraser = catalogue.build("erasers", name, {})
    if not isinstance(eraser, AttributeEraser):
        raise TypeError(f"{name} erases no attribute")
    return seconds(lambda: eraser.forget(vectors, request, Draws(Keys.seed(1))), repeats)


def main(given: Sequence[str] | None = None) -> int:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=[*NAMES, SWEEP], default=[*USUAL, SWEEP])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="tiny shapes: shows that it works, no more")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(given)
    torch.set_num_threads(1)
    found: dict[str, dict[str, float]] = {name: {} for name in options.only}
    for shape, (users, classes) in SHAPES.items():
        vectors, request = world(SMALL * classes if options.quick else users, classes)
        for name, row in found.items():
            say(f"{shape}: {name}")
            row[shape] = cost(name, vectors, request, options.repeats)
    head = [
        "CPU seconds",
        *(f"{shape} {users:,}, {classes} classes" for shape, (users, classes) in SHAPES.items()),
    ]
    rows = [[name, *(f"{one:.3f}" for one in row.values())] for name, row in found.items()]
    print(json.dumps(found) if options.json else table(head, rows))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
