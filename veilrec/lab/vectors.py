"""Anyone's user vectors: npy, CSV and its kin, Parquet or safetensors, with the ids that came with them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from veilrec.base.tensors import Reader
from veilrec.datasets.reading.archives import read
from veilrec.datasets.reading.parquet import MAGIC, Parquet
from veilrec.datasets.reading.text import clean
from veilrec.errors import BadInput, Corrupted, nearest
from veilrec.lab.ids import NONE, NPY, begin_of, id_column, open_array, unique_ids
from veilrec.lab.numbers import read_numbers, understand_numbers

__all__ = ["Vectors", "read_vectors"]

WHOLE = {torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64}
LARGEST = 1 << 31  # values of one file: 8 GB as float32
BLOCK = 1 << 16  # rows looked at together
EXACT = 1 << 24  # whole numbers beyond this are not told apart in float32
FEW = 20  # rows too few to say what a column is


@dataclass(frozen=True)
class Vectors:
    """One vector a user.

    Attributes:
        where: The file.
        values: ``[rows, width]`` float32, all finite.
        ids: ``[rows]`` the users' ids as written there, or None where the file has none.
        columns: ``[width]`` names, where the file has any.
    """

    where: str
    values: NDArray[np.float32]
    ids: list[str] | None
    columns: tuple[str, ...] = ()


def read_vectors(path: Path, *, ids: str | None = None, tensor: str | None = None) -> Vectors:
    """The vectors in a file, whose kind is known by its first bytes.

    Args:
        path: The file.
        ids: The column of ids; ``-`` for none; None for the one whose name says so, else the first.
        tensor: Which tensor of a safetensors file; None where it holds only one matrix.

    Raises:
        BadInput: For a file that is none of these, or a value that is not a finite number.
    """
    begin = begin_of(path)
    safe = path.suffix == ".safetensors"
    if tensor is not None and not safe:
        raise BadInput("--tensor", f"{path.name} has no tensors to choose from", "leave it out")
    if ids is not None and (safe or begin.startswith(NPY)):
        raise BadInput(path, "has no column of ids", "leave the option out; give the ids with --ids FILE")
    if begin.startswith(NPY):
        found = Vectors(str(path), _finite(str(path), open_array(path)), None)
    elif safe:
        found = _from_tensors(path, tensor)
    else:
        found = _from_parquet(path, ids) if begin.startswith(MAGIC) else _from_text(path, ids)
    _refuse_ids_among(found)
    return found


def _finite(where: str, found: NDArray[np.generic]) -> NDArray[np.float32]:
    """A matrix in float32, block by block."""
    if found.dtype.kind not in "fiu":
        raise BadInput(where, f"holds {found.dtype}, not numbers", "save it as float32")
    if found.ndim != 2 or 0 in found.shape:
        raise BadInput(where, f"has shape {list(found.shape)}", "give one row a user: [users, width]")
    refuse_large(where, *found.shape)
    values = np.empty(found.shape, dtype=np.float32)
    for start in range(0, len(found), BLOCK):
        with np.errstate(over="ignore"):
            values[start : start + BLOCK] = found[start : start + BLOCK]
        refuse_wild(where, values[start : start + BLOCK], start)
    return values


def refuse_large(where: str, rows: int, width: int) -> None:
    """More values than a common machine holds."""
    if rows * width > LARGEST:
        what = f"{rows:,} × {width:,} values, more than {LARGEST:,}"
        raise BadInput(where, what, "audit a sample of the users")


def refuse_wild(where: str, values: NDArray[np.float32], start: int = 0) -> None:
    """Refuse a value that is not finite, with its row and column from 1."""
    if not (wild := ~np.isfinite(values)).any():
        return
    row, place = np.argwhere(wild)[0].tolist()
    what = f"row {start + row + 1}, column {place + 1} is {values[row, place]}, or too large for float32"
    raise BadInput(where, what, "give finite numbers")


def _from_text(path: Path, told: str | None) -> Vectors:
    source, layout = understand_numbers(clean(read(path)), told)
    name = None if told == NONE else id_column(source.where, layout, told)
    columns = tuple(other for other in layout.names if other != name)
    values, table = read_numbers(source, layout, columns, name or layout.names[0])
    return Vectors(source.where, values, unique_ids(table, name) if name else None, columns)


def _from_parquet(path: Path, told: str | None) -> Vectors:
    file, where = Parquet(path), str(path)
    name = None if told == NONE else id_column(where, file.layout, told)
    if name and file.kind(name) in ("fraction", "list"):
        what = f'column "{name}" holds numbers with a point or lists, not ids'
        raise BadInput(path, what, f"name the column with --id; {NONE} for none")
    ids = unique_ids(file.table([name]), name) if name else None
    columns = [other for other in file.names if other != name]
    for other in columns:
        if file.kind(other) == "word":
            raise BadInput(path, f'column "{other}" is not numeric', "leave it out of the file")
    lists = [other for other in columns if file.kind(other) == "list"]
    if lists and len(columns) > 1:
        raise BadInput(path, f'beside the lists in "{lists[0]}" there are other columns', "leave them out")
    if not columns:
        raise BadInput(path, "no column beside the ids", "give the vectors as well")
    if lists:
        blocks = [_finite(where, block) for block in file.lists(lists[0])]
        return Vectors(where, np.concatenate(blocks), ids)
    refuse_large(where, file.length, len(columns))
    values = np.empty((file.length, len(columns)), dtype=np.float32)
    for place, other in enumerate(columns):
        with np.errstate(over="ignore"):
            values[:, place] = file.numbers(other)
    refuse_wild(where, values)
    return Vectors(where, values, ids, tuple(columns))


def _from_tensors(path: Path, told: str | None) -> Vectors:
    try:
        file = Reader(path)
        shapes = _shapes(path)
        matrices = [name for name in file.names if len(shapes[name]) == 2]
        if told is not None and told not in file.names:
            raise BadInput("--tensor", f'{path.name} has no tensor "{told}"', nearest(told, file.names))
        if told is None and len(matrices) != 1:
            listed = ", ".join(matrices) or "none"
            raise BadInput(path, f"{len(matrices)} matrices: {listed}", "choose one with --tensor NAME")
        chosen = file.get(told or matrices[0])
        ids = file.get("ids") if "ids" in file.names and (told or matrices[0]) != "ids" else None
    except Corrupted as error:
        raise BadInput(path, "not a safetensors file, or a damaged one", "write it again") from error
    if not (chosen.is_floating_point() or chosen.dtype in WHOLE):
        raise BadInput(path, f"holds {chosen.dtype}, not numbers", "save it as float32")
    values = _finite(str(path), chosen.float().numpy())
    return Vectors(str(path), values, None if ids is None else _id_tensor(path, ids, len(values)))


def _shapes(path: Path) -> dict[str, list[int]]:
    """The shapes in the header of a safetensors file that was opened before."""
    with path.open("rb") as file:
        head = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return {name: entry["shape"] for name, entry in head.items() if name != "__metadata__"}


def _id_tensor(path: Path, ids: torch.Tensor, rows: int) -> list[str]:
    if ids.dim() != 1 or len(ids) != rows or ids.dtype not in WHOLE:
        what = f'tensor "ids" is {ids.dtype} with shape {list(ids.shape)}, for {rows:,} vectors'
        raise BadInput(path, what, "give one whole number a user")
    names = [str(value) for value in ids.tolist()]
    if len(set(names)) < len(names):
        twice = next(name for place, name in enumerate(names) if name in names[:place])
        raise BadInput(path, f'id "{twice}" is in tensor "ids" twice', "keep one row a user")
    return names


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
