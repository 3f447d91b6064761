"""Columns of a text as arrays; a bad value is refused with its line."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from veilrec.datasets.reading.archives import Source
from veilrec.datasets.reading.layout import Layout, is_number, rows
from veilrec.errors import BadInput

__all__: list[str] = []

CHUNK = 2_000  # rows held as lists at a time: of more, Python looks through all too often
Kind = Literal["token", "number"]
Values = NDArray[Any]  # int32, int64 or float64


class Tokens(NamedTuple):
    """A column of words: ``codes [rows]`` into the distinct ``names``, in the order of their appearance."""

    codes: NDArray[np.int32]
    names: list[str]


@dataclass(frozen=True)
class TextTable:
    """Some columns of one text.

    Attributes:
        source, layout: Where they come from.
        tokens: Columns of words.
        numbers: Columns of numbers, int64 where all of them are whole, else float64.
        length: How many rows there are.
    """

    source: Source
    layout: Layout
    tokens: Mapping[str, Tokens]
    numbers: Mapping[str, Values]
    length: int

    def refuse(self, bad: NDArray[np.bool_], column: str, what: str, fix: str) -> None:
        """Raise for the first row of a mask, if there is one; ``{value}`` in `what` is the field there."""
        if not bad.any():
            return
        row = int(bad.argmax())
        line, fields = next(itertools.islice(rows(self.source, self.layout), row, None))
        value = fields[self.layout.names.index(column)]
        said = what.replace("{column}", column).replace("{value}", value[:60])
        raise BadInput(self.source.where, said, fix, line=line)


def read_table(source: Source, layout: Layout, kinds: Mapping[str, Kind]) -> TextTable:
    """The columns named in `kinds`, as words or as finite numbers; nothing is converted before.

    Raises:
        BadInput: For no rows at all, a row with too many or too few fields, or a bad number.
    """
    import pandas as pd

    books: dict[str, dict[str, int]] = {name: {} for name, kind in kinds.items() if kind == "token"}
    parts: dict[str, list[Values]] = {name: [] for name in kinds}
    stream = (fields for _, fields in rows(source, layout))
    while some := list(itertools.islice(stream, CHUNK)):
        held = dict(zip(layout.names, zip(*some, strict=True), strict=True))
        for name in kinds:
            codes, words = pd.factorize(np.array(held[name], dtype=object))
            if name in books:
                book = books[name]
                places = (book.setdefault(word, len(book)) for word in words)
                values: Values = np.fromiter(places, np.int32, len(words))
            else:
                values = _numbers(source, layout, name, list(words))
            parts[name].append(values[codes])
    if not any(parts.values()):
        raise BadInput(source.where, "a header and no rows", "give a file with rows", line=1)
    columns = {name: np.concatenate(parts.pop(name)) for name in kinds}
    tokens = {name: Tokens(columns[name], list(book)) for name, book in books.items()}
    numbers = {name: columns[name] for name in kinds if name not in books}
    return TextTable(source, layout, tokens, numbers, len(next(iter(columns.values()))))


def sample(source: Source, layout: Layout, count: int) -> list[list[str]]:
    """The first rows, as fields."""
    return [fields for _, fields in itertools.islice(rows(source, layout), count)]


def _numbers(source: Source, layout: Layout, name: str, words: list[str]) -> Values:
    """The values of distinct fields: int64 where all are whole, else float64."""
    joined = "".join(words)
    if joined.isascii() and "_" not in joined:  # Python would read ``1_0`` and other alphabets' digits
        for kind in (np.int64, np.float64):
            with contextlib.suppress(ValueError, OverflowError):
                values: Values = np.array(words, dtype=object).astype(kind)
                if np.isfinite(values).all():
                    return values
    place = layout.names.index(name)
    for line, fields in rows(source, layout):
        if not is_finite(fields[place]):
            what = (
                f'{name} is "{fields[place][:60]}", not a number'
                if fields[place].strip()
                else f"{name} is empty"
            )
            raise BadInput(source.where, what, "correct it, or leave the column out", line=line)
    raise BadInput(source.where, f"{name} has values that are not numbers", "correct them")


def is_finite(field: str) -> bool:
    """Whether a field is a finite number as other programs write it, too; Python would read ``1_0``."""
    return field.isascii() and "_" not in field and is_number(field) and math.isfinite(float(field))
