"""Parquet: originals of columns, or with one column of lists; types, names and notes stay."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from veilrec.base.files import Sink
from veilrec.errors import BadInput
from veilrec.lab.columns import opened
from veilrec.lab.ids import begin_of
from veilrec.lab.originals.original import Original
from veilrec.lab.vectors import Vectors

__all__ = ["Parquet"]


@dataclass(frozen=True)
class Parquet(Original):
    """A Parquet file.

    Attributes:
        source: Its table.
        widths: By column, how many numbers of the vector it holds, in the order of the vector.
        notes: How it was packed.
    """

    source: Any = field(repr=False)
    widths: dict[str, int]
    packing: str

    @classmethod
    def of(cls, path: Path, vectors: Vectors, ids: str | None) -> Parquet:
        """The table in a file, which was read before: it is sound."""
        from pyarrow import parquet, types

        read = set(opened(path, begin_of(path), ids, lists=True)[1].names) & set(vectors.columns)
        with parquet.ParquetFile(path) as file:
            source, about = file.read(), file.metadata
        packing = about.row_group(0).column(0).compression if about.num_row_groups else "SNAPPY"
        parts, widths = [], {}
        for column in source.column_names:
            if column not in read and f"{column} 1" not in read:  # ids, or an index that pandas left
                continue
            held = source.column(column)
            lists = hasattr(held.type, "value_type")
            kind = held.type.value_type if lists else held.type
            if not types.is_floating(kind):
                what = f'column "{column}" holds {kind}, which an eraser would round'
                raise BadInput(path, what, "save it as float32")
            flat = held.combine_chunks()
            values = np.asarray((flat.flatten() if lists else flat).to_numpy(zero_copy_only=False))
            parts.append(torch.from_numpy(values.reshape(source.num_rows, -1).copy()))
            widths[column] = parts[-1].shape[1]
        return cls(path, vectors, torch.cat(_alike(path, parts), 1), source, widths, packing)

    def put(self, sink: Sink, table: Tensor, changed: Tensor) -> None:
        """The whole table anew, with the types that it had."""
        import pyarrow
        from pyarrow import parquet

        found, begin = self.source, 0
        for name, width in self.widths.items():
            place, values = found.column_names.index(name), table[:, begin : begin + width].numpy()
            kind, begin = found.schema.field(name).type, begin + width
            rows = list(values) if hasattr(kind, "value_type") else np.ascontiguousarray(values[:, 0])
            found = found.set_column(place, found.schema.field(name), pyarrow.array(rows, type=kind))
        text = io.BytesIO()
        parquet.write_table(found, text, compression=self.packing)
        sink.write(text.getvalue())


def _alike(path: Path, parts: list[Tensor]) -> list[Tensor]:
    """Columns of one type, without which rows that stay could not stay to the bit."""
    kinds = {part.dtype for part in parts}
    if len(kinds) > 1:
        raise BadInput(path, "its columns have different types", "save all of them as float32 or float64")
    return parts
