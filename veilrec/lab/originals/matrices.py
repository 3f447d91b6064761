"""Matrices: originals that are an npy array, or one tensor of a safetensors file."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from veilrec.base.files import Sink
from veilrec.base.params import Params
from veilrec.base.tensors import NAMES, Reader, put_tensors
from veilrec.errors import BadInput
from veilrec.lab.ids import open_array
from veilrec.lab.originals.original import Original, checked_type
from veilrec.lab.vectors import Vectors

__all__ = ["Array", "Tensors"]


@dataclass(frozen=True)
class Array(Original):
    """An npy file; the order of its bytes and of its axes stays.

    Attributes:
        dtype: The type as it is in the file.
        by_column: Whether a column lies as a whole.
    """

    dtype: np.dtype[Any]
    by_column: bool

    @classmethod
    def of(cls, path: Path, vectors: Vectors) -> Array:
        """The array in a file."""
        found = open_array(path)
        by_column = bool(found.flags.f_contiguous and not found.flags.c_contiguous)
        try:
            table = torch.from_numpy(np.array(found, dtype=found.dtype.newbyteorder("="), order="C"))
        except TypeError as error:
            raise BadInput(path, f"holds {found.dtype}", "save it as float32 or float64") from error
        return cls(path, vectors, checked_type(path, table), found.dtype, by_column)

    def put(self, sink: Sink, table: Tensor, changed: Tensor) -> None:
        """The whole file, of which rows that stay have the bits that they had."""
        values: NDArray[Any] = table.numpy().astype(self.dtype)
        values = np.asfortranarray(values) if self.by_column else values
        np.lib.format.write_array(sink, values, allow_pickle=False)


@dataclass(frozen=True)
class Tensors(Original):
    """A safetensors file; its other tensors and its notes stay.

    Attributes:
        name: The tensor that has a row a user.
        others: The others by name.
        notes: What stands in its header.
    """

    name: str
    others: Params = field(repr=False)
    notes: dict[str, str]

    @classmethod
    def of(cls, path: Path, vectors: Vectors) -> Tensors:
        """The tensor of a file of which the vectors were read."""
        file, name = Reader(path), vectors.tensor
        others = {other: file.get(other) for other in file.names}
        for other, value in others.items():
            if value.dtype not in NAMES:
                raise BadInput(path, f'"{other}" holds {value.dtype}, which cannot be written', "drop it")
        table = checked_type(path, others[name])
        return cls(path, vectors, table, name, others, file.notes)

    def put(self, sink: Sink, table: Tensor, changed: Tensor) -> None:
        """The whole file, of which rows that stay have the bits that they had."""
        put_tensors(sink, {**self.others, self.name: table}, self.notes)
