"""Cores: the events of users and items that have enough of them, cut until nothing more falls out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from veilrec.datasets.reading.assemble import Log, counted
from veilrec.datasets.reading.people import DescribedUsers
from veilrec.datasets.reading.table import Tokens
from veilrec.errors import BadInput

__all__: list[str] = []

Mask = NDArray[np.bool_]


def core(user: NDArray[np.int32], item: NDArray[np.int32], of_user: int, of_item: int) -> Mask:
    """``[events]`` True for what stays where users with too few items and items with too few users go.

    A pair that occurs again counts once. One that goes may leave others with too few, so that it is done
    until nothing changes: what stays does not depend on who goes first.
    """
    pair = user.astype(np.int64) * (int(item.max(initial=0)) + 1) + item
    first = np.zeros(len(pair), dtype=np.bool_)
    first[np.unique(pair, return_index=True)[1]] = True
    stay = np.ones(len(pair), dtype=np.bool_)
    while True:
        once = stay & first
        items_of = np.bincount(user[once], minlength=int(user.max(initial=0)) + 1)
        users_of = np.bincount(item[once], minlength=int(item.max(initial=0)) + 1)
        fewer = stay & (items_of[user] >= of_user) & (users_of[item] >= of_item)
        if int(fewer.sum()) == int(stay.sum()):
            return stay
        stay = fewer


def enough(log: Log, of_user: int, of_item: int, done: str) -> Mask:
    """`core` of a log's events; where nothing would stay it is refused, by what was `done` to items.

    Raises:
        BadInput: Where there is no such user and item.
    """
    user, item = (log.table.tokens[column].codes for column in (log.user, log.item))
    stay = core(user, item, of_user, of_item)
    if not stay.any():
        what = f"no {of_user} items of a user are {done} by {of_item} users each"
        raise BadInput("data.least_of_user", what, "give smaller numbers")
    return stay


def cut(log: Log, stay: Mask) -> Log:
    """Some events of a log, with the users and items that still have any.

    Whatever is wrong with a row must have been said before: rows count anew.
    """
    tokens = {name: _renumbered(log.table.tokens[name], stay) for name in (log.user, log.item)}
    table = replace(log.table, tokens=tokens, numbers={}, length=int(stay.sum()))
    return Log(
        table,
        log.user,
        log.item,
        None if log.rating is None else log.rating[stay],
        None if log.time is None else log.time[stay],
    )


def among(people: DescribedUsers, log: Log) -> DescribedUsers:
    """The people who are users of a log: about the others nothing is said, not even that they are missing."""
    there = set(log.table.tokens[log.user].names)
    return people.some(np.array([name in there for name in people.ids], dtype=np.bool_))


def left_out(noun: str, counts: Mapping[str, int]) -> list[str]:
    """Sentences on how many rows or users were left out, by reason; a count of 0 is passed over."""
    return [f"{counted(count, noun)} {why}: left out" for why, count in counts.items() if count]


def _renumbered(tokens: Tokens, stay: Mask) -> Tokens:
    codes = np.unique(tokens.codes[stay])
    place = np.zeros(len(tokens.names), dtype=np.int32)
    place[codes] = np.arange(len(codes), dtype=np.int32)
    return Tokens(place[tokens.codes[stay]], [tokens.names[code] for code in codes])
