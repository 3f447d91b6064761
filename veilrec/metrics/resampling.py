"""Resampling: bootstrap over users, seeds taken together, differences, and labels dealt out at random.

The weight of a user in resample b is a Poisson(1) count that depends on that user and on b, on nothing else.
So replicate b of one run and replicate b of another were measured on the same resample of people.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from veilrec.base.keys import Keys
from veilrec.errors import BadInput

__all__ = [
    "Dealt",
    "Measured",
    "checked",
    "combine",
    "dealt",
    "distances",
    "each",
    "mean",
    "summary",
    "weights",
]

BLOCK = 1 << 19  # numbers worked on at a time: 4 MB in float64, which a cache still holds
LEVEL = 0.95  # of every interval
CLOSE = 1e-10  # two sums of the same ranks in different orders differ by less


class Measured(NamedTuple):
    """A number with its 95 % interval.

    Attributes:
        value: On all users, each once.
        low, high: The 2.5th and the 97.5th percentile of the replicates.
        replicates: ``[b]`` float64, the number on each resample.
    """

    value: float
    low: float
    high: float
    replicates: Tensor

    def plain(self) -> dict[str, float]:
        """The entry of a result file: value, low and high."""
        return {"value": self.value, "low": self.low, "high": self.high}


def weights(tags: Tensor, resamples: int) -> Tensor:
    """Counts of each user in each resample, ``[resamples, n]`` uint8, for the users' ``tags [n]`` int64.

    The first rows stay the same when more are asked for. Bytes, because there are many: compute in float64.
    """
    keys = Keys.seed(0).fold("bootstrap").fold(tags)
    terms = torch.tensor([1 / math.factorial(k) for k in range(20)], dtype=torch.float64)
    chances = terms.cumsum(0) / math.e  # of at most k
    counts = torch.empty(len(tags), resamples, dtype=torch.uint8)
    for some in torch.arange(len(tags)).split(max(1, BLOCK // max(1, resamples))):
        drawn = keys.pick(some).uniform(resamples, dtype=torch.float64)
        counts[some] = torch.searchsorted(chances, drawn, right=True).to(torch.uint8)
    return counts.T


def each(metric: Callable[[Tensor], Tensor], weight: Tensor | None, n: int) -> Tensor:
    """A metric of weights ``[n, some of b]`` in float64, on all of ``weight [b, n]``, in blocks.

    None is everybody once. A resample that draws nobody counts everybody once too, so that every replicate
    is a number.
    """
    rows = torch.ones(1, n, dtype=torch.uint8) if weight is None else weight
    if rows.shape[1:] != (n,):
        raise BadInput("weight", f"shape {list(rows.shape)} for {n} users", "give [resamples, users]")
    done = []
    for some in rows.split(max(1, BLOCK // max(1, n))):
        block = some.T.double().clone(memory_format=torch.contiguous_format)
        block[:, block.sum(0) == 0] = 1
        done.append(metric(block))
    return torch.cat(done)


def checked(truth: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    """Labels or values ``[n]``, and scores ``[n, classes]`` or ``[n]``, as float64 and fit to be judged.

    Scores ``[n]`` are those of class 1 of two. Infinite scores are in order, NaN is not.
    """
    n, values, table = len(truth), truth.is_floating_point(), scores.double()
    if table.dim() == 1:
        table = table[:, None] if values else torch.stack([-table, table], 1)
    if values and table.shape[1] != 1:
        raise BadInput("scores", f"{table.shape[1]} columns for a continuous attribute", "give one")
    if not n or len(table) != n:
        raise BadInput("scores", f"{len(table)} rows for {n} users", "give one row for each user, and a user")
    if bool(table.isnan().any()) or (values and not bool((truth + table[:, 0]).isfinite().all())):
        raise BadInput("scores", "some are no numbers", "look for a division by zero in the attack")
    if not values and not 0 <= int(truth.min()) <= int(truth.max()) < table.shape[1]:
        raise BadInput("truth", f"a label outside 0 … {table.shape[1] - 1}", "leave users without one out")
    return (truth.double() if values else truth.long()), table


def mean(values: Tensor, weight: Tensor | None = None) -> Tensor:
    """The mean of ``values [n]`` on each resample, ``[b]``; ``[1]``, the plain mean, without weights."""
    return each(lambda block: (values.double() @ block) / block.sum(0), weight, len(values))


def summary(value: float, replicates: Tensor) -> Measured:
    """The percentile interval of ``replicates [b]``; without any, the value alone."""
    if not len(replicates):
        return Measured(value, value, value, replicates)
    ends = replicates.new_tensor([(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    low, high = replicates.quantile(ends).tolist()
    return Measured(value, low, high, replicates)


def combine(measured: Sequence[Measured]) -> Measured:
    """Several seeds or repeats as one number: their mean, with the doubt about users and about seeds.

    Replicate b is the mean of replicate b over seeds drawn with replacement. The draw depends on b and on how
    many seeds there are, so that two runs with the same seeds still pair up. One entry is returned as it is.

    Few seeds drawn again look more alike than new seeds would: where all the doubt is about three seeds, the
    difference of two equal runs would pass for real more often than one time in four. So this is the interval
    of one number, and no ground for a claim that two differ.
    """
    if not measured:
        raise BadInput("seeds", "nothing to combine", "give at least one measurement")
    if len(measured) == 1:
        return measured[0]
    shortest, seeds = min(len(one.replicates) for one in measured), len(measured)
    drawn = Keys.seed(0).fold("seeds").integers(seeds, shortest, seeds)  # [b, seeds]
    table = torch.stack([one.replicates[:shortest].double() for one in measured], 1)  # [b, seeds]
    value = math.fsum(one.value for one in measured) / seeds
    return summary(value, table.gather(1, drawn).mean(1))


class Dealt(NamedTuple):
    """The same scores against labels that were dealt out at random.

    Attributes:
        p: Share of deals as far from chance: ``(1 + count) / (1 + permutations)``, two-sided.
        luck: ``[permutations]`` how far above chance each deal is.
    """

    p: float
    luck: Tensor


def dealt(truth: Tensor, scores: Tensor, keys: Keys, permutations: int = 1000) -> Dealt:
    """Random deals of the labels, by AUC - 0.5 of ``truth [n]`` and ``scores [n, classes]``.

    By Spearman's correlation where the truth is float and the scores are ``[n, 1]``. Scores stay, labels move
    among these users; ranks are made once.
    """
    distance, n = distances(truth, scores), len(truth)
    seen = float(distance(torch.arange(n)[None]).abs())
    deals, found = keys.fold("permutation").fold(torch.arange(permutations)), []
    for some in torch.arange(permutations).split(max(1, BLOCK // max(1, n))):
        found.append(distance(deals.pick(some).order(n)))
    luck = torch.cat(found) if found else torch.zeros(0, dtype=torch.float64)
    return Dealt((1 + int((luck.abs() >= seen - CLOSE).sum())) / (1 + permutations), luck)


def distances(truth: Tensor, scores: Tensor) -> Callable[[Tensor], Tensor]:
    """A function from orders ``[p, n]`` of labels to ``[p]`` distances above chance; ranks are made once."""
    truth, scores = checked(truth, scores)
    return _of_values(truth, scores) if truth.is_floating_point() else _of_classes(truth, scores)


def _of_classes(truth: Tensor, scores: Tensor) -> Callable[[Tensor], Tensor]:
    """Orders ``[p, n]`` → ``[p]`` AUC minus 0.5, once label k has moved to user ``order[k]``.

    The area of a class is a sum of its members' ranks, so one look-up for each user is the whole statistic.
    """
    n, classes = scores.shape
    size = torch.bincount(truth, minlength=classes).double()
    judged = (size > 0) & (size < n)
    if classes == 2:
        judged[0] = False  # the area of class 0 is that of class 1
    scale = torch.where(judged, 1 / (size * (n - size)), 0.0) / judged.sum().clamp(min=1)
    rank = torch.stack([midranks(column) for column in scores.unbind(1)], 1)
    table = ((rank - n / 2) * scale).flatten()  # mean zero in every class: chance is zero
    return lambda order: table[order * classes + truth].sum(1)


def _of_values(truth: Tensor, scores: Tensor) -> Callable[[Tensor], Tensor]:
    """Orders ``[p, n]`` → ``[p]`` Spearman's correlation, once value k has moved to user ``order[k]``."""
    first, second = (midranks(column) - len(truth) / 2 for column in (truth, scores[:, 0]))
    length = (first.norm() * second.norm()).clamp(min=1e-300)
    return lambda order: (second[order] * first).sum(1) / length


def midranks(values: Tensor) -> Tensor:
    """Mid-ranks of ``values [n]``: the number of smaller ones plus half of the equal ones (itself too)."""
    values = values.contiguous()
    ordered = values.sort().values
    ends = [torch.searchsorted(ordered, values, right=right) for right in (False, True)]
    return (ends[0] + ends[1]).double() / 2
