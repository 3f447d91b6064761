"""Texts that are mostly numbers: parsed in blocks, with the line of the first field that is not a number."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from veilrec.datasets.reading.archives import Source
from veilrec.datasets.reading.columns import WORDS
from veilrec.datasets.reading.layout import Layout, is_number, plain, rows, understand
from veilrec.datasets.reading.table import Table, frames, read_table, sample
from veilrec.errors import BadInput

__all__ = ["read_numbers", "understand_numbers"]

VALUES = 1 << 23  # parsed at a time: 64 MB
SURE = 4  # numbers in a row that count up: fewer could be values


def understand_numbers(source: Source, ids: str | None) -> tuple[Source, Layout]:
    """The layout of a clean text of vectors; a first line that only counts the columns is its header."""
    if source.data[:64].lstrip().startswith((b"{", b"[")):
        raise BadInput(source.where, "looks like JSON", "write it as CSV, one user a row", line=1)
    words = WORDS | {"id", plain(ids or "id")}
    cut, layout = understand(source, words=words)
    first = [] if layout.header else [field.strip() for field in sample(cut, layout, 1)[0]]
    if first and _counts_columns(first):
        return cut, replace(layout, header=True, names=(first[0] or "id", *first[1:]))
    return cut, layout


def read_numbers(
    source: Source, layout: Layout, columns: Sequence[str], ids: str
) -> tuple[NDArray[np.float32], Table]:
    """``[rows, columns]`` finite numbers, and the table of the column `ids` as words.

    Raises:
        BadInput: With the line of the first field that is not a finite number.
    """
    import pandas as pd

    table = read_table(source, layout, {ids: "token"})
    if not columns:
        raise BadInput(source.where, "no column beside the ids", "give the vectors as well", line=1)
    values = np.empty((table.length, len(columns)), dtype=np.float32)
    places, start = [layout.names.index(name) for name in columns], 0
    try:
        size = max(1, VALUES // len(columns))
        for frame in frames(source, layout, places, np.float64, size):
            with np.errstate(over="ignore"):
                values[start : start + len(frame)] = frame.to_numpy()
            start += len(frame)
    except (ValueError, pd.errors.ParserError) as error:
        _refuse_words(source, layout, columns)
        raise BadInput(source.where, f"cannot be read as numbers: {error}", "check its fields") from error
    if start != table.length or not np.isfinite(values).all():
        _refuse_words(source, layout, columns)
        raise BadInput(source.where, "has numbers too large for float32", "scale the vectors")
    return values, table


def _counts_columns(fields: Sequence[str]) -> bool:
    """Whether the names of columns are just their numbers, as in tables written without names."""
    later = fields if is_number(fields[0]) else fields[1:]
    if len(later) == len(fields) < SURE:
        return False
    return any(later == [str(start + place) for place in range(len(later))] for start in (0, 1))


def _refuse_words(source: Source, layout: Layout, columns: Sequence[str]) -> None:
    """Find, slowly, the first field that is not a finite number."""
    places = {layout.names.index(name): name for name in columns}
    for line, fields in rows(source, layout):
        for place, name in places.items():
            field = fields[place]
            if is_number(field) and field.isascii() and "_" not in field and math.isfinite(float(field)):
                continue
            what = f'"{field[:60]}", not a finite number' if field.strip() else "empty"
            fix = "vectors are numbers: correct it, or leave the column out of the file"
            if field.replace(",", "", 1).strip("-").isdecimal() and "," in field:
                fix = "write numbers with a decimal point"
            raise BadInput(source.where, f'column "{name}" is {what}', fix, line=line)
