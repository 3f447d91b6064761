"""Words: scores, numbers and guarantees as a table shows them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from veilrec.metrics.measures import Measure
from veilrec.result import Result

__all__ = [
    "ALONG",
    "COMPONENTS",
    "GUESSES",
    "METRICS",
    "NONE",
    "SCORES",
    "below",
    "epsilons",
    "measured",
    "minutes",
    "number",
    "score_label",
    "seeds_told",
    "signed",
]

SCORES = {
    "auc": "AUC",
    "balanced_accuracy": "balanced accuracy",
    "macro_f1": "macro-F1",
    "micro_f1": "micro-F1",
}
COMPONENTS = {  # of an attacker's answer, for the class that is true
    "predicted": "ŷ′ of the true class",
    "correction": "δ of the true class",
}
METRICS = {"hr": "Hit", "mrr": "MRR", "ndcg": "NDCG", "precision": "precision", "recall": "recall"}
GUESSES = {
    "majority": "always the largest class",
    "random": "at random, by the shares of the classes",
    "uniform": "at random, every class alike",
}
ALONG = "bacc"  # before an attribute: an attack while a model is trained
NONE, MISSING, UNKNOWN = "–", "missing", "not measured"


def score_label(score: str) -> str:
    """``macro-F1``, ``Hit@20`` or ``balanced accuracy on gender``."""
    name, at, k = score.partition("@")
    if name == ALONG:
        return f"balanced accuracy on {k}"
    return f"{METRICS.get(name, name)}@{k}" if at else {**SCORES, **COMPONENTS}.get(score, score)


def measured(measure: Measure | None, absent: str = MISSING) -> str:
    """``0.612 [0.580, 0.640]``."""
    if measure is None:
        return absent
    if measure.low is None or measure.high is None:
        return number(measure.value)
    return f"{number(measure.value)} [{number(measure.low)}, {number(measure.high)}]"


def number(value: float | None) -> str:
    """Three digits; a dash where there is none."""
    return NONE if value is None else f"{value:.3f}".replace("-", "−")


def signed(value: float | None) -> str:
    """With its sign."""
    return NONE if value is None else f"{value:+.3f}".replace("-", "−")


def seeds_told(seeds: Sequence[int]) -> str:
    """``seed 2``, ``seeds 0, 1, 2``."""
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(str(seed) for seed in seeds)}"


def below(low: Mapping[str, int], total: int) -> str:
    """How many of the runs of each method are below popularity: ``1 of the 3 runs of A is …``."""
    told = [
        f"{count} of the {total} runs of {who}" if total > 1 else f"the run of {who}"
        for who, count in low.items()
    ]
    return f"{' and '.join(told)} {'is' if sum(low.values()) == 1 else 'are'} below popularity"


def minutes(results: Iterable[Result]) -> str:
    """How long a run took, on average: training, testing and attacks."""
    some = [float(result.timing["total"]) / 60 for result in results if "total" in result.timing]
    if not some:
        return NONE
    mean = sum(some) / len(some)
    return f"{mean:.1f}" if mean >= 0.05 else "< 0.1"


def epsilons(results: Iterable[Result]) -> list[str]:
    """ε per coordinate, per upload, and over the run of the user who gave most; the largest of the runs.

    An ε that holds but for a chance of δ has it beside it: ``0.5 (δ = 1e-05)``.
    """
    ledgers = [result.ledger for result in results]
    if not ledgers:
        return [MISSING] * 3
    noises = [one for ledger in ledgers for one in ledger.get("mechanisms") or () if one.get("counted", True)]
    if not noises:
        return ["no noise declared", NONE, NONE]
    coordinate = _coordinate(noises, max(float(_part(one, "per_upload").get("delta", 0)) for one in ledgers))
    if not all(ledger.get("guarantee") for ledger in ledgers):
        return [f"{coordinate}, not on all that leaves", "none", "none"]
    upload = max((_part(ledger, "per_upload") for ledger in ledgers), key=lambda one: float(one["epsilon"]))
    run = max((_part(ledger, "composed") for ledger in ledgers), key=lambda one: float(one["epsilon"]["max"]))
    return [
        coordinate,
        _at(_short(float(upload["epsilon"])), float(upload.get("delta", 0))),
        _at(_short(float(run["epsilon"]["max"])), float(run.get("delta", 0))),
    ]


def _coordinate(noises: Sequence[Mapping[str, Any]], delta: float) -> str:
    """From the least to the most; of Gauss's noise at the δ of an upload, Laplace's needs none."""
    single = [float(one["epsilon_per_coordinate"]) for one in noises]
    told = " to ".join(dict.fromkeys((_short(min(single)), _short(max(single)))))
    return _at(told, delta if any(one.get("kind") == "gaussian" for one in noises) else 0.0)


def _part(ledger: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return ledger.get(name) or {}


def _at(epsilon: str, delta: float) -> str:
    return f"{epsilon} (δ = {delta:g})" if delta else epsilon


def _short(epsilon: float) -> str:
    return f"{epsilon:,.4g}" if epsilon < 10**4 else f"{epsilon:,.0f}"
