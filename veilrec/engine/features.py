"""Features: what a device can say of its own user without asking anybody, as one row of numbers.

Paper: Zhang, Yuan and Yin, "Comprehensive Privacy Analysis on Federated Recommender System against Attribute
Inference Attacks", TKDE 2024 (APM), Table 1. It does not say how features are scaled. Here they are put into
[-1, 1] by the scale of the ratings, which is known beforehand, and by a logarithm: standardising would need
statistics over users that nobody has collected.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from veilrec.base.rows import starts
from veilrec.clients import Clients
from veilrec.interactions import Interactions

__all__ = ["profile", "with_features"]

MANY = 12  # a count of 2¹² and more is 1
LEVELS = 10  # a scale with more values than this is cut into five


def with_features(clients: Clients, *, private: bool) -> Clients:
    """The same clients, each with the features of its users; those that the data brought along stay."""
    if clients.log.features is not None:
        return clients
    values, names = profile(clients.log, private=private)
    return replace(clients, log=replace(clients.log, features=values, feature_names=names))


def profile(log: Interactions, *, private: bool) -> tuple[Tensor, list[str]]:
    """``[users, width]`` the features of Table 1, made of training events, and the names of the columns.

    Without ratings only the number of events is left. With `private` every attribute is an input as well, as
    the paper prints it: a column for each class, all zero where it is unknown.
    """
    found = {"items": _amount(log.counts)}
    if log.rating is not None and len(log):
        found |= _ratings(log)
    for name, label in log.attributes.items() if private else ():
        for number, text in enumerate(_classes(log, name)):
            found[f"{name}={text}"] = (label == number).double()
    return torch.stack(list(found.values()), 1).float(), list(found)


def _ratings(log: Interactions) -> dict[str, Tensor]:
    """Counts and shares of each level, low and high shares, entropy, and where the ratings lie."""
    assert log.rating is not None
    rating, level, names = _levels(log.rating.double())
    count = torch.zeros(log.n_users, len(names), dtype=torch.float64)
    count.index_put_((log.user, level), torch.ones_like(rating), accumulate=True)
    share = count / count.sum(1, keepdim=True).clamp(min=1)  # [users, levels]
    ends = max(1, len(names) * 2 // 5)  # of five levels the two lowest and the two highest
    found = {f"number of {name}": _amount(count[:, k]) for k, name in enumerate(names)}
    found |= {f"share of {name}": share[:, k] for k, name in enumerate(names)}
    found |= {"share of low": share[:, :ends].sum(1), "share of high": share[:, -ends:].sum(1)}
    spread = torch.special.entr(share).sum(1)
    found["entropy"] = spread / torch.tensor(max(2, len(names))).double().log()
    return found | _places(log, rating)


def _levels(rating: Tensor) -> tuple[Tensor, Tensor, list[str]]:
    """Ratings on [-1, 1], the level of each, ``[events]`` both, and what the levels are called."""
    values, level = rating.unique(return_inverse=True)
    low, high = float(values[0]), float(values[-1])
    if len(values) > LEVELS:
        level = ((rating - low) / (high - low) * 5).long().clamp(max=4)
        names = [f"fifth {k + 1}" for k in range(5)]
    else:
        names = [f"{value:g}" for value in values.tolist()]
    middle, half = (low + high) / 2, max((high - low) / 2, 1e-9)
    return (rating - middle) / half, level, names


def _places(log: Interactions, rating: Tensor) -> dict[str, Tensor]:
    """Median, least, largest and mean rating of each user, 0 where there is none."""
    order = rating.argsort(stable=True)
    order = order[log.user[order].argsort(stable=True)]
    ranked = torch.cat([rating[order], rating.new_zeros(1)])  # one more, for users without events
    count = log.counts
    start = starts(count)
    last, there = (start + count - 1).clamp(min=0), count > 0
    middle = (ranked[start + (count - 1).clamp(min=0) // 2] + ranked[start + count // 2]) / 2
    total = torch.zeros(log.n_users, dtype=torch.float64).index_add_(0, log.user, rating)
    found = {
        "median": middle,
        "least": ranked[start],
        "largest": ranked[last],
        "mean": total / count.clamp(min=1),
    }
    return {name: torch.where(there, value, 0.0) for name, value in found.items()}


def _amount(count: Tensor) -> Tensor:
    """Counts on [-1, 1], by their logarithm."""
    return (2 * torch.log2(1.0 + count.double()) / MANY - 1).clamp(max=1)


def _classes(log: Interactions, attribute: str) -> list[str]:
    names = list(log.classes.get(attribute, ()))
    seen = int(log.attributes[attribute].max()) + 1 if log.n_users else 0
    return names + [str(k) for k in range(len(names), seen)]
