"""Words: scores, guesses and counts of runs as a table of a paper calls them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from veilrec.metrics.measures import average
from veilrec.metrics.words import ABSENT
from veilrec.result import Result

__all__ = [
    "ALONG",
    "COMPONENTS",
    "GUESSES",
    "METRICS",
    "MISSING",
    "SCORES",
    "UNKNOWN",
    "below",
    "minutes",
    "score_label",
    "seeds_told",
]

SCORES = {
    "auc": "AUC",
    "balanced_accuracy": "balanced accuracy",
    "macro_f1": "macro-F1",
    "micro_f1": "micro-F1",
    "shuffled": "AUC with shuffled labels",
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
MISSING, UNKNOWN = "missing", "not measured"


def score_label(score: str) -> str:
    """``macro-F1``, ``Hit@20`` or ``balanced accuracy on gender``."""
    name, at, k = score.partition("@")
    if name == ALONG:
        return f"balanced accuracy on {k}"
    return f"{METRICS.get(name, name)}@{k}" if at else {**SCORES, **COMPONENTS}.get(score, score)


def seeds_told(seeds: Sequence[int]) -> str:
    """``seed 2``, ``seeds 0, 1, 2``."""
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(str(seed) for seed in seeds)}"


def below(low: Mapping[str, int], total: int) -> str:
    """Say how many runs of each method are below popularity: ``1 of the 3 runs of A is …``."""
    told = [
        f"{count} of the {total} runs of {who}" if total > 1 else f"the run of {who}"
        for who, count in low.items()
    ]
    return f"{' and '.join(told)} {'is' if sum(low.values()) == 1 else 'are'} below popularity"


def minutes(results: Iterable[Result]) -> str:
    """The minutes that a run took on average: training, testing and attacks."""
    mean = average(result.timing["total"] / 60 for result in results if "total" in result.timing)
    if mean is None:
        return ABSENT
    return f"{mean:.1f}" if mean >= 0.05 else "< 0.1"
