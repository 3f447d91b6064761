"""Ranks: steps that give each class the distribution, along some axes, of those who drew it as their lot.

A lot is a class that a user draws once and in secret, by the shares of the classes: it says nothing, and
users of one lot are random ones. Holders send counts by bins, in which no user can be told from the next.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator

import torch
from torch import Tensor

from veilrec.base.draws import Draws
from veilrec.base.params import Params
from veilrec.erasers.common.null import about, group_of, lengths, moved_group
from veilrec.erasers.common.sums import Held, Step
from veilrec.wire.codec import Schema, Spec

__all__ = ["Coordinates", "Lengths"]

BINS = 128
EACH = 2  # users of a class for each axis, with fewer of whom it is not moved along any
BLOCK = 512  # rows that are worked on at once
FLOOR = 1e-9  # levels end so far from 0 and 1, where a value would be infinite


class RankStep(Step):
    """Move each user to the place along an axis that the same share of its lot lies below."""

    @abstractmethod
    def axes(self, width: int) -> int:
        """The number of axes, of vectors with so many columns."""

    @abstractmethod
    def along(self, vectors: Tensor, letter: Params) -> Tensor:
        """``[n, axes]`` places along the axes, mostly between -3 and 3."""

    @abstractmethod
    def put(self, vectors: Tensor, change: Tensor, letter: Params) -> Tensor:
        """``[n, width]`` vectors whose places are changed by ``change [n, axes]``."""

    def schema(self, width: int, classes: int) -> Schema:
        spec = Spec((self.axes(width), classes, BINS), torch.int32, kind="count")
        return {"own": spec, "lot": spec}

    def statistics(self, held: Held, letter: Params) -> Params:
        own = group_of(held, letter)
        groups = {"own": own, "lot": torch.where(own >= 0, lots(held, letter), -1)}
        shape = (self.axes(held.vectors.shape[1]), held.classes, BINS)
        counts = {name: torch.zeros(shape, dtype=torch.int64) for name in groups}
        for rows in _blocks(held.vectors):
            bins = _bins(level_of(self.along(held.vectors[rows], letter)))
            for name, group in groups.items():
                counts[name] += _counts(bins, group[rows], held.classes)
        return {name: _told(counts[name], group, held) for name, group in groups.items()}

    def fit(self, sums: Params, letter: Params, draws: Draws) -> Params:
        """``begin`` and ``end [axes, classes, bins]``: the levels to which both ends of a bin are carried."""
        own, lot = _cumulative(sums["own"]), _cumulative(sums["lot"])
        begin, end = _level_at(lot, own[..., :-1], last=True), _level_at(lot, own[..., 1:], last=False)
        users, dealt = (sums[name].sum(-1) for name in ("own", "lot"))
        still = (users < max(1, EACH * len(users))) | (dealt == 0)
        edge = torch.linspace(0, 1, BINS + 1, dtype=begin.dtype)
        begin[still], end[still] = edge[:-1], edge[1:]
        return {**letter, "begin": begin, "end": end}

    def apply(self, letter: Params, held: Held) -> Tensor:
        group, after = moved_group(held, letter), held.vectors.clone()
        for rows in _blocks(after):
            own = group[rows] >= 0
            after[rows][own] = self._moved(after[rows][own], group[rows][own], letter)
        return after

    def _moved(self, vectors: Tensor, group: Tensor, letter: Params) -> Tensor:
        """``[n, width]`` vectors of users who all have a group, after the map."""
        before = self.along(vectors, letter)
        level = level_of(before)
        bins = _bins(level)
        axes, classes, _ = letter["begin"].shape
        place = (torch.arange(axes) * classes + group[:, None]) * BINS + bins
        begin, end = (letter[name].flatten()[place] for name in ("begin", "end"))
        after = _value_of(begin + (level * BINS - bins) * (end - begin))
        return self.put(vectors, after - before, letter)


class Coordinates(RankStep):
    """Ranks along each column: a model that is trained column by column gives each a shape of its own."""

    def axes(self, width: int) -> int:
        return width

    def along(self, vectors: Tensor, letter: Params) -> Tensor:
        return (vectors - letter["middle"]) / letter["size"]

    def put(self, vectors: Tensor, change: Tensor, letter: Params) -> Tensor:
        return vectors + change * letter["size"]


class Lengths(RankStep):
    """Ranks of lengths: how far a user is from the mean of all, which often is how active."""

    def axes(self, width: int) -> int:
        return 1

    def along(self, vectors: Tensor, letter: Params) -> Tensor:
        return 4 * lengths(about(vectors, letter), letter).log()

    def put(self, vectors: Tensor, change: Tensor, letter: Params) -> Tensor:
        return letter["middle"] + (vectors - letter["middle"]) * (change / 4).exp()


def lots(held: Held, letter: Params) -> Tensor:
    """``[n]`` the group that each user has drawn."""
    drawn = held.draws.uniform("lot", held.tags)
    return torch.searchsorted(letter["cut"], drawn, right=True).clamp(max=len(letter["cut"]) - 1)


def level_of(value: Tensor) -> Tensor:
    """Places on a line as levels between 0 and 1, near ones far apart; distant ones are still told apart.

    >>> level_of(torch.tensor([-3.0, 0.0, 1.0]))
    tensor([0.1250, 0.5000, 0.7500])
    """
    return 0.5 * (1 + value / (1 + value.abs()))


def _value_of(level: Tensor) -> Tensor:
    """The reverse of `level_of`."""
    part = (2 * level - 1).clamp(FLOOR - 1, 1 - FLOOR)
    return part / (1 - part.abs())


def _blocks(vectors: Tensor) -> Iterator[slice]:
    """Rows that fit into a processor's cache, block after block."""
    return (slice(first, first + BLOCK) for first in range(0, len(vectors), BLOCK))


def _bins(level: Tensor) -> Tensor:
    """The bins in which levels lie."""
    return (level * BINS).long().clamp(0, BINS - 1)


def _counts(bins: Tensor, group: Tensor, classes: int) -> Tensor:
    """``[axes, classes, bins]`` the users of each group in each bin."""
    axes, there = bins.shape[1], group >= 0
    place = (torch.arange(axes) * classes + group[there][:, None]) * BINS + bins[there]
    return torch.bincount(place.flatten(), minlength=axes * classes * BINS).reshape(axes, classes, BINS)


def _told(counts: Tensor, group: Tensor, held: Held) -> Tensor:
    """Counts as a holder tells them: groups of too few are left out."""
    many = torch.bincount(group[group >= 0], minlength=held.classes) >= held.least
    return (counts * many[:, None]).int()


def _cumulative(counts: Tensor) -> Tensor:
    """``[…, bins + 1]`` the share of users below each edge."""
    below = counts.double().cumsum(-1)
    below = below / below[..., -1:].clamp(min=1)
    return torch.cat([torch.zeros_like(below[..., :1]), below], -1)


def _level_at(shares: Tensor, share: Tensor, *, last: bool) -> Tensor:
    """``[…, n]`` the levels at which ``shares […, edges]`` reach others: the `last` such, or the first."""
    place = torch.searchsorted(shares, share.contiguous(), right=last).clamp(1, BINS)
    low, high = shares.gather(-1, place - 1), shares.gather(-1, place)
    part = torch.where(high > low, (share - low) / (high - low), 0.5)
    return (place - 1 + part.clamp(0, 1)) / BINS
