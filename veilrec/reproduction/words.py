"""Words: scores, numbers and guarantees as a table shows them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from veilrec.comparison.measures import Measure
from veilrec.result import Result

__all__ = ["GUESSES", "epsilons", "measured", "minutes", "number", "score_label", "signed"]

SCORES = {
    "auc": "AUC",
    "balanced_accuracy": "balanced accuracy",
    "macro_f1": "macro-F1",
    "micro_f1": "micro-F1",
}
METRICS = {"hr": "Hit", "mrr": "MRR", "ndcg": "NDCG", "precision": "precision", "recall": "recall"}
GUESSES = {
    "majority": "always the largest class",
    "random": "at random, by the shares of the classes",
    "uniform": "at random, every class alike",
}
NONE, MISSING, UNKNOWN = "–", "missing", "not measured"


def score_label(score: str) -> str:
    """``macro-F1`` or ``Hit@20``."""
    name, at, k = score.partition("@")
    return f"{METRICS.get(name, name)}@{k}" if at else SCORES.get(score, score)


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


def minutes(results: Iterable[Result]) -> str:
    """How long a run took, on average: training, testing and attacks."""
    some = [float(result.timing["total"]) / 60 for result in results if "total" in result.timing]
    if not some:
        return NONE
    mean = sum(some) / len(some)
    return f"{mean:.1f}" if mean >= 0.05 else "< 0.1"


def epsilons(results: Iterable[Result]) -> list[str]:
    """ε per coordinate, per upload, and over the run of the user who gave most; the largest of the runs."""
    ledgers = [result.ledger for result in results]
    if not ledgers:
        return [MISSING] * 3
    single = [
        float(one["epsilon_per_coordinate"]) for ledger in ledgers for one in ledger.get("mechanisms") or ()
    ]
    if not single:
        return ["no noise declared", NONE, NONE]
    coordinate = " to ".join(dict.fromkeys((_short(min(single)), _short(max(single)))))
    if not all(ledger.get("guarantee") for ledger in ledgers):
        return [f"{coordinate}, not on all that leaves", "none", "none"]
    upload = max(float(ledger["per_upload"]["epsilon"]) for ledger in ledgers)
    return [coordinate, _short(upload), _short(max(_composed(ledger) for ledger in ledgers))]


def _composed(ledger: Mapping[str, Any]) -> float:
    return float(ledger["composed"]["epsilon"]["max"])


def _short(epsilon: float) -> str:
    return f"{epsilon:,.4g}" if epsilon < 10**4 else f"{epsilon:,.0f}"
