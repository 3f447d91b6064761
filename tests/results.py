"""Results made up for tests: a run with a given usefulness and a given leak, by seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from veilrec.metrics.leaks import RULE
from veilrec.metrics.measures import Measure
from veilrec.result import Result, Utility

PROTOCOL = "leave-one-out by time; candidates: all untouched items; ties by expectation"
FAMILIES = ["boosting", "linear", "neighbours", "neural"]


def spread(value: float, width: float = 0.01, count: int = 200, seed: int = 0) -> list[float]:
    """Replicates around a value; the same resamples of users for everyone with the same `seed`."""
    return (value + width * np.random.default_rng(seed).normal(size=count)).tolist()


def ends(found: Measure | None) -> tuple[float, float, float]:
    """The number and its interval."""
    assert found is not None
    return found.value, found.low, found.high


def measured(value: float, replicates: Sequence[float]) -> dict[str, float]:
    low, high = np.percentile(replicates, [2.5, 97.5]).tolist() if len(replicates) else (value, value)
    return {"value": value, "low": low, "high": high}


def attribute(auc: float, replicates: Sequence[float], leaning: str = "", **changes: Any) -> dict[str, Any]:
    """What an audit says about an attribute with two classes."""
    score = measured(auc, replicates)
    found = leaning or ("above" if score["low"] > 0.5 else "below" if score["high"] < 0.5 else "none")
    scores = {"auc": score, "balanced_accuracy": measured(0.6, []), "micro_f1": measured(0.75, [])}
    return {
        "kind": "class",
        "classes": ["female", "male"],
        "counts": [273, 670],
        "known": 189,
        "targets": 754,
        "floors": {
            "majority": {"micro_f1": 0.71, "balanced_accuracy": 0.5, "macro_f1": 0.42, "auc": 0.5},
            "uniform": {"micro_f1": 0.5, "balanced_accuracy": 0.5, "macro_f1": 0.5, "auc": 0.5},
        },
        "attackers": [
            {
                "name": "updates/logistic",
                "reads": "updates",
                "parts": [],
                "classifier": "logistic",
                "family": "linear",
                "oracle": False,
                "scores": scores,
                "p": 0.001,
            },
        ],
        "verdict": {
            "attacker": "updates/logistic",
            "families": FAMILIES,
            "score": "auc",
            "auc": score,
            "leaning": found,
            "replicates": list(replicates),
            "sentence": "An attacker who sees the uploads guesses gender right for 75 of 100 users.",
        },
        "parts": [],
        "groups": [],
        **changes,
    }


def audit(attributes: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    return {
        "threat": {"known": 0.2, "repeats": 1, "selection": "last", "attributes": []},
        "sees": "one upload of every user on the state of round 5, after every defence",
        "grants": [],
        "oracle": False,
        "rule": RULE,
        "attributes": dict(attributes),
        "membership": None,
        "seconds": 1.0,
        **changes,
    }


def result(
    defence: Mapping[str, Any] | None = None,
    seed: int = 0,
    ndcg: float = 0.3,
    auc: float = 0.8,
    *,
    replicates: tuple[Sequence[float], Sequence[float]] | None = None,
    **changes: Any,
) -> Result:
    """A finished run; `replicates` of usefulness and of the leak, where the usual spread will not do."""
    useful, leak = replicates or (spread(ndcg), spread(auc, seed=1))
    made = Result(
        utility=Utility(
            {"ndcg@10": ndcg, "hr@10": 0.5},
            {"ndcg@10": ndcg},
            {"ndcg@10": 0.1, "hr@10": 0.2},
            False,
            "ndcg@10",
            PROTOCOL,
            943,
        ),
        selected=5,
        rounds=5,
        stopped="rounds",
        traffic={},
        timing={},
        environment={},
        data={"name": "ml-100k"},
        settings={
            "seed": seed,
            "data": {"name": "ml-100k", "split_seed": 0},
            "model": {"name": "FedMF", "dim": 16},
            "plan": {"rounds": 5, "workers": seed + 1},
            "defence": [dict(defence or {"name": "none"})],
        },
        fingerprint="f",
        data_fingerprint="d",
        privacy={"veilrec": audit({"gender": attribute(auc, leak)})},
        utility_replicates={"ndcg@10": list(useful)},
    )
    return replace(made, **changes)
