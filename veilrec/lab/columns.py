"""Anyone's file with columns, CSV and its kin or Parquet, as one clean text whose layout is known."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from veilrec.datasets.reading.archives import Source, read
from veilrec.datasets.reading.columns import WORDS, column, guess
from veilrec.datasets.reading.layout import FileFormat, Layout, is_number, plain
from veilrec.datasets.reading.table import sample
from veilrec.datasets.reading.unpacking import most, too_large
from veilrec.errors import BadInput

__all__ = ["GUESSED", "PARQUET", "opened"]

PARQUET = b"PAR1"
GUESSED = FileFormat()
LOOK = 1_000  # rows looked at to tell a header from a row
WORD = 8  # bytes of a value, once it is read
SURE = 4  # numbers in a row that count up: fewer could be values


def opened(
    path: Path,
    begin: bytes,
    ids: str | None,
    told: Sequence[str] = (),
    *,
    lists: bool = False,
    written: FileFormat = GUESSED,
) -> tuple[Source, Layout, str]:
    """A text, its layout, and its column of ids: as told, else the one whose name says so, else the first.

    Args:
        path: The file.
        begin: Its first bytes, by which Parquet is known.
        ids: The column of ids, if somebody named it.
        told: Other columns that somebody named, by which a header is known.
        lists: Whether lists of Parquet become columns; if not, they are left out.
        written: How a text is written, as far as somebody said so.

    Raises:
        BadInput: Where it cannot be cut into columns, or has no such column.
    """
    if begin.startswith(PARQUET):
        if written.told:
            fix = "leave --sep, --header and --encoding out"
            raise BadInput(path, "is Parquet, which says itself how it is written", fix)
        return _from_parquet(path, ids, lists)
    source, layout = _understood(read(path), [*told, *([ids] if ids else [])], written)
    return source, layout, _id_column(source.where, layout, ids)


def _id_column(where: str, layout: Layout, told: str | None) -> str:
    if told is not None:
        return column(where, layout, told)
    named = guess(layout, "user") or next((name for name in layout.names if name.casefold() == "id"), None)
    return named or layout.names[0]


def _understood(source: Source, told: Sequence[str], written: FileFormat) -> tuple[Source, Layout]:
    """A text with its layout; a header is also a first line that counts columns, or has words no row has."""
    if source.data[:64].lstrip().startswith((b"{", b"[")):
        raise BadInput(source.where, "looks like JSON", "write it as CSV, one user a row", line=1)
    words = WORDS | {"id"} | {plain(name) for name in told if not name.isdecimal()}
    cut, layout = written.understand(source, words)
    if layout.header or written.names or written.header is False:
        return cut, layout
    first, *later = ([field.strip() for field in row] for row in sample(cut, layout, LOOK))
    if _counts_columns(first):
        return cut, replace(layout, header=True, names=(first[0] or "id", *first[1:]))
    named = later and not any(is_number(field) for field in first) and not _again(first, later)
    return replace(written, header=True).understand(source) if named else (cut, layout)


def _again(first: Sequence[str], later: Sequence[Sequence[str]]) -> bool:
    """Whether a field of the first row stands in a later one as well, below itself."""
    return any(
        field in {row[place] for row in later if place < len(row)} for place, field in enumerate(first)
    )


def _counts_columns(fields: Sequence[str]) -> bool:
    """Whether the names of columns are just their numbers, as in tables written without names."""
    later = fields if is_number(fields[0]) else fields[1:]
    if fields[0] and len(later) < SURE:
        return False
    return any(later == [str(start + place) for place in range(len(later))] for start in (0, 1))


def _from_parquet(path: Path, ids: str | None, lists: bool) -> tuple[Source, Layout, str]:
    """A Parquet file as text without a header, so that errors name its rows."""
    try:
        import pyarrow
        from pyarrow import csv, parquet
    except ImportError as error:
        fix = "pip install 'veilrec[parquet]', or save the file as CSV"
        raise BadInput(path, "Parquet is read by pyarrow, which is not installed", fix) from error
    text = io.BytesIO()
    try:
        with parquet.ParquetFile(path) as file:
            _check_size(path, file.metadata)
            table = _index_first(file.read())
        layout = Layout(",", ",", tuple(table.column_names), False, True)
        _check(path, layout, table.num_rows)
        name = _id_column(str(path), layout, ids)
        if not _may_be_ids(table.schema.field(name).type):
            what = f'column "{name}" holds numbers with a point or lists, not ids'
            raise BadInput(path, what, "name the column with --id, or write whole numbers")
        flat = _flat(path, table, lists)
        csv.write_csv(flat, text, csv.WriteOptions(include_header=False, quoting_style="needed"))
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        what = f"cannot be read as Parquet: {str(error).partition(chr(10))[0][:120] or 'damaged'}"
        raise BadInput(path, what, "write it again") from error
    return Source(str(path), text.getvalue()), replace(layout, names=tuple(flat.column_names)), name


def _index_first(table: Any) -> Any:
    """A table whose first column is the index of the pandas frame that it was written from.

    pandas puts the index behind all other columns, where nobody looks for ids. One without a name is most
    often what numbers of rows a filter left: it goes, unless it is text, or nothing else can be an id.
    """
    index = [name for name in _index_of(table) if name in table.column_names]
    others = [name for name in table.column_names if name not in index]
    able = any(_may_be_ids(table.schema.field(name).type) for name in others)
    keep = [name for name in index if not (able and _only_counts(table.schema.field(name)))]
    told = ["index" if _is_nameless(name) and "index" not in table.column_names else name for name in keep]
    return table.select([*keep, *others]).rename_columns([*told, *others]) if index else table


def _is_nameless(name: str) -> bool:
    return name.startswith("__index_level_")


def _only_counts(field: Any) -> bool:
    from pyarrow import types

    return _is_nameless(field.name) and bool(types.is_integer(field.type))


def _may_be_ids(kind: Any) -> bool:
    from pyarrow import types

    return not (types.is_floating(kind) or types.is_decimal(kind) or _is_list(kind))


def _index_of(table: Any) -> list[str]:
    """The columns that pandas says were the index."""
    told = (table.schema.metadata or {}).get(b"pandas", b"{}")
    try:
        found = json.loads(told).get("index_columns", [])
    except (ValueError, AttributeError, RecursionError):  # whatever it is, pandas has not written it
        return []
    return [name for name in found if isinstance(name, str)] if isinstance(found, list) else []


def _check_size(path: Path, told: Any) -> None:
    """Refuse a table that says of itself that it would not fit; a few bytes may stand for a billion rows."""
    groups = [told.row_group(k) for k in range(told.num_row_groups)]
    columns = [group.column(k) for group in groups for k in range(group.num_columns)]
    size = sum(max(WORD * column.num_values, column.total_uncompressed_size) for column in columns)
    if size > most():
        raise too_large(path, f"{size:,}")


def _check(path: Path, layout: Layout, rows: int) -> None:
    if len(set(layout.names)) < len(layout.names):
        raise BadInput(path, "two columns have the same name", "rename one of them")
    if not rows or not layout.names:
        raise BadInput(path, "no rows", "give a file with rows")


def _is_list(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _flat(path: Path, table: Any, lists: bool) -> Any:
    """A table whose columns of equally long lists have become a column for each place, or are left out."""
    import pyarrow
    from pyarrow import compute

    columns: dict[str, Any] = {}
    for name, held in zip(table.column_names, table.columns, strict=True):
        if not _is_list(held.type):
            columns[name] = held
        elif lists:
            lengths = compute.list_value_length(held).fill_null(0).to_pylist()
            for row, length in enumerate(lengths, 1):
                if length != lengths[0]:
                    what = f"a list of {length} where the first row has {lengths[0]}"
                    raise BadInput(path, what, "give every user a vector of the same length", line=row)
            columns |= {f"{name} {k + 1}": compute.list_element(held, k) for k in range(lengths[0])}
    return pyarrow.table(columns)
