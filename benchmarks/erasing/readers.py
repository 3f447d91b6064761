"""Readers: the seven families on vectors of users, and the floor of labels that are dealt out again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from veilrec.attacks.common.classifiers import Job, fit_predict
from veilrec.base.keys import Keys
from veilrec.lab.presets import WORST
from veilrec.lab.soundness.shuffled import likeness
from veilrec.lab.threat import KnownDraw
from veilrec.metrics.resampling import distances

__all__ = ["FAMILIES", "SHARES", "Target", "drawn", "known_of", "read"]

FAMILIES = WORST
SHARES = (0.2, 0.8)  # of all users whose labels are known
DEALS = 40  # of labels, for the floor


class Target(NamedTuple):
    """An attribute that is read."""

    label: Tensor  # [users], -1 unknown
    classes: int


def known_of(label: Tensor, share: float, keys: Keys) -> Tensor:
    """``[users]`` a share of each class, by lot."""
    lot = keys.uniform(len(label), dtype=torch.float64)
    known = torch.zeros(len(label), dtype=torch.bool)
    for k in label[label >= 0].unique().tolist():
        own = (label == k).nonzero().flatten()
        known[own[lot[own].argsort()[: max(1, round(share * len(own)))]]] = True
    return known


def drawn(target: Target, share: float, splits: int, keys: Keys) -> list[KnownDraw]:
    """Who is known and who is attacked, in each split."""
    known = [known_of(target.label, share, keys.fold("known").fold(k)) for k in range(splits)]
    return [KnownDraw(one, ~one & (target.label >= 0)) for one in known]


def read(
    features: Tensor,
    target: Target,
    draws: Sequence[KnownDraw],
    keys: Keys,
    families: Sequence[str] = FAMILIES,
    learned: Tensor | None = None,
) -> dict[str, Any]:
    """What each family reads off ``[users, width]`` features, and what it would read of dealt labels.

    Of each family ``auc`` has one number a split. ``luck [families, deals]`` is how far from 1/2 the mean
    over the splits is where labels of targets are dealt out: the wider, the more the splits have in common.
    Where they learn from other features than they read, those are `learned`.
    """
    whole = features.float() if learned is None else torch.cat([features.float(), learned.float()])
    first = 0 if learned is None else len(features)
    jobs = []
    for place, draw in enumerate(draws):
        rows = draw.known.nonzero().flatten()
        jobs.append(Job(rows + first, target.label[rows], target.classes, place))
    wide = math.sqrt(1 + (len(draws) - 1) * likeness(draws))
    auc, luck = {}, []
    for family in families:
        found, dealt = [], torch.zeros(DEALS, dtype=torch.float64)
        for place, (draw, said) in enumerate(
            zip(draws, fit_predict(family, whole, jobs, threads=1), strict=True)
        ):
            truth = target.label[draw.target]
            far = distances(truth, said[: len(features)][draw.target])
            found.append(0.5 + float(far(torch.arange(len(truth))[None])))
            orders = keys.fold("deal").fold(place).fold(torch.arange(DEALS)).order(len(truth))
            dealt += far(orders) / len(draws)
        auc[family] = [round(one, 4) for one in found]
        luck.append(wide * dealt)
    return {"auc": auc, "luck": torch.stack(luck)}
