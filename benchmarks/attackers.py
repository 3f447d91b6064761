"""``python -m benchmarks.attackers``: how long every attacker takes, and how much of a known leak it finds.

Speed: 6,040 users with 128 features, attributes of 2, 7 and 21 classes, a fifth of the users known, 3 seeds;
beside it the same with 3 folds of the known users held out in turn, as the verdict needs them.
Strength: `tests/leaks.py`, means over the seeds; "share" is AUC above chance over that of the best attacker
there is, Φ(d′/√2) − ½.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from torch import Tensor

from benchmarks.harness import say, table
from tests.leaks import graded, planted
from veilrec.attacks.common.classifiers import CLASSIFIERS, Job, fit_predict
from veilrec.base.keys import Keys

USERS, WIDTH, CLASSES, FOLDS = 6040, 128, (2, 7, 21), 3
SPEED = ["attacker", "family", "seconds", "core seconds", "with 3 folds"]
STRENGTH = ["attacker", "family", "share d′ = 1", "share d′ = 2", "planted AUC", "balanced", "shuffled AUC"]


def work(users: int, seeds: int) -> tuple[Tensor, list[Job]]:
    """Features ``[users, width]`` in which three attributes leak a little, and every seed's known users."""
    keys = Keys.seed(0)
    labels = [keys.fold(classes).choose(-torch.arange(classes).expand(users, -1) / 4) for classes in CLASSES]
    features = keys.normal(users, WIDTH)
    for classes, label in zip(CLASSES, labels, strict=True):
        features += 0.15 * keys.fold("mean").fold(classes).normal(classes, WIDTH)[label]
    jobs = []
    for seed in range(seeds):
        rows = keys.fold("known").fold(seed).order(users)[: users // 5]
        jobs += [Job(rows, label[rows], c, seed) for c, label in zip(CLASSES, labels, strict=True)]
    return features, jobs


def folded(jobs: Sequence[Job]) -> list[Job]:
    """The jobs, and each again without every third of its rows."""
    parts = [torch.arange(len(job.rows)) % FOLDS for job in jobs]
    return [*jobs] + [
        Job(job.rows[part != fold], job.label[part != fold], job.classes, job.seed)
        for job, part in zip(jobs, parts, strict=True)
        for fold in range(FOLDS)
    ]


def speed(name: str, features: Tensor, jobs: Sequence[Job]) -> dict[str, float]:
    """Seconds of the wall, seconds of all cores, and seconds with the folds."""
    fit_predict(name, features[:200], [Job(torch.arange(99), torch.arange(99) % 2, 2)])  # imports
    start, busy = time.perf_counter(), time.process_time()
    fit_predict(name, features, jobs)
    middle, worked = time.perf_counter(), time.process_time()
    fit_predict(name, features, folded(jobs))
    return {"seconds": middle - start, "core": worked - busy, "folds": time.perf_counter() - middle}


def strength(name: str, users: int, seeds: int) -> dict[str, float]:
    """Shares found of graded leaks, of a planted one (its worst of 2 and 3 classes), and what noise gives."""
    found: dict[str, float] = {}
    for separation in (1, 2):
        leaks = [graded(separation, users, seed=seed) for seed in range(seeds)]
        scores = [fit_predict(name, leak.features, [leak.job(k)])[0] for k, leak in enumerate(leaks)]
        shares = [(leak.auc(s) - 0.5) / leak.ideal for leak, s in zip(leaks, scores, strict=True)]
        found[f"share {separation}"] = mean(shares)
    plants = [planted(classes, users) for classes in (2, 3)]
    told = [fit_predict(name, plant.features, [plant.job()])[0] for plant in plants]
    found["planted"] = min(plant.auc(s) for plant, s in zip(plants, told, strict=True))
    found["balanced"] = min(plant.balanced(s) for plant, s in zip(plants, told, strict=True))
    noise = [graded(2, users).shuffled(seed) for seed in range(seeds)]
    guesses = fit_predict(name, noise[0].features, [each.job(k) for k, each in enumerate(noise)])
    found["shuffled"] = mean(each.auc(s) for each, s in zip(noise, guesses, strict=True))
    return found


def main(given: Sequence[str] | None = None) -> int:
    """Measure, and print a table for each part."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=CLASSIFIERS, default=list(CLASSIFIERS))
    parser.add_argument("--part", choices=("speed", "strength"), help="one table alone")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="a tiny world: shows that it works, no more")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(given)
    seeds, small = (1, 300) if options.quick else (options.seeds, 4000)
    features, jobs = work(300 if options.quick else USERS, seeds)
    found: dict[str, dict[str, dict[str, float]]] = {}
    for part in [options.part] if options.part else ["speed", "strength"]:
        for name in options.only:
            say(f"{part}: {name}")
            measured = speed(name, features, jobs) if part == "speed" else strength(name, small, seeds)
            found.setdefault(part, {})[name] = measured
    print(json.dumps(found) if options.json else report(found))
    return 0


def report(found: Mapping[str, Mapping[str, Mapping[str, float]]]) -> str:
    """A table for each part."""
    tables = [f"{torch.get_num_threads()} threads"]
    for part, measured in found.items():
        digits = 1 if part == "speed" else 3
        rows = [
            [n, CLASSIFIERS[n].family, *(f"{v:.{digits}f}" for v in m.values())] for n, m in measured.items()
        ]
        if part == "speed":
            total = [sum(column) for column in zip(*(m.values() for m in measured.values()), strict=True)]
            rows.append(["all", "", *(f"{seconds:.1f}" for seconds in total)])
        tables.append(table(SPEED if part == "speed" else STRENGTH, rows))
    return "\n\n".join(tables)


if __name__ == "__main__":
    raise SystemExit(main())
