"""The floor of shuffled labels: what the same attackers reach on the same targets where nothing leaks.

An attacker that was taught shuffled labels puts the targets into an order that has nothing to do with theirs.
So nobody is taught anew: the labels of the targets are dealt out again under the scores that are there, which
the p-value needs anyway. Several draws share users: who is known in one and attacked in another ties their
luck together, as their users say how much.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from veilrec.base.keys import Keys
from veilrec.lab.threat import KnownDraw
from veilrec.metrics.resampling import distances

__all__ = ["likeness", "luck_of_the_best", "together"]

MOST = 99  # deals for an oracle, who chooses among many stages in each


def together(draws: Sequence[KnownDraw], luck: Sequence[Tensor]) -> Tensor:
    """``[deals]`` the mean over draws of how far above chance each deal is, wider the more alike they are."""
    fewest = min(len(one) for one in luck)
    several = torch.stack([one[:fewest] for one in luck]).mean(0)
    return several * math.sqrt(1 + (len(draws) - 1) * likeness(draws))


def likeness(draws: Sequence[KnownDraw]) -> float:
    """The correlation of the luck of two draws, mean over all pairs of draws; 0 of a single one.

    What an attacker gets right by luck is a sum over pairs of a known user and a target: the correlation is
    the share of the pairs of one draw that are pairs in the other too, whichever of the two users is known.
    """
    found = []
    for one, other in itertools.combinations(draws, 2):
        same = int((one.known & other.known).sum()) * int((one.target & other.target).sum())
        crossed = int((one.known & other.target).sum()) * int((one.target & other.known).sum())
        sizes = [int(mask.sum()) for draw in (one, other) for mask in (draw.known, draw.target)]
        found.append((same + crossed) / max(1.0, torch.tensor(sizes).double().prod().sqrt().item()))
    return sum(found) / len(found) if found else 0.0


def luck_of_the_best(
    truth: Tensor, stages: Tensor, mark: Callable[[Tensor, Tensor], float], keys: Keys, deals: int
) -> Tensor:
    """``[deals]`` how far above chance the stage is that an oracle would choose, for labels dealt at random.

    ``truth [n]``, ``stages [stages, n, classes]``; `mark` is what the oracle chooses by.
    """
    orders = keys.fold("permutation").fold(torch.arange(min(deals, MOST))).order(len(truth))
    apart = torch.stack([distances(truth, stage)(orders) for stage in stages])  # [stages, deals]
    if stages.shape[2] <= 2:
        return apart.amax(0)
    best = [
        int(torch.tensor([mark(truth[order.argsort()], stage) for stage in stages]).argmax())
        for order in orders
    ]
    return apart[best, torch.arange(len(orders))]
