"""People: attributes with classes, and amounts, from the columns of a table of users."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from veilrec.datasets.reading.layout import is_number
from veilrec.datasets.reading.table import TextTable
from veilrec.errors import BadInput

__all__: list[str] = []

MISSING = frozenset({"", "na", "n/a", "nan", "null", "?", "-"})
MANY = 30  # more classes than this are guessed to be a name or a number, not an attribute
MOST = 1_000
UNKNOWN = -1
Amounts = NDArray[np.float64]


class Attribute(NamedTuple):
    """A class for each row or person, -1 where unknown, and the names of the classes."""

    codes: NDArray[np.int64]
    classes: tuple[str, ...]


@dataclass(frozen=True)
class DescribedUsers:
    """Attributes of distinct users.

    Attributes:
        table, user: Where they were read, and its column of ids.
        ids: ``[people]`` original ids.
        attributes: ``[people]`` codes by name of attribute.
        notes: What was left out, as sentences.
        values: ``[people]`` numbers by name of a continuous attribute, NaN where unknown.
    """

    table: TextTable
    user: str
    ids: list[str]
    attributes: Mapping[str, Attribute]
    notes: tuple[str, ...] = ()
    values: Mapping[str, Amounts] = field(default_factory=dict)

    def some(self, stay: NDArray[np.bool_]) -> DescribedUsers:
        """Choose the people under a mask ``[people]``."""
        return replace(
            self,
            ids=[name for name, stays in zip(self.ids, stay, strict=True) if stays],
            attributes={name: Attribute(a.codes[stay], a.classes) for name, a in self.attributes.items()},
            values={name: column[stay] for name, column in self.values.items()},
        )


def people_of(
    table: TextTable,
    user: str,
    attributes: Mapping[str, Attribute],
    notes: Sequence[str] = (),
    values: Mapping[str, Amounts] | None = None,
) -> DescribedUsers:
    """One person per id; two rows that disagree are an error."""
    values = values or {}
    codes, ids = table.tokens[user]
    _, rows = np.unique(codes, return_index=True)  # codes count up in order of appearance
    for name, column in [*((name, found.codes) for name, found in attributes.items()), *values.items()]:
        first = column[rows[codes]]
        other = (column != first) & ~(np.isnan(column) & np.isnan(first))
        what = f'user "{{value}}" has two different values of {name}'
        table.refuse(other, user, what, "keep one row a user")
    kept = {
        name: Attribute(attribute.codes[rows], attribute.classes) for name, attribute in attributes.items()
    }
    amounts_kept = {name: column[rows] for name, column in values.items()}
    return DescribedUsers(table, user, ids, kept, tuple(notes), amounts_kept)


def declared(table: TextTable, column: str, names: Mapping[str, str]) -> Attribute:
    """An attribute whose values are known beforehand: word in the file to name of the class, in order."""
    place = {word: number for number, word in enumerate(names)}
    fix = f"it must be one of {', '.join(names)}"
    return Attribute(_classified(table, column, place.get, fix), tuple(names.values()))


def binned(
    table: TextTable, column: str, borders: Sequence[float], low: float = -np.inf, high: float = np.inf
) -> Attribute:
    """Numbers in groups: the first border begins the second group, every later one ends its own.

    With ``(35, 45)``: under 35, 35 to 45, over 45. A number below `low` or above `high` is an error.
    """
    if not borders or list(borders) != sorted(set(borders)):
        raise BadInput(column, f"the borders {list(borders)} do not rise", "give numbers in ascending order")
    first, *later = borders

    def group(word: str) -> int | None:
        value = float(word) if is_number(word) else np.nan
        if not (np.isfinite(value) and low <= value <= high):
            return None
        return 0 if value < first else 1 + sum(value > border for border in later)

    limits = f" from {low:g} to {high:g}" if np.isfinite(low) else ""
    return Attribute(_classified(table, column, group, f"it must be a number{limits}"), _ranges(borders))


def amounts(table: TextTable, column: str, low: float = -np.inf, high: float = np.inf) -> Amounts:
    """``[rows]`` the numbers of a column, NaN where unknown; one below `low` or above `high` is an error."""
    codes, words = table.tokens[column]
    numbers = [_amount(word.strip(), low, high) for word in words]
    bad = np.array([number is None for number in numbers])
    limits = f" from {low:g} to {high:g}" if np.isfinite(low) else ""
    table.refuse(bad[codes], column, '{column} is "{value}"', f"it must be a number{limits}")
    return np.array(numbers, dtype=np.float64)[codes]


def observed(table: TextTable, column: str) -> Attribute:
    """An attribute with one class for each value that occurs; classes in order of number or alphabet."""
    words = [word for word in table.tokens[column].names if word.strip().casefold() not in MISSING]
    classes = sorted({word.strip() for word in words}, key=_by_value(words))
    place = {word: number for number, word in enumerate(classes)}
    return Attribute(_classified(table, column, lambda word: place.get(word.strip()), ""), tuple(classes))


def chosen(
    table: TextTable, names: Sequence[str], borders: Mapping[str, Sequence[float]]
) -> dict[str, Attribute]:
    """The attributes a person asked for."""
    found = {name: _cut_or_observed(table, name, borders) for name in names}
    for name, attribute in found.items():
        if not 2 <= len(attribute.classes) <= MOST:
            what = f'attribute "{name}" has {len(attribute.classes):,} values'
            fix = f"between 2 and {MOST:,} classes are needed; see --borders"
            raise BadInput(table.source.where, what, fix)
    return found


def guessed(
    table: TextTable, names: Sequence[str], borders: Mapping[str, Sequence[float]]
) -> tuple[dict[str, Attribute], list[str]]:
    """Every column that could be an attribute, and a sentence for every one that could not."""
    every = {name: _cut_or_observed(table, name, borders) for name in names}
    found = {name: one for name, one in every.items() if 2 <= len(one.classes) <= MANY}
    said = 'column "{}" has {:,} different values: not taken as an attribute'
    return found, [said.format(name, len(every[name].classes)) for name in names if name not in found]


def _cut_or_observed(table: TextTable, name: str, borders: Mapping[str, Sequence[float]]) -> Attribute:
    return binned(table, name, borders[name]) if name in borders else observed(table, name)


def _classified(
    table: TextTable, column: str, find: Callable[[str], int | None], fix: str
) -> NDArray[np.int64]:
    """``[rows]`` the class of each row; a word that is neither missing nor known is an error."""
    codes, words = table.tokens[column]
    classes = [UNKNOWN if word.strip().casefold() in MISSING else find(word.strip()) for word in words]
    bad = np.array([number is None for number in classes])
    table.refuse(bad[codes], column, '{column} is "{value}"', fix)
    return np.array(classes, dtype=np.int64)[codes]


def _amount(word: str, low: float, high: float) -> float | None:
    if word.casefold() in MISSING:
        return np.nan
    plain = word.isascii() and "_" not in word and is_number(word)  # Python would read ``1_0``
    return float(word) if plain and np.isfinite(float(word)) and low <= float(word) <= high else None


def _by_value(words: Sequence[str]) -> Callable[[str], tuple[float, str]]:
    numeric = all(is_number(word) for word in words)
    return lambda word: (float(word) if numeric else 0.0, word)


def _ranges(borders: Sequence[float]) -> tuple[str, ...]:
    shown = [f"{border:g}" for border in borders]
    if len(shown) == 1:
        return f"under {shown[0]}", f"{shown[0]} and over"
    starts = [shown[0], *(f"over {border}" for border in shown[1:-1])]
    middle = [f"{start} to {end}" for start, end in zip(starts, shown[1:], strict=True)]
    return (f"under {shown[0]}", *middle, f"over {shown[-1]}")
