"""Copies: users whose rows are the same, or so nearly that no two people get that close by chance.

An attacker who knows the label of one of two copies has met the other, so that a score says how many people
are there twice, and not what a vector gives away.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from veilrec.base.keys import Keys

__all__ = ["Copies", "copies_of", "merged"]

MOST = 20_000  # users among whom near copies are looked for: every pair of them is measured
NEAR = 0.1  # of the distance to the fifth neighbour: near copies are closer than this
FAR, FURTHER = 5, 10  # neighbours: whom the nearest is held against, and with whom the dimension is read
TABLES = 4  # whose columns are shuffled: the closest two in all of them must be so many times further apart
LUCK = 0.01  # the chance that any two people of a table pass for near copies
WIDTH = 32  # columns that distances are measured in: of more, so many random sums
SAMPLED = 1024  # columns that go into the sums: near copies are near in any
AT_ONCE = 128  # columns held at a time
BLOCK = 1 << 22  # distances held at a time: 32 MB


class Copies(NamedTuple):
    """Groups of users who are copies of one another.

    Attributes:
        group: ``[users]`` a number that copies share, -1 for whoever has no copy.
        exact: ``[users]`` True for those who have an exact copy.
    """

    group: Tensor
    exact: Tensor

    def beside(self, some: Tensor) -> Tensor:
        """``[users]`` True for those of whom another copy is among some users (a mask)."""
        if not bool((self.group >= 0).any()):
            return torch.zeros_like(some)
        own = (self.group >= 0) & some
        counts = torch.bincount(self.group[own], minlength=int(self.group.max()) + 1)
        return (self.group >= 0) & (counts[self.group.clamp(min=0)] > own.long())


def copies_of(rows: Tensor, there: Tensor, tags: Tensor) -> Copies:
    """Exact copies by a hash of each row, near ones by the distance to the nearest neighbour.

    Two rows are near copies if their distance is less than a tenth of that to the fifth neighbour, less than
    chance would bring about once in a hundred tables of the same dimension, and, in the same unit, less than
    a quarter of any distance in four tables in which each column is shuffled on its own: where most columns
    take few values, two people are often close. Columns are standardised first.
    Rows of zeros are nobody's: they stand for users of whom nothing was read.

    Args:
        rows: ``[users, width]`` what is read of each user.
        there: ``[users]`` a mask of those who are looked at.
        tags: ``[users]`` hashes of their ids: of more than `MOST`, near copies are looked for among those
            with the smallest.
    """
    users = (there & rows.any(1)).nonzero().squeeze(1)
    first = _first_alike(rows, users)
    alone = users[first[users] == users]  # each row once
    alone = alone[tags[alone].argsort(stable=True)[:MOST]].sort().values
    lead = _joined(first, _near(rows[alone], alone))
    counts = torch.bincount(lead[users], minlength=len(rows))
    copied = torch.zeros_like(there)
    copied[users] = counts[lead[users]] > 1
    alike = torch.bincount(first[users], minlength=len(rows))
    return Copies(torch.where(copied, lead, -1), copied & (alike[first] > 1))


def merged(one: Copies, other: Copies) -> Copies:
    """Groups of users who are copies by the one or by the other."""
    groups = [
        (user, lead) for own in (one, other) for user, lead in enumerate(own.group.tolist()) if lead >= 0
    ]
    lead, copied = _joined(torch.arange(len(one.group)), groups), (one.group >= 0) | (other.group >= 0)
    return Copies(torch.where(copied, lead, -1), one.exact | other.exact)


def _first_alike(rows: Tensor, users: Tensor) -> Tensor:
    """``[users]`` the first user with the same row; every user alone where it is not looked at."""
    first, met = torch.arange(len(rows)), dict[bytes, int]()
    for user in users.tolist():
        row = (rows[user].float() + 0.0).numpy(force=True).tobytes()  # + 0.0 makes one zero of two
        first[user] = met.setdefault(hashlib.blake2b(row, digest_size=16).digest(), user)
    return first


def _near(rows: Tensor, users: Tensor) -> list[tuple[int, int]]:
    """Pairs of users who are near copies."""
    if len(rows) < 2 * FURTHER:
        return []
    ratio, nearest, dimension = _ratios(_measured(rows))
    chance = (LUCK / (len(rows) * (FAR - 1))) ** (1 / dimension)
    closest = min(float(_ratios(_measured(rows, table))[0].min()) for table in range(1, TABLES + 1))
    found = (ratio < min(NEAR, chance, closest / TABLES)).nonzero().squeeze(1)
    return [(int(users[k]), int(users[nearest[k]])) for k in found.tolist()]


def _measured(rows: Tensor, table: int = 0) -> Tensor:
    """Standardised columns, ``[n, width]``, and of many columns so many random sums of some of them.

    With the number of a table each column stands in an order of its own, so that nobody's row is left.
    """
    width, keys, parts = rows.shape[1], Keys.seed(0).fold("near"), []
    for some in keys.fold("columns").order(width)[:SAMPLED].split(AT_ONCE):
        block = rows[:, some].double()
        spread = block.std(0, correction=0)
        varies = spread > 1e-9 * block.abs().amax(0)
        block = (block - block.mean(0)) * torch.where(varies, 1 / spread, 0.0)
        if table:
            block = block.gather(0, keys.fold(table).fold(some).order(len(rows)).T)
        sums = keys.fold("sum").fold(some).normal(WIDTH, dtype=torch.float64)
        parts.append(block if width <= WIDTH else block @ sums)
    return parts[0] if width <= WIDTH else torch.stack(parts).sum(0)


def _ratios(rows: Tensor) -> tuple[Tensor, Tensor, float]:
    """Each row's distance to its nearest over that to its fifth; the nearest; and the dimension.

    The k-th neighbour's distance to the power of the dimension grows as k does, which is what the dimension
    is read from: at the fifth and tenth, where a copy or two make no difference.
    """
    size, found, nearest, halves = rows.square().sum(1), [], [], []
    for some in torch.arange(len(rows)).split(max(1, BLOCK // len(rows))):
        apart = size[some, None] + size - 2 * rows[some] @ rows.T
        apart[torch.arange(len(some)), some] = math.inf
        square, place = apart.topk(FURTHER, largest=False)
        exact = (rows[some] - rows[place[:, 0]]).norm(dim=1)  # of small ones the difference above is rounding
        far, further = (square[:, k - 1].clamp(min=0).sqrt() for k in (FAR, FURTHER))
        found.append(_over(exact, far))
        halves.append(_over(far, further))
        nearest.append(place[:, 0])
    half = float(torch.cat(halves).median().clamp(1e-9, 1 - 1e-9))
    return torch.cat(found), torch.cat(nearest), math.log(FAR / FURTHER) / math.log(half)


def _over(near: Tensor, far: Tensor) -> Tensor:
    """One distance over another; 1 where both are nothing."""
    return torch.where(far > 0, near / torch.where(far > 0, far, 1.0), 1.0)


def _joined(first: Tensor, pairs: Iterable[tuple[int, int]]) -> Tensor:
    """``[users]`` one user of each group, where `first` has the exact copies and `pairs` the near ones."""
    lead: list[int] = first.tolist()

    def root(user: int) -> int:
        while lead[user] != user:
            lead[user] = user = lead[lead[user]]
        return user

    for one, other in pairs:
        low, high = sorted((root(one), root(other)))
        lead[high] = low
    return torch.tensor([root(user) for user in range(len(lead))], dtype=torch.int64)
