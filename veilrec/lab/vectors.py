"""Anyone's user vectors: npy, npz, CSV and its kin, Parquet or safetensors, with the ids that came along."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from veilrec.base.tensors import Reader
from veilrec.datasets.reading.archives import Archive, kind_of
from veilrec.datasets.reading.table import read_table
from veilrec.datasets.reading.unpacking import most, too_large
from veilrec.errors import BadInput, Corrupted, nearest
from veilrec.lab.columns import opened
from veilrec.lab.ids import NPY, begin_of, open_array, open_member, unique_ids

__all__ = ["Vectors", "finite", "read_vectors"]

WHOLE = {torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64}
LARGEST = 1 << 31  # values of one file: 8 GB as float32
BLOCK = 1 << 16  # rows looked at together
EXACT = 1 << 24  # whole numbers beyond this are not told apart in float32
SHOWN = 8  # names of arrays that a line has room for
FEW = 20  # rows too few to say what a column is


@dataclass(frozen=True)
class Vectors:
    """One vector a user.

    Attributes:
        where: The file.
        values: ``[rows, width]`` float32, all finite.
        ids: ``[rows]`` the users' ids as written there, or None where the file has none.
        columns: ``[width]`` names, where the file has any.
        tensor: Which one of several arrays it was.
    """

    where: str
    values: NDArray[np.float32]
    ids: list[str] | None
    columns: tuple[str, ...] = ()
    tensor: str = ""


def read_vectors(path: Path, *, ids: str | None = None, tensor: str | None = None) -> Vectors:
    """The vectors in a file, whose kind is known by its first bytes.

    Args:
        path: The file.
        ids: The column of ids; None for the one whose name says so, else the first.
        tensor: Which array of a safetensors or npz file; None where it holds one matrix, or one of users.

    Raises:
        BadInput: For a file that is none of these, or a value that is not a finite number.
    """
    begin = begin_of(path, archives=True)
    safe, zipped = path.suffix == ".safetensors", kind_of(begin) == "zip"
    if tensor is not None and not (safe or zipped):
        raise BadInput("--tensor", f"{path.name} has no tensors to choose from", "leave it out")
    if ids is not None and (safe or zipped or begin.startswith(NPY)):
        raise BadInput(path, "has no column of ids", "leave the option out; give the ids with --ids FILE")
    if begin.startswith(NPY):
        found = Vectors(str(path), finite(str(path), open_array(path)), None)
    elif safe:
        found = _from_tensors(path, tensor)
    elif zipped:
        found = _from_arrays(path, tensor)
    else:
        found = _from_columns(path, begin, ids)
    _refuse_ids_among(found)
    return found


def finite(where: str, found: NDArray[np.generic]) -> NDArray[np.float32]:
    """A matrix in float32, block by block."""
    if found.dtype.kind not in "fiu":
        raise BadInput(where, f"holds {found.dtype}, not numbers", "save it as float32")
    if found.ndim != 2 or 0 in found.shape:
        raise BadInput(where, f"has shape {list(found.shape)}", "give one row a user: [users, width]")
    if found.size > LARGEST:
        what = f"{found.shape[0]:,} × {found.shape[1]:,} values, more than {LARGEST:,}"
        raise BadInput(where, what, "audit a sample of the users")
    if (size := found.size * np.dtype(np.float32).itemsize) > most():
        raise too_large(where, f"{size:,}")
    values = np.empty(found.shape, dtype=np.float32)
    for start in range(0, len(found), BLOCK):
        with np.errstate(over="ignore"):
            values[start : start + BLOCK] = found[start : start + BLOCK]
        _refuse_wild(where, values[start : start + BLOCK], start)
    return values


def _refuse_wild(where: str, values: NDArray[np.float32], start: int) -> None:
    """Refuse a value that is not finite, with its row and column from 1."""
    if not (wild := ~np.isfinite(values)).any():
        return
    row, place = np.argwhere(wild)[0].tolist()
    what = f"row {start + row + 1}, column {place + 1} is {values[row, place]}, or too large for float32"
    raise BadInput(where, what, "give finite numbers")


def _from_columns(path: Path, begin: bytes, told: str | None) -> Vectors:
    source, layout, name = opened(path, begin, told, lists=True)
    columns = tuple(other for other in layout.names if other != name)
    if not columns:
        raise BadInput(source.where, "no column beside the ids", "give the vectors as well")
    table = read_table(source, layout, {name: "token", **dict.fromkeys(columns, "number")})
    matrix = np.column_stack([table.numbers[column] for column in columns])
    return Vectors(source.where, finite(source.where, matrix), unique_ids(table, name), columns)


def _from_tensors(path: Path, told: str | None) -> Vectors:
    try:
        file = Reader(path)
        matrices = [name for name in file.names if len(file.shape(name)) == 2]
        name = _chosen(path, file.names, matrices, told)
        chosen = file.get(name)
    except Corrupted as error:
        raise BadInput(path, "not a safetensors file, or a damaged one", "write it again") from error
    if not (chosen.is_floating_point() or chosen.dtype in WHOLE):
        raise BadInput(path, f"holds {chosen.dtype}, not numbers", "save it as float32")
    return Vectors(str(path), finite(str(path), chosen.float().numpy()), None, tensor=name)


def _from_arrays(path: Path, told: str | None) -> Vectors:
    """An npz, as implicit saves a model: factors of users and items, and numbers that say how it was made."""
    names = [name.removesuffix(".npy") for name in Archive(path).names if name.endswith(".npy")]
    name = _chosen(path, names, names, told)
    where = f"{path}/{name}"
    return Vectors(where, finite(where, open_member(path, name)), None, tensor=name)


def _chosen(path: Path, names: Sequence[str], matrices: Sequence[str], told: str | None) -> str:
    """The array that somebody named; else the only one there is, or the only one that is of users by name."""
    if told is not None and told not in names:
        raise BadInput("--tensor", f'{path.name} has no tensor "{told}"', nearest(told, names))
    of_users = [name for name in matrices if "user" in name.casefold()]
    for found in ([told] if told else [], matrices, of_users):
        if len(found) == 1:
            return found[0]
    listed = ", ".join(matrices[:SHOWN]) + ", …" * (len(matrices) > SHOWN) or "none"
    raise BadInput(path, f"{len(matrices)} matrices: {listed}", "choose one with --tensor NAME")


def _refuse_ids_among(vectors: Vectors) -> None:
    """A column that tells every user apart by a whole number is an id or a count of rows, not a feature."""
    values = vectors.values
    if len(values) < FEW:
        return
    suspects = [place for place in range(values.shape[1]) if _counts(values[:, place])]
    if suspects and len(suspects) < values.shape[1]:
        place = suspects[0]
        name = f'"{vectors.columns[place]}"' if vectors.columns else str(place + 1)
        what = f"column {name} has another whole number for every user, as ids and row numbers have"
        raise BadInput(vectors.where, what, "leave it out of the vectors, or name it with --id")


def _counts(values: NDArray[np.float32]) -> bool:
    """Whether a column holds only whole numbers, all different or too large to be told apart."""
    if (values[:FEW] != np.rint(values[:FEW])).any() or (values != np.rint(values)).any():
        return False
    return bool(np.abs(values).min() >= EXACT) or len(np.unique(values)) == len(values)
