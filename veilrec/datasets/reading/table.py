"""Columns of a text as arrays: fast where the text is good, else with the line of the first bad value."""

from __future__ import annotations

import contextlib
import io
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from veilrec.datasets.reading.archives import Source
from veilrec.datasets.reading.layout import Layout, is_number, rows
from veilrec.datasets.reading.text import line_at, line_ends
from veilrec.errors import BadInput

__all__: list[str] = []

CHUNK = 500_000  # rows parsed at a time
Kind = Literal["token", "number"]
Values = NDArray[Any]  # int32, int64 or float64


class Tokens(NamedTuple):
    """A column of words: ``codes [rows]`` into the distinct ``names``, in the order of their appearance."""

    codes: NDArray[np.int32]
    names: list[str]


@dataclass(frozen=True)
class Table:
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


def read_table(source: Source, layout: Layout, kinds: Mapping[str, Kind]) -> Table:
    """The columns named in `kinds`, as words or as finite numbers.

    Raises:
        BadInput: For no rows at all, a row with too many or too few fields, or a bad number.
    """
    length = _checked_length(source, layout)
    if not length:
        raise BadInput(source.where, "a header and no rows", "give a file with rows", line=1)
    books: dict[str, dict[str, int]] = {name: {} for name, kind in kinds.items() if kind == "token"}
    parts: dict[str, list[Values]] = {name: [] for name in kinds}
    for chunk in _chunks(source, layout, list(kinds)):
        for name in kinds:
            codes, words = _factorised(chunk[name])
            if name in books:
                book = books[name]
                places = (book.setdefault(word, len(book)) for word in words)
                values: Values = np.fromiter(places, np.int32, len(words))
            else:
                values = _numbers(source, layout, name, words)
            parts[name].append(values[codes])
    columns = {name: np.concatenate(parts.pop(name)) for name in kinds}
    if any(len(column) != length for column in columns.values()):
        raise BadInput(source.where, "rows and lines do not agree", "check its quotes and line ends")
    tokens = {name: Tokens(columns[name], list(book)) for name, book in books.items()}
    numbers = {name: columns[name] for name in kinds if name not in books}
    return Table(source, layout, tokens, numbers, length)


def sample(source: Source, layout: Layout, count: int) -> list[list[str]]:
    """The first rows, as fields."""
    return [fields for _, fields in itertools.islice(rows(source, layout), count)]


def frames(source: Source, layout: Layout, places: Sequence[int], dtype: type, size: int) -> Iterator[Any]:
    """Some columns of a text as frames of so many rows; nothing is taken for missing."""
    import pandas as pd

    yield from pd.read_csv(
        io.BytesIO(source.data),
        sep=layout.separator,
        header=0 if layout.header else None,
        names=list(range(len(layout.names))),
        usecols=list(places),
        index_col=False,
        dtype=dtype,
        na_filter=False,
        quoting=0 if layout.quoted else 3,
        skipinitialspace=layout.spaced,
        chunksize=size,
        encoding="utf-8",
    )


def _chunks(source: Source, layout: Layout, names: Sequence[str]) -> Iterator[dict[str, NDArray[np.object_]]]:
    """The columns as Python strings, some rows at a time; nothing is converted, so ``007`` is not ``7``."""
    import pandas as pd

    places = [layout.names.index(name) for name in names]
    try:
        for frame in frames(source, layout, places, object, CHUNK):
            yield {name: frame[place].to_numpy() for name, place in zip(names, places, strict=True)}
    except pd.errors.ParserError as error:
        raise BadInput(source.where, f"cannot be cut into fields: {error}", "check its quotes") from error


def _factorised(column: NDArray[np.object_]) -> tuple[NDArray[np.intp], list[str]]:
    import pandas as pd

    codes, words = pd.factorize(column)
    return codes, list(words)


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
            raise BadInput(
                source.where, what, 'correct it, or give "-" for the column to leave it out', line=line
            )
    raise BadInput(source.where, f"{name} has values that are not numbers", "correct them")


def is_finite(field: str) -> bool:
    """Whether a field is a finite number as other programs write it, too; Python would read ``1_0``."""
    return field.isascii() and "_" not in field and is_number(field) and math.isfinite(float(field))


def _checked_length(source: Source, layout: Layout) -> int:
    """Count the rows, and refuse a row with more or fewer fields than the first."""
    width = len(layout.names)
    if layout.quoted and b'"' in source.data:
        length = 0
        for line, fields in rows(source, layout):
            if len(fields) != width:
                raise _ragged(source, layout, len(fields), line)
            length += 1
        return length
    return _counted_lines(source, layout) - layout.header


def _counted_lines(source: Source, layout: Layout) -> int:
    """Count the lines that are not blank, by counting separators in blocks."""
    data, separator = source.data, layout.separator.encode()
    whole = np.frombuffer(data, dtype=np.uint8)
    blanks = bytes(set(b" \t\v\f") - set(separator))
    start, lines = 0, 0
    for ends in line_ends(data):
        if not len(ends):
            continue
        starts = np.concatenate([[start], ends[:-1] + 1])
        marks = whole[start : ends[-1] + 1] == separator[0]
        counts = np.add.reduceat(np.append(marks, False), starts - start, dtype=np.int64)
        lines += len(ends)
        for place in np.flatnonzero(counts != len(layout.names) - 1):
            if data[starts[place] : ends[place]].strip(blanks):
                raise _ragged(source, layout, int(counts[place]) + 1, line_at(data, int(starts[place])))
            lines -= 1
        start = int(ends[-1]) + 1
    return lines


def _ragged(source: Source, layout: Layout, found: int, line: int) -> BadInput:
    first = "the header" if layout.header else "the first row"
    what = f"{found} fields where {first} has {len(layout.names)}"
    return BadInput(source.where, what, "correct the line, or its quotes", line=line)
