"""Opening of originals, whose kind is known by their first bytes."""

from __future__ import annotations

from pathlib import Path

from veilrec.datasets.reading.archives import kind_of
from veilrec.errors import BadInput
from veilrec.lab.columns import PARQUET
from veilrec.lab.ids import NPY, begin_of
from veilrec.lab.originals.matrices import Array, Tensors
from veilrec.lab.originals.original import Original
from veilrec.lab.originals.parquet import Parquet
from veilrec.lab.originals.texts import Text
from veilrec.lab.vectors import Vectors

__all__ = ["open_original"]


def open_original(path: Path, vectors: Vectors, ids: str | None = None) -> Original:
    """The original in a file of which vectors were read, and found sound; `ids` is its column of ids.

    Raises:
        BadInput: For what is no file of vectors, or one that could not be written again as it is.
    """
    begin = begin_of(path, archives=True)
    if begin.startswith(NPY):
        return Array.of(path, vectors)
    if path.suffix == ".safetensors":
        return Tensors.of(path, vectors)
    if kind_of(begin) == "zip":
        raise BadInput(path, "an npz, which would have to be packed anew", "save the array as npy")
    if begin.startswith(PARQUET):
        return Parquet.of(path, vectors, ids)
    return Text.of(path, vectors, ids)
