"""Files as others publish them, whose columns are known beforehand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from veilrec.datasets.reading.archives import Source
from veilrec.datasets.reading.layout import understand
from veilrec.datasets.reading.table import Kind, TextTable, read_table
from veilrec.datasets.reading.text import clean
from veilrec.errors import BadInput

__all__: list[str] = []


def with_header(
    source: Source, separator: str, kinds: Mapping[str, Kind], *, quoted: bool = False
) -> TextTable:
    """Some columns of a file, by the names in its header."""
    source, layout = understand(clean(source), separator=separator, header=True, quoted=quoted)
    for column in kinds:
        if column not in layout.names:
            what = f'no column "{column}" among {", ".join(layout.names)}'
            raise BadInput(source.where, what, "give a file with these columns", line=1)
    return read_table(source, layout, kinds)


def without_header(
    source: Source,
    separator: str,
    columns: Sequence[str],
    kinds: Mapping[str, Kind],
    encoding: str | None = None,
) -> TextTable:
    """Some of the `columns` that a file has, in their order."""
    text = clean(source, encoding)
    source, layout = understand(text, separator=separator, header=False, quoted=False)
    if len(layout.names) != len(columns):
        what = f"{len(layout.names)} fields where the published file has {len(columns)}"
        raise BadInput(source.where, what, "give the file as published", line=1)
    return read_table(source, replace(layout, names=tuple(columns)), kinds)


def beginning(cuts: Sequence[int]) -> tuple[str, ...]:
    """The names of the groups of whole numbers that begin at each cut.

    >>> beginning((21, 26))
    ('under 21', '21 to 25', '26 and over')
    """
    middle = (f"{start} to {end - 1}" for start, end in pairwise(cuts))
    return (f"under {cuts[0]}", *middle, f"{cuts[-1]} and over")
