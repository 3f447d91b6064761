"""Columns of a Parquet file, one at a time: as words, as numbers, or as a list of numbers a row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilrec.datasets.reading.archives import Source
from veilrec.datasets.reading.layout import Layout
from veilrec.datasets.reading.table import Table, Tokens
from veilrec.errors import BadInput

__all__: list[str] = []

BATCH = 1 << 16  # rows of lists read at a time
MAGIC = b"PAR1"


class Rows(Table):
    """A table that was never text: errors count rows where text has lines."""

    def refuse(self, bad: NDArray[np.bool_], column: str, what: str, fix: str) -> None:
        """Raise for the first row of a mask, if there is one; ``{value}`` in `what` is the value there."""
        if bad.any():
            row = int(bad.argmax())
            codes, names = self.tokens[column]
            said = what.replace("{column}", column).replace("{value}", names[codes[row]][:60])
            raise BadInput(self.source.where, f"row {row + 1}: {said}", fix)


class Parquet:
    """A Parquet file.

    Attributes:
        path: Where it lies.
        names: Of its columns.
        length: How many rows it has.

    Raises:
        BadInput: Where it is damaged, or where pyarrow is not installed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._arrow, parquet = _pyarrow(path)
        with self._reading():
            self._file = parquet.ParquetFile(path)
            self._types = {field.name: field.type for field in self._file.schema_arrow}
            self.names: tuple[str, ...] = tuple(self._file.schema_arrow.names)
            self.length: int = self._file.metadata.num_rows
        if len(set(self.names)) < len(self.names):
            raise BadInput(path, "two columns have the same name", "rename one of them")
        if not self.length or not self.names:
            raise BadInput(path, "no rows", "give a file with rows")

    @property
    def layout(self) -> Layout:
        """Its columns, as those of a text are described."""
        return Layout(",", ",", self.names, True, False)

    def kind(self, name: str) -> str:
        """The kind of a column: ``whole``, ``fraction``, ``list`` of numbers, or ``word``."""
        arrow, held = self._arrow.types, self._types[name]
        if arrow.is_list(held) or arrow.is_large_list(held) or arrow.is_fixed_size_list(held):
            inner = held.value_type
            return "list" if arrow.is_floating(inner) or arrow.is_integer(inner) else "word"
        if arrow.is_integer(held):
            return "whole"
        return "fraction" if arrow.is_floating(held) or arrow.is_decimal(held) else "word"

    def table(self, names: Sequence[str]) -> Rows:
        """Some columns as words; nothing is empty but what is null."""
        source = Source(str(self.path), b"")
        return Rows(source, self.layout, {name: self._words(name) for name in names}, {}, self.length)

    def numbers(self, name: str) -> NDArray[np.float64]:
        """``[rows]`` a column of numbers, NaN where null."""
        with self._reading():
            column = self._column(name).cast(self._arrow.float64(), safe=False)
            return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.float64)

    def lists(self, name: str) -> Iterator[NDArray[np.float64]]:
        """``[some rows, width]`` a column of equally long lists, a batch at a time."""
        width, row = None, 0
        with self._reading():
            for batch in self._file.iter_batches(BATCH, columns=[name]):
                column = batch.column(0)
                flat = column.flatten().cast(self._arrow.float64(), safe=False)
                lengths = self._lengths(column)
                width = int(lengths[0]) if width is None else width
                if (odd := lengths != width).any():
                    place = int(odd.argmax())
                    said = (
                        f"row {row + place + 1}: a list of {lengths[place]} where the first row has {width}"
                    )
                    raise BadInput(self.path, said, "give every user a vector of the same length")
                row += len(column)
                yield flat.to_numpy(zero_copy_only=False).reshape(len(column), width)
        if row != self.length:
            raise BadInput(
                self.path, f'column "{name}" has {row:,} rows of {self.length:,}', "write it again"
            )

    def _lengths(self, column: Any) -> NDArray[np.int64]:
        from pyarrow import compute

        found = compute.list_value_length(column).fill_null(0)
        return np.asarray(found.to_numpy(zero_copy_only=False), dtype=np.int64)

    def _words(self, name: str) -> Tokens:
        """A column as text: whole numbers without a point, wherever they come from a column of fractions."""
        with self._reading():
            column = self._column(name)
            if self.kind(name) == "fraction":
                return _spelt(np.asarray(column.cast(self._arrow.float64(), safe=False).to_numpy()))
            coded = column.cast(self._arrow.string()).fill_null("").combine_chunks().dictionary_encode()
            codes = np.asarray(coded.indices.to_numpy(zero_copy_only=False), dtype=np.int32)
            return Tokens(codes, coded.dictionary.to_pylist())

    def _column(self, name: str) -> Any:
        found = self._file.read(columns=[name]).column(name)
        if len(found) != self.length:
            raise BadInput(
                self.path, f'column "{name}" has {len(found):,} rows of {self.length:,}', "write it again"
            )
        return found

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except (self._arrow.ArrowException, OSError, ValueError) as error:
            what = (
                f"cannot be read as Parquet: {str(error).splitlines()[0][:120] if str(error) else 'damaged'}"
            )
            raise BadInput(self.path, what, "write it again") from error


def _spelt(values: NDArray[np.float64]) -> Tokens:
    """Numbers as people write them: ``1`` for 1.0, nothing for NaN."""
    distinct, codes = np.unique(values, return_inverse=True)
    words = ["" if np.isnan(value) else f"{value:.15g}" for value in distinct.tolist()]
    return Tokens(codes.astype(np.int32), words)


def _pyarrow(path: Path) -> tuple[Any, Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        fix = "pip install 'veilrec[parquet]', or save the file as CSV"
        raise BadInput(path, "Parquet is read by pyarrow, which is not installed", fix) from error
    return pyarrow, parquet
