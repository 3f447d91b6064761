"""Inference metrics: scores of guessed attributes, each on many resamples of the users at once.

Every metric takes ``weight [b, n]`` from `resampling.weights` and returns ``[b]`` in float64; without weights
it returns the plain number as ``[1]``. A class that a resample does not hold is left out of that replicate.
All results are finite.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from veilrec.errors import BadInput
from veilrec.metrics.resampling import Measured, checked, each, mean, summary

__all__ = [
    "auc",
    "floors",
    "judge",
    "mean_absolute_error",
    "r2",
    "spearman",
    "tpr_at",
]

SAME = 1e-12  # of a sum: less than this is rounding
TINY = 1e-300  # instead of a division by zero whose result is not used


def auc(truth: Tensor, scores: Tensor, weight: Tensor | None = None) -> Tensor:
    """The area under the ROC curve, ``[b]``: one class against the rest, mean over the classes there are.

    ``truth [n]`` and ``scores [n, classes]``. Of two classes only class 1 is judged, by its own column, which
    may also come alone as ``[n]``. Ties count half. Where no class has anyone on both sides: 0.5.
    """
    truth, scores = checked(truth, scores)
    judged = [1] if scores.shape[1] == 2 else truth.unique().tolist()
    ladders = [_ladder(truth == label, scores[:, label].contiguous()) for label in judged]

    def areas(block: Tensor) -> Tensor:
        total, there = block.new_zeros(block.shape[1]), block.new_zeros(block.shape[1])
        for ladder in ladders:
            area, both = ladder(block)
            total, there = total + area, there + both
        return torch.where(there > 0, total / there.clamp(min=1), 0.5)

    return each(areas, weight, len(truth))


def _ladder(inside: Tensor, score: Tensor) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """The area of one class from weights ``[n, b]``: ``[b]``, and whether anyone is on both sides, ``[b]``.

    The k different scores of the class are rungs; the slots are the rungs and the spaces between them. Adding
    up the weights by slot is the only work over all users.
    """
    rungs = score[inside].unique()
    left = torch.searchsorted(rungs, score)
    slot = left + torch.searchsorted(rungs, score, right=True)  # odd on a rung, even between

    def area(block: Tensor) -> tuple[Tensor, Tensor]:
        around = _summed(block, slot, 2 * len(rungs) + 1)
        rank = (around.cumsum(0) - around / 2)[1::2]  # all weight below, and half of the ties
        own = _summed(block[inside], left[inside], len(rungs))
        members = own.sum(0)
        pairs = members * (around.sum(0) - members)
        won = (own * rank).sum(0) - members**2 / 2  # the pairs within the class win just half
        return torch.where(pairs > 0, won / pairs.clamp(min=TINY), 0.0), pairs > 0

    return area


def tpr_at(truth: Tensor, scores: Tensor, fpr: float = 0.01, weight: Tensor | None = None) -> Tensor:
    """Share of class 1 that is found while at most a share `fpr` of class 0 is accused, ``[b]``.

    ``truth [n]`` of two classes, ``scores [n, 2]`` or ``[n]``. Of tied users a share is accused, along the
    straight line of the ROC curve. Where either class is missing: `fpr`, which is what chance gives.
    """
    truth, scores = checked(truth, scores)
    if scores.shape[1] != 2:
        raise BadInput("tpr_at", f"{scores.shape[1]} classes", "this rate is for two classes only")
    group = (-scores[:, 1]).unique(return_inverse=True)[1]  # the highest score first
    groups, inside = int(group.max()) + 1, truth == 1

    def found(block: Tensor) -> Tensor:
        right = _summed(block[inside], group[inside], groups)
        wrong = _summed(block[~inside], group[~inside], groups)
        left = wrong.sum(0) * fpr - (wrong.cumsum(0) - wrong)  # what may still be accused before this group
        free = (left >= -SAME * wrong.sum(0)).double()
        share = torch.where(wrong > 0, left / wrong.clamp(min=TINY), free).clamp(0, 1)
        both = (right.sum(0) > 0) & (wrong.sum(0) > 0)
        return torch.where(both, (right * share).sum(0) / right.sum(0).clamp(min=TINY), fpr)

    return each(found, weight, len(truth))


def _counts(truth: Tensor, guess: Tensor, classes: int, weight: Tensor | None) -> tuple[Tensor, ...]:
    """Weight guessed right, weight of the truth and weight of the guesses, each ``[b, classes]``."""
    slots = (torch.where(truth == guess, truth, classes), truth, guess)

    def counted(block: Tensor) -> Tensor:
        return torch.stack([_summed(block, slot, classes + 1)[:-1].T for slot in slots], 1)

    return each(counted, weight, len(truth)).unbind(1)


def _recall(right: Tensor, there: Tensor, guessed: Tensor) -> Tensor:
    """Balanced accuracy: the mean recall over the classes that are there."""
    return _over_present(right / there.clamp(min=TINY), there)


def _f1(right: Tensor, there: Tensor, guessed: Tensor) -> Tensor:
    """Macro-F1: the mean over the classes that are there; classes only guessed are not among them."""
    return _over_present(2 * right / (there + guessed).clamp(min=TINY), there)


def _accuracy(right: Tensor, there: Tensor, guessed: Tensor) -> Tensor:
    """Micro-F1, the F1 over all decisions together: with one label each, the accuracy."""
    return right.sum(-1) / there.sum(-1)


def _over_present(value: Tensor, there: Tensor) -> Tensor:
    """The mean of ``value [b, classes]`` over the classes that are ``there``, ``[b]``."""
    return torch.where(there > 0, value, 0.0).sum(-1) / (there > 0).sum(-1)


def r2(truth: Tensor, guess: Tensor, weight: Tensor | None = None) -> Tensor:
    """The share of the spread of ``truth [n]`` that ``guess [n]`` explains, ``[b]``; 0 if there is none."""
    centred = truth.double() - truth.double().median()  # sums of squares of large numbers would cancel
    columns = torch.stack([centred, centred**2, (truth.double() - guess.double()) ** 2])

    def explained(block: Tensor) -> Tensor:
        first, second, missed = columns @ block
        spread = second - first**2 / block.sum(0)
        there = spread > SAME * second
        return torch.where(there, 1 - missed / torch.where(there, spread, 1.0), 0.0)

    return each(explained, weight, len(truth))


def mean_absolute_error(truth: Tensor, guess: Tensor, weight: Tensor | None = None) -> Tensor:
    """The mean distance between ``truth [n]`` and ``guess [n]``, ``[b]``."""
    return mean((truth.double() - guess.double()).abs(), weight)


def spearman(truth: Tensor, guess: Tensor, weight: Tensor | None = None) -> Tensor:
    """The correlation of the ranks within each resample, ``[b]``; ties share a rank; 0 where all are tied."""
    groups = [column.unique(return_inverse=True)[1] for column in (truth, guess)]

    def correlation(block: Tensor) -> Tensor:
        first, second = (_centred_ranks(block, group) for group in groups)
        length = ((block * first**2).sum(0) * (block * second**2).sum(0)).sqrt()
        return (block * first * second).sum(0) / torch.where(length > 0, length, 1.0)

    return each(correlation, weight, len(truth))


def _centred_ranks(block: Tensor, group: Tensor) -> Tensor:
    """The rank of each user among weights ``[n, b]``, less the mean rank, ``[n, b]``; groups are in order."""
    total = _summed(block, group, int(group.max()) + 1)
    return (total.cumsum(0) - total / 2 - total.sum(0) / 2)[group]


def judge(truth: Tensor, scores: Tensor, weight: Tensor | None = None) -> dict[str, Measured]:
    """Every metric of ``scores [n, classes]`` against ``truth [n]``, each with its interval.

    The guess is the highest score, the lowest class among equals. A truth in floats is a continuous
    attribute, and its guess is the one column of the scores.
    """
    if scores.dim() != 2:
        raise BadInput("scores", f"{scores.dim()} axes", "give [users, classes]: the guess is the highest")
    truth, scores = checked(truth, scores)
    everybody = torch.ones(1, len(truth), dtype=torch.uint8)
    rows = everybody if weight is None else torch.cat([everybody.to(weight.dtype), weight])
    found = _values(truth, scores[:, 0], rows) if truth.is_floating_point() else _classes(truth, scores, rows)
    return {name: summary(float(value[0]), value[1:]) for name, value in found.items()}


def _values(truth: Tensor, guess: Tensor, weight: Tensor) -> dict[str, Tensor]:
    metrics = {"r2": r2, "mae": mean_absolute_error, "spearman": spearman}
    return {name: metric(truth, guess, weight) for name, metric in metrics.items()}


def _classes(truth: Tensor, scores: Tensor, weight: Tensor) -> dict[str, Tensor]:
    counts = _counts(truth, scores.argmax(1), scores.shape[1], weight)
    found = {"auc": auc(truth, scores, weight), "balanced_accuracy": _recall(*counts)}
    found |= {"macro_f1": _f1(*counts), "micro_f1": _accuracy(*counts)}
    return found | ({"tpr_at_1": tpr_at(truth, scores, 0.01, weight)} if scores.shape[1] == 2 else {})


def floors(known: Tensor, truth: Tensor, classes: int) -> dict[str, dict[str, float]]:
    """Expected scores of guessers who see nothing but the known labels, by name and metric.

    ``known [k]`` (negative ones are unknown) and ``truth [n]`` of the targets. `majority` always says the
    most frequent known class, the lowest among equals; `random` draws from the known shares (even ones if
    nothing is known); `uniform` gives every class 1/C. Macro-F1 is that of the expected counts, which for
    many users is the expected F1. Continuous attributes have ``classes`` 0 and NaN for unknown: there the
    floors always say the `mean` or the `median` of the known values.
    """
    if not classes:
        return _value_floors(known[~known.isnan()].double(), truth.double())
    counts = torch.bincount(known[known >= 0], minlength=classes).double()
    there = torch.bincount(truth, minlength=classes).double() / max(1, len(truth))
    even = torch.full_like(there, 1 / classes)
    shares = {
        "majority": torch.eye(classes, dtype=torch.float64)[counts.argmax()],
        "random": counts / counts.sum() if counts.sum() else even,
        "uniform": even,
    }
    return {name: _expected(share, there) for name, share in shares.items()}


def _expected(guessed: Tensor, there: Tensor) -> dict[str, float]:
    """The metrics of guesses drawn from shares ``guessed [classes]``, where ``there [classes]`` is true."""
    counts = (guessed * there, there, guessed)
    found = {"micro_f1": _accuracy, "balanced_accuracy": _recall, "macro_f1": _f1}
    return {name: float(metric(*counts)) for name, metric in found.items()} | {"auc": 0.5}


def _value_floors(known: Tensor, truth: Tensor) -> dict[str, dict[str, float]]:
    if not len(known):
        raise BadInput("known", "no value is known", "let the attacker know some users")
    guesses = {"mean": known.mean(), "median": known.quantile(0.5)}
    return {
        name: {
            "r2": float(r2(truth, guess.expand(len(truth)))),
            "mae": float(mean_absolute_error(truth, guess)),
            "spearman": 0.0,
        }
        for name, guess in guesses.items()
    }


def _summed(block: Tensor, slot: Tensor, slots: int) -> Tensor:
    """Weights ``[n, b]`` added up by the ``slot [n]`` of each user, ``[slots, b]``."""
    return block.new_zeros(slots, block.shape[1]).index_add_(0, slot, block)
