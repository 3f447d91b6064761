"""Results as runs would leave them: three defences, three seeds, four attributes, five attackers."""

from __future__ import annotations

from typing import Any

import numpy as np

from veilrec.metrics.leaks import RULE
from veilrec.result import Result, Utility

SPLIT = "leave-one-out by time; candidates: 99 untouched items drawn once; ties by expectation"
RESAMPLES, ROUNDS = 300, 60
ATTRIBUTES = {
    "gender": (["female", "male"], [273, 670]),
    "age": (["under 35", "35 to 45", "over 45"], [544, 209, 190]),
    "occupation": (
        ["educator", "engineer", "librarian", "other", "programmer", "student", "writer"],
        [95, 67, 51, 420, 66, 196, 48],
    ),
}
ATTACKERS = {  # name → family, how much of the leak it finds
    "updates/logistic": ("linear", 1.0),
    "updates/mlp": ("neural", 0.94),
    "updates/boosting": ("boosting", 0.8),
    "updates/knn": ("neighbours", 0.45),
    "parameters/forest": ("boosting", 0.6),
}
ARMS: dict[str, dict[str, Any]] = {  # leak by attribute as AUC - 0.5, usefulness
    "none": {"leak": {"gender": 0.29, "age": 0.21, "occupation": 0.12}, "years": 0.46, "utility": 0.312},
    "laplace": {"leak": {"gender": 0.16, "age": 0.1, "occupation": 0.05}, "years": 0.24, "utility": 0.287},
    "early_stop": {"leak": {"gender": 0.25, "age": 0.2, "occupation": 0.11}, "years": 0.4, "utility": 0.297},
    "heavy_noise": {"leak": {"gender": 0.01, "age": 0.0, "occupation": 0.0}, "years": 0.02, "utility": 0.171},
    "flipped": {"leak": {"gender": -0.2, "age": 0.02, "occupation": 0.01}, "years": 0.03, "utility": 0.29},
}
PARTS = {"user": 0.35, "item": 1.0, "mlp1": 0.55, "mlp2": 0.3, "output": 0.02}
FLOOR = 0.224


def results(
    arms: tuple[str, ...] = ("none", "laplace", "early_stop"), seeds: int = 3
) -> list[tuple[str, Result]]:
    """Named runs of several arms."""
    return [(f"runs/{arm}/seed={seed}", result(arm, seed)) for arm in arms for seed in range(seeds)]


def result(arm: str = "none", seed: int = 0, **changes: Any) -> Result:
    """One run; `changes` are fields of the result that are not as usual."""
    rng, world = np.random.default_rng([seed, *arm.encode()]), ARMS[arm]
    useful = world["utility"] + 0.003 * rng.standard_normal()
    values: dict[str, Any] = {
        "utility": utility(useful),
        "selected": 45,
        "rounds": ROUNDS,
        "stopped": "rounds",
        "traffic": traffic(arm),
        "timing": {
            "train": 21.3,
            "evaluate": 1.5,
            "test": 0.1,
            "audit": 9.2,
            "total": 33.1,
            "peak_bytes": 1_460_727_808,
        },
        "environment": {
            "python": "3.11.7",
            "veilrec": "0.1.0",
            "torch": "2.13.0",
            "device": "cpu",
            "cores": 2,
        },
        "data": {"name": "ml-100k", "users": 943, "items": 1682, "events": 100_000, "clients": 943},
        "settings": settings(arm, seed),
        "fingerprint": f"{arm}-{seed}",
        "data_fingerprint": "8df1286d920450013e59",
        "privacy": {"veilrec": audit(world, rng, seed)},
        "ledger": ledger(arm),
        "curves": curves(useful, rng),
        "utility_replicates": {
            "ndcg@10": (useful + 0.009 * noise(0) + 0.002 * rng.standard_normal(RESAMPLES)).tolist()
        },
    }
    return Result(**{**values, **changes})


def noise(stream: int) -> np.ndarray:
    """What drawing users does to a score: the same in every run, because users are drawn by their ids."""
    return np.random.default_rng(1000 + stream).standard_normal(RESAMPLES)


def utility(useful: float) -> Utility:
    test = {"hr@10": 1.8 * useful, "ndcg@10": useful, "mrr@10": 0.7 * useful}
    floor = {"hr@10": 1.8 * FLOOR, "ndcg@10": FLOOR, "mrr@10": 0.7 * FLOOR}
    return Utility(test, {"ndcg@10": useful + 0.01}, floor, useful < FLOOR, "ndcg@10", SPLIT, 943)


def traffic(arm: str) -> dict[str, Any]:
    up, down, posts = 264_302, 903_592, 18_400 if arm == "laplace" else 0
    return {
        "up": {"mean": up + posts, "max": 902_128, "total": (up + posts) * 5640},
        "down": {"mean": down, "max": down, "total": down * 5640},
        "by_kind": {
            "up": {"upload": up * 5640, "posts": posts * 5640},
            "down": {"letter": down * 5640, "posts": 0},
        },
        "messages": 5640,
        "clients": 943,
    }


def settings(arm: str, seed: int) -> dict[str, Any]:
    options = {"laplace": {"scale": 0.02, "clip": 0.5, "rows": "touched"}, "early_stop": {"round": 20}}
    return {
        "seed": seed,
        "data": {"name": "ml-100k", "split_seed": 0},
        "model": {"name": "FedNCF", "dim": 64, "head": [64, 32], "scopes": {}},
        "protocol": {"name": "FedAvg", "sends": "gradients"},
        "plan": {"rounds": ROUNDS, "cohort": 0.1, "lr": 0.01},
        "defence": [{"name": arm, **options.get(arm, {})}],
    }


def curves(useful: float, rng: np.random.Generator) -> dict[str, Any]:
    rounds = np.arange(1, ROUNDS + 1)
    rise = useful * (1 - np.exp(-rounds / 15)) + 0.003 * rng.standard_normal(ROUNDS)
    loss = 0.25 + 0.44 * np.exp(-rounds / 12) + 0.004 * rng.standard_normal(ROUNDS)
    looked = [float(value) if k % 5 == 0 else None for k, value in zip(rounds, rise, strict=True)]
    return {"round": rounds.tolist(), "loss": loss.tolist(), "ndcg@10": looked}


def ledger(arm: str) -> dict[str, Any]:
    if arm != "laplace":
        return {"guarantee": False, "statement": "no formal guarantee", "mechanisms": [], "notes": []}
    return {
        "guarantee": True,
        "statement": "Each upload is 50-differentially private in every coordinate of the item table.",
        "mechanisms": [
            {
                "defence": "laplace",
                "part": "item",
                "kind": "laplace",
                "scale": 0.02,
                "clip": 0.5,
                "rows": "touched",
                "epsilon_per_coordinate": 50.0,
                "coordinates": 107_648,
            }
        ],
        "per_upload": {"epsilon": 5_382_400.0, "delta": 0.0, "how": "exact addition"},
        "composed": {
            "uploads": {"max": 12, "mean": 6.0},
            "epsilon": {"max": 64_588_800.0, "mean": 32_294_400.0, "median": 32_294_400.0},
            "delta": 0.0,
            "how": "exact addition",
        },
        "budget": None,
        "notes": ["the set of touched rows is in the clear", "noise of a simulation: not private"],
    }


def audit(world: dict[str, Any], rng: np.random.Generator, seed: int) -> dict[str, Any]:
    attributes = {
        name: class_attribute(name, world["leak"][name], rng, k) for k, name in enumerate(ATTRIBUTES)
    }
    return {
        "threat": {
            "known": 0.2,
            "stratified": True,
            "balanced": False,
            "repeats": 1,
            "folds": 3,
            "selection": "last",
            "resamples": RESAMPLES,
        },
        "sees": "one upload of every user on the state of round 45, after every defence",
        "grants": ["which items each user touched in training"],
        "oracle": False,
        "rule": RULE,
        "seconds": 9.2,
        "attributes": {**attributes, "years": value_attribute(world["years"], rng)},
        "membership": {
            "rows": measure(0.93, 0.004),
            "norms": measure(0.71, 0.01),
            "direction": measure(0.97, 0.003),
            "users": 943,
            "items": 1682,
            "worst": "direction",
        },
    }


def measure(value: float, error: float) -> dict[str, float]:
    return {"value": value, "low": value - 1.96 * error, "high": value + 1.96 * error}


def class_attribute(name: str, leak: float, rng: np.random.Generator, stream: int) -> dict[str, Any]:
    classes, counts = ATTRIBUTES[name]
    share = max(counts) / sum(counts)
    auc = 0.5 + leak + 0.008 * rng.standard_normal()
    scores = [attacker(who, auc, share, len(classes)) for who in ATTACKERS]
    again = auc + 0.014 * noise(1 + stream) + 0.004 * rng.standard_normal(RESAMPLES)
    low, high = np.quantile(again, (0.025, 0.975)).tolist()
    best = scores[0]["scores"]["micro_f1"]["value"]
    return {
        "kind": "class",
        "classes": classes,
        "counts": counts,
        "known": 189,
        "targets": 754,
        "floors": {
            "majority": {
                "micro_f1": share,
                "balanced_accuracy": 1 / len(classes),
                "macro_f1": 0.2,
                "auc": 0.5,
            },
            "random": {
                "micro_f1": sum((n / sum(counts)) ** 2 for n in counts),
                "balanced_accuracy": 1 / len(classes),
                "macro_f1": 1 / len(classes),
                "auc": 0.5,
            },
            "uniform": {
                "micro_f1": 1 / len(classes),
                "balanced_accuracy": 1 / len(classes),
                "macro_f1": 0.3,
                "auc": 0.5,
            },
        },
        "attackers": scores,
        "verdict": {
            "attacker": "updates/logistic",
            "families": ["linear", "neural", "boosting", "neighbours"],
            "score": "auc",
            "auc": {"value": auc, "low": low, "high": high},
            "leaning": "above" if low > 0.5 else "below" if high < 0.5 else "none",
            "replicates": again.tolist(),
            "sentence": f"An attacker who sees the uploads guesses {name} right for "
            f"{100 * best:.0f} of 100 users "
            f"(always saying {classes[int(np.argmax(counts))]} is right for {100 * share:.0f}).",
        },
        "parts": [
            {"part": part, "auc": measure(0.5 + (auc - 0.5) * much, 0.015), "classifier": "logistic"}
            for part, much in PARTS.items()
        ],
        "groups": [
            {
                "by": name,
                "group": group,
                "users": count,
                "micro_f1": measure(0.3 + 0.6 * count / sum(counts), 0.03),
            }
            for group, count in zip(classes, counts, strict=True)
        ],
    }


def attacker(name: str, auc: float, share: float, classes: int) -> dict[str, Any]:
    family, found = ATTACKERS[name]
    here, error = 0.5 + (auc - 0.5) * found, 0.015
    scores = {
        "auc": measure(here, error),
        "balanced_accuracy": measure(1 / classes + 0.7 * (here - 0.5), error),
        "macro_f1": measure(1 / classes + 0.6 * (here - 0.5), error),
        "micro_f1": measure(share + 0.25 * (here - 0.5), error),
    }
    if classes == 2:
        scores["tpr_at_1"] = measure(0.01 + 0.4 * abs(here - 0.5), 0.004)
    reads, classifier = name.split("/")
    return {
        "name": name,
        "reads": reads,
        "parts": [],
        "classifier": classifier,
        "family": family,
        "oracle": False,
        "scores": scores,
        "p": 0.001 if abs(here - 0.5) > 0.03 else 0.4,
        "validation": here,
        "seconds": 0.4,
        "notes": {"width": 107_648, "kept": 1024, "loss": "distances kept within 3 %"},
    }


def value_attribute(rho: float, rng: np.random.Generator) -> dict[str, Any]:
    rho += 0.01 * rng.standard_normal()
    again = rho + 0.03 * noise(9) + 0.005 * rng.standard_normal(RESAMPLES)
    scores = {"r2": measure(rho**2, 0.02), "mae": measure(9.9 - 4 * rho, 0.2), "spearman": measure(rho, 0.03)}
    return {
        "kind": "value",
        "range": [7, 73],
        "mean": 34.1,
        "known": 189,
        "targets": 754,
        "floors": {"median": {"r2": 0.0, "mae": 9.9, "spearman": 0.0}},
        "attackers": [
            {
                "name": "updates/ridge",
                "reads": "updates",
                "parts": [],
                "classifier": "ridge",
                "family": "linear",
                "oracle": False,
                "scores": scores,
                "p": 0.001,
                "validation": rho,
                "seconds": 0.2,
                "notes": {},
            }
        ],
        "verdict": {
            "attacker": "updates/ridge",
            "families": ["linear"],
            "score": "spearman",
            "spearman": measure(rho, 0.03),
            "leaning": "above" if rho > 0.07 else "none",
            "replicates": again.tolist(),
            "sentence": f"An attacker who sees the uploads guesses years to within "
            f"{9.9 - 4 * rho:.1f} on average; "
            "without looking: 9.9.",
        },
        "parts": [],
        "groups": [],
    }
