"""Touches: how well one upload tells which items its user touched, AUC per user, then over users."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from veilrec.attack import Seen
from veilrec.attacks.common.membership import WAYS, Membership
from veilrec.attacks.common.uploaded import Lists, items_of, users_of
from veilrec.lab.trials import People
from veilrec.lab.verdict import told
from veilrec.metrics.resampling import mean, summary

__all__ = ["membership"]


def membership(seen: Seen, user: Tensor, item: Tensor, who: People, resamples: int) -> dict[str, Any] | None:
    """AUC of "did this user touch this item" with interval, by each way of looking at an upload.

    ``user [e]``, ``item [e]``: the training events. None where no item table is uploaded, or where a
    client is a silo, whose upload is that of all its users. Every item that a user did not touch counts as a
    non-member, whether its row was sent or not.
    """
    public = seen.public
    if public is None or public.seats.shape[1] > 1 or not items_of(public):
        return None
    touched = Lists.of(user, item, public.n_users)
    seats: list[Tensor] = []
    found: dict[str, list[Tensor]] = {way: [] for way in WAYS}
    for exchange in seen.probe():
        users = users_of(public, exchange)
        seats.append(users)
        for way in WAYS:
            scores = Membership(way).pairs(public, exchange).cpu()  # type: ignore[arg-type]
            found[way].append(per_user(scores, [touched.of_one(u) for u in users.tolist()]))
    people = torch.cat(seats)
    weight = who.weights(people, resamples)
    aucs = {way: torch.cat(each) for way, each in found.items()}
    scored = {way: summary(float(each.mean()), mean(each, weight)) for way, each in aucs.items()}
    worst = max(scored, key=lambda way: abs(scored[way].value - 0.5))
    items = items_of(public)
    return {**{w: told(m) for w, m in scored.items()}, "users": len(people), "items": items, "worst": worst}


def per_user(scores: Tensor, touched: list[Tensor]) -> Tensor:
    """``scores [u, items]`` and everybody's items to ``[u]`` AUCs; ties count half, all or nothing is 0.5."""
    from scipy.stats import rankdata  # not before: it takes a third of a second to import

    there = torch.zeros(scores.shape, dtype=torch.bool)
    for row, items in enumerate(touched):
        there[row, items] = True
    ranks = torch.from_numpy(rankdata(scores.numpy(), axis=1))  # from 1; tied ones share their mean
    count = there.sum(1).double()
    pairs = count * (scores.shape[1] - count)
    above = (ranks * there).sum(1) - count * (count + 1) / 2
    return torch.where(pairs > 0, above / pairs.clamp(min=1), 0.5)
