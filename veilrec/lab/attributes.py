"""Attributes of users from anyone's file: one column an attribute, classes or numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from veilrec.datasets.reading.columns import column
from veilrec.datasets.reading.layout import FileFormat, is_number
from veilrec.datasets.reading.people import Attribute, amounts, binned, observed
from veilrec.datasets.reading.table import TextTable, read_table
from veilrec.errors import BadInput
from veilrec.lab.columns import GUESSED, opened
from veilrec.lab.ids import NPY, begin_of, unique_ids

__all__ = ["MOST", "Described", "described", "read_attributes"]

MOST = 50  # classes of one attribute
MANY = 20  # different numbers, beyond which they are more likely amounts than classes


@dataclass(frozen=True)
class Described:
    """Users and what is known about them.

    Attributes:
        where: The file.
        ids: ``[rows]`` as written there.
        labels: ``[rows]`` classes by attribute, -1 where unknown.
        values: ``[rows]`` numbers by attribute, NaN where unknown.
        asked: The attributes that were asked for by name: what is wrong with them is an error.
        notes: What was left out, as sentences.
    """

    where: str
    ids: list[str]
    labels: Mapping[str, Attribute]
    values: Mapping[str, NDArray[np.float64]]
    asked: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()


def read_attributes(
    path: Path,
    *,
    ids: str | None = None,
    attributes: Sequence[str] = (),
    continuous: Sequence[str] = (),
    borders: Mapping[str, Sequence[float]] | None = None,
    written: FileFormat = GUESSED,
) -> Described:
    """The users of a text with columns or of a Parquet file.

    Args:
        path: The file, one row a user.
        ids: Its column of ids; None for the one whose name says so, else the first.
        attributes: The columns to take; empty for every one that could be an attribute.
        continuous: Columns whose numbers are amounts, not classes.
        borders: Where to cut the numbers of a column into groups, as in ``{"age": (35, 45)}``.
        written: How a text is written, as far as somebody said so.

    Raises:
        BadInput: With the line, where a value or an id is impossible.
    """
    table, name = _table(path, ids, [*attributes, *continuous, *(borders or {})], written)
    return described(table, name, attributes=attributes, continuous=continuous, borders=borders)


def described(
    table: TextTable,
    name: str,
    *,
    attributes: Sequence[str] = (),
    continuous: Sequence[str] = (),
    borders: Mapping[str, Sequence[float]] | None = None,
) -> Described:
    """The users of a table, by its column of ids."""
    cuts = borders or {}
    where, layout = table.source.where, table.layout
    wanted, numbers, groups = (
        [column(where, layout, told) for told in names] for names in (attributes, continuous, cuts)
    )
    _refuse_contradictions([*wanted, *groups], numbers, name)
    others = [other for other in layout.names if other not in (name, *numbers, *groups)]
    cut = {other: binned(table, other, cuts[told]) for other, told in zip(groups, cuts, strict=True)}
    labels, notes = _labels(table, [one for one in wanted or others if one not in cut], bool(wanted))
    values = {other: amounts(table, other) for other in numbers}
    asked, labels = frozenset([*wanted, *numbers, *groups]), {**labels, **cut}
    return Described(where, unique_ids(table, name), labels, values, asked, tuple(notes))


def _table(path: Path, ids: str | None, told: Sequence[str], written: FileFormat) -> tuple[TextTable, str]:
    """All columns as words, and the name of the one with ids."""
    begin = begin_of(path)
    if begin.startswith(NPY) or path.suffix == ".safetensors":
        raise BadInput(path, "has no names of columns", "give the attributes as CSV or Parquet")
    source, layout, name = opened(path, begin, ids, told, written=written)
    return read_table(source, layout, dict.fromkeys(layout.names, "token")), name


def _refuse_contradictions(wanted: Sequence[str], amounts: Sequence[str], ids: str) -> None:
    for name in (*wanted, *amounts):
        if name == ids:
            raise BadInput("--attribute", f'"{name}" is the column of ids', "name another, or change --id")
    if both := set(wanted) & set(amounts):
        what = f'"{min(both)}" is an attribute with classes and continuous as well'
        raise BadInput("--continuous", what, "choose one of the two")


def _labels(table: TextTable, names: Sequence[str], asked: bool) -> tuple[dict[str, Attribute], list[str]]:
    """The columns with classes; one that cannot be an attribute is an error where it was asked for."""
    found, notes = {}, []
    for name in names:
        attribute = observed(table, name)
        count, numeric = len(attribute.classes), all(is_number(word) for word in attribute.classes)
        hint = (
            f"; amounts? then --borders {name}=A,B or --continuous {name}" if numeric and count > MANY else ""
        )
        if 2 <= count <= MOST and (asked or not hint):
            found[name] = attribute
            notes += [f"{name} has {count} numbers as classes{hint}"] if hint else []
        elif asked:
            fix = f"2 to {MOST} classes are needed{hint}"
            raise BadInput(table.source.where, f'attribute "{name}" has {count:,} different values', fix)
        else:
            notes.append(f"{name} has {count:,} different values: not taken as an attribute{hint}")
    return found, notes
