"""Uploads user by user: the sender of each, and the items that the sender seems to have touched."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from veilrec.attack import Public, Seen
from veilrec.attacks.common.membership import Membership
from veilrec.base.rows import ragged
from veilrec.errors import BadInput
from veilrec.wire.uploads import Exchange

__all__: list[str] = []  # no entry of the catalogue


def federation(seen: Seen) -> Public:
    """The public facts of the method, where there is a federation."""
    if seen.public is None:
        raise BadInput("attack.reads", "there are vectors and no uploads", 'read "embeddings"')
    return seen.public


def users_of(public: Public, exchange: Exchange) -> Tensor:
    """The users behind a chunk of uploads."""
    seats = public.seats[exchange.received.cohort.cpu()]
    return seats[seats >= 0]


def spread(user: Tensor, rows: Tensor, users: int) -> Tensor:
    """Rows by user; zeros for those who sent nothing."""
    found = rows.new_zeros(users, rows.shape[1])
    found[user] = rows
    return found


def items_of(public: Public) -> int:
    """Rows of the item tables; 0 where none is uploaded."""
    return max((spec.table or 0 for spec in public.schema.values()), default=0)


def touches(seen: Seen, public: Public) -> Iterator[tuple[Exchange, Tensor, Tensor]]:
    """Each chunk of the probe with its users ``[c]`` and their items, ``[c, items]``.

    The items that are granted (PARD's I'_u), or else the rows that stand out by where they moved.
    """
    pairs = seen.granted.interactions
    granted = None if pairs is None else Lists.of(*pairs, public.n_users)
    for exchange in seen.probe():
        user = users_of(public, exchange)
        if granted is None:
            mask = Membership(by="direction").pairs(public, exchange) > 0
        else:
            mask = granted.of_some(user, items_of(public)).to(exchange.received.cohort.device)
        yield exchange, user, mask


class Lists(NamedTuple):
    """Everybody's items one after another: only those of a chunk are ever laid out side by side."""

    item: Tensor  # [events] in the order of the users
    start: Tensor  # [users + 1]

    @classmethod
    def of(cls, user: Tensor, item: Tensor, users: int) -> Lists:
        start = torch.zeros(users + 1, dtype=torch.int64)
        start[1:] = torch.bincount(user, minlength=users).cumsum(0)
        return cls(item[user.argsort(stable=True)], start)

    def of_one(self, user: int) -> Tensor:
        """``[k]`` the items of one user."""
        return self.item[self.start[user] : self.start[user + 1]]

    def of_some(self, user: Tensor, items: int) -> Tensor:
        """``[u, items]`` True where a user touched an item."""
        row, place = ragged(self.start[user + 1] - self.start[user])
        mask = torch.zeros(len(user), items, dtype=torch.bool)
        mask[row, self.item[self.start[user][row] + place]] = True
        return mask
