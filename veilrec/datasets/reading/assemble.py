"""From tables to `Interactions`: ids in a fixed order, people and titles joined, every loss counted.

Policies, each a sentence in the load report; with ``strict`` each is an error instead:

* a (user, item) pair that occurs again: the earliest event stays;
* a person without events: left out;
* a user without a row about them, or without a value: attribute -1, amount NaN;
* an item without a title: its title is empty;
* a user with one event: trained on, never tested; with two: no validation item.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from veilrec.datasets.reading.people import UNKNOWN, DescribedUsers
from veilrec.datasets.reading.table import TextTable, Tokens
from veilrec.errors import BadInput
from veilrec.interactions import Interactions

__all__: list[str] = []

FIX = "correct the data, or load without strict"


@dataclass(frozen=True)
class Log:
    """The rows of a log: the columns of users and items, and the ratings and times where there are any."""

    table: TextTable
    user: str
    item: str
    rating: NDArray[np.float32] | None = None
    time: NDArray[np.int64] | None = None


@dataclass(frozen=True)
class Titles:
    """The titles of items, by original id, and the file they come from."""

    where: str
    by_id: Mapping[str, str]


def assemble(
    name: str,
    log: Log,
    people: DescribedUsers | None = None,
    titles: Titles | None = None,
    *,
    absent: Sequence[str] = (),
    strict: bool = False,
    split_seed: int = 0,
) -> Interactions:
    """One log, with what is known about its users and items; `absent` says what could not be known."""
    users, items = (sound_ids(log.table, column) for column in (log.user, log.item))
    user, user_ids = _ordered(users)
    item, item_ids = _ordered(items)
    if strict:
        _refuse_repeats(log, user, item, len(item_ids))
        _refuse_strangers(log, people)
    said, people_notes = _joined(people, user_ids)
    texts, title_notes = _titled(titles, item_ids)
    notes = [*absent, *people_notes, *title_notes]
    if strict and notes:
        raise BadInput(log.table.source.where, notes[0], FIX)
    built = Interactions.build(
        user,
        item,
        user_ids,
        item_ids,
        rating=None if log.rating is None else torch.from_numpy(log.rating),
        time=None if log.time is None else torch.from_numpy(log.time),
        texts=texts,
        split_seed=split_seed,
        report=[*notes, *(people.notes if people else ())],
        name=name,
        **said,
    )
    if strict and (short := _short(built)):
        raise BadInput(log.table.source.where, short[0], FIX)
    return replace(built, report=(*built.report, *_short(built)))


def sound_ids(table: TextTable, column: str) -> Tokens:
    """A column of ids, none of which is empty, has blanks around it or control characters in it."""
    tokens = table.tokens[column]
    empty = np.array([not name.strip() for name in tokens.names])
    table.refuse(empty[tokens.codes], column, "{column} is empty", "give every row an id")
    odd = np.array(
        [name != name.strip() or any(ord(letter) < 32 for letter in name) for name in tokens.names]
    )
    what = '{column} is "{value}": blanks around an id, or control characters in it'
    table.refuse(odd[tokens.codes], column, what, "remove them")
    return tokens


def titles_of(table: TextTable, item: str, title: str) -> Titles:
    """The title of each item; two different ones for the same item are an error."""
    codes, ids = sound_ids(table, item)
    words = table.tokens[title]
    _, first = np.unique(codes, return_index=True)
    other = words.codes != words.codes[first[codes]]
    table.refuse(other, item, 'item "{value}" has two different titles', "keep one row an item")
    return Titles(
        table.source.where,
        {name: words.names[words.codes[row]] for name, row in zip(ids, first, strict=True)},
    )


def _ordered(tokens: Tokens) -> tuple[Tensor, list[str]]:
    """Codes into ids in an order that no order of rows can change: by number, else by alphabet."""
    whole = all(
        name.isascii() and name.isdecimal() and (name == "0" or name[0] != "0") for name in tokens.names
    )
    order = sorted(
        range(len(tokens.names)), key=lambda n: (len(tokens.names[n]) if whole else 0, tokens.names[n])
    )
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return torch.from_numpy(rank[tokens.codes]), [tokens.names[n] for n in order]


def _refuse_repeats(log: Log, user: Tensor, item: Tensor, n_items: int) -> None:
    pairs = (user * n_items + item).numpy()
    _, first = np.unique(pairs, return_index=True)
    again = np.ones(len(pairs), dtype=np.bool_)
    again[first] = False
    log.table.refuse(again, log.user, 'user "{value}" has this item in an earlier row as well', FIX)


def _refuse_strangers(log: Log, people: DescribedUsers | None) -> None:
    """Refuse, with lines, people without events and users about whom nothing is said."""
    if people is None:
        return
    users, persons = log.table.tokens[log.user], people.table.tokens[people.user]
    silent, unnamed = (
        np.array([name not in others for name in tokens.names])[tokens.codes]
        for tokens, others in ((persons, set(users.names)), (users, set(persons.names)))
    )
    people.table.refuse(silent, people.user, 'user "{value}" has no events', FIX)
    where = Path(people.table.source.where).name
    log.table.refuse(unnamed, log.user, f'user "{{value}}" has no row in {where}', FIX)


def _joined(people: DescribedUsers | None, user_ids: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Join what is said about users to a log, as `Interactions` holds it; also what did not match."""
    if people is None:
        return {}, []
    person = {name: number for number, name in enumerate(people.ids)}
    match = np.array([person.get(name, -1) for name in user_ids], dtype=np.int64)
    where, notes = Path(people.table.source.where).name, []
    if absent := len(people.ids) - int((match >= 0).sum()):
        notes.append(f"{counted(absent, 'user')} of {where} without events: left out")
    if bare := int((match < 0).sum()):
        notes.append(f"{counted(bare, 'user')} without a row in {where}: attributes unknown")
    codes = {n: np.where(match >= 0, a.codes[match], UNKNOWN) for n, a in people.attributes.items()}
    values = {n: np.where(match >= 0, column[match], np.nan) for n, column in people.values.items()}
    for name, column in [*codes.items(), *values.items()]:
        if unsaid := int((((column == UNKNOWN) if name in codes else np.isnan(column)) & (match >= 0)).sum()):
            notes.append(f"{counted(unsaid, 'user')} of {where} without a value of {name}: unknown")
    said = {
        "attributes": {name: torch.from_numpy(column) for name, column in codes.items()},
        "classes": {name: attribute.classes for name, attribute in people.attributes.items()},
        "values": {name: torch.from_numpy(column) for name, column in values.items()},
    }
    return said, notes


def _titled(titles: Titles | None, item_ids: Sequence[str]) -> tuple[list[str] | None, list[str]]:
    if titles is None:
        return None, []
    texts = [titles.by_id.get(name, "").strip() for name in item_ids]
    bare = sum(not text for text in texts)
    where = Path(titles.where).name
    return texts, [f"{counted(bare, 'item')} without a title in {where}: shown by id"] if bare else []


def _short(log: Interactions) -> list[str]:
    """Sentences about users with too few events for a test or a validation item."""
    one, two = (int((log.counts == number).sum()) for number in (1, 2))
    notes = [f"{counted(one, 'user')} with one event: trained on, never tested"] if one else []
    return notes + ([f"{counted(two, 'user')} with two events: tested, no validation item"] if two else [])


def counted(number: int, noun: str) -> str:
    """A number of things, in words: ``1 row``, ``1,000 rows``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
