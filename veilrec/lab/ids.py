"""Ids that say whose row it is: read as text, exactly as written, and never twice."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilrec.datasets.reading.archives import Archive, kind_of, read
from veilrec.datasets.reading.assemble import sound_ids
from veilrec.datasets.reading.table import TextTable
from veilrec.datasets.reading.text import clean
from veilrec.errors import BadInput

__all__ = ["NPY", "begin_of", "open_array", "open_member", "read_ids", "unique_ids", "unique_names"]

NPY = b"\x93NUMPY"
DECIMAL = re.compile(r"[+-]?(\d+\.\d*|\.\d+|\d+(?=[eE]))([eE][+-]?\d+)?")


def read_ids(path: Path) -> list[str]:
    """Ids in the order of the vectors: one a line, or an npy array of whole numbers or text."""
    if begin_of(path).startswith(NPY):
        found = open_array(path)
        if found.ndim != 1 or found.dtype.kind not in "iuU":
            what = f"an array of {found.dtype} with shape {list(found.shape)}"
            raise BadInput(path, what, "give one whole number or text a user")
        ids = [str(name) for name in found.tolist()]
    else:
        ids = clean(read(path)).data.decode().rstrip("\n").split("\n")
    return unique_names(path, ids)


def unique_names(where: str | Path, ids: list[str]) -> list[str]:
    """The same ids, none of which is empty, stands there twice, or is a rounded number."""
    seen: dict[str, int] = {}
    for line, name in enumerate(ids, 1):
        if not name or name != name.strip():
            raise BadInput(where, f'"{name[:60]}": empty, or blanks around an id', "correct it", line=line)
        if name in seen:
            raise BadInput(where, f'"{name}" is in line {seen[name]} as well', "keep one a user", line=line)
        seen[name] = line
    _refuse_decimals(str(where), ids)
    return ids


def unique_ids(table: TextTable, name: str) -> list[str]:
    """``[rows]`` the ids in a column: none empty, none twice, none a rounded number."""
    codes, names = sound_ids(table, name)
    _refuse_decimals(table.source.where, names)
    _, first = np.unique(codes, return_index=True)
    again = np.ones(len(codes), dtype=np.bool_)
    again[first] = False
    table.refuse(again, name, 'id "{value}" is in an earlier row as well', "keep one row a user")
    return [names[code] for code in codes.tolist()]


def begin_of(path: Path, *, archives: bool = False) -> bytes:
    """The first bytes of a plain file; what cannot be opened or is never opened is refused.

    A zip is refused as well, unless `archives` says that there is somebody who reads one.
    """
    if not path.is_file():
        return read(path).data[:8]  # says what it is instead, or reads a member of a zip
    with path.open("rb") as file:
        data = file.read(8)
    if data.startswith(b"\x80") and path.suffix != ".safetensors":
        raise _never_opened(path)
    if kind_of(data) == "zip":
        names = Archive(path).names
        if any(name.endswith(".pkl") for name in names):
            raise _never_opened(path)
        if not archives:
            raise BadInput(path, "a zip (npz) where one table is expected", "give the table alone")
    return data


def _never_opened(path: Path) -> BadInput:
    """A pickle, as torch.save, joblib and most libraries' own `save` write."""
    fix = "save the array of users alone, with np.save or as safetensors"
    return BadInput(path, "a pickle, which is never opened: it can run code", fix)


def open_array(path: Path) -> NDArray[np.generic]:
    """An npy file, mapped; arrays of Python objects are never opened."""
    return _loaded(path, lambda: np.load(path, mmap_mode="r", allow_pickle=False))


def open_member(path: Path, name: str) -> NDArray[np.generic]:
    """One array of an npz file."""
    data = Archive(path).read(f"{name}.npy").data
    return _loaded(f"{path}/{name}", lambda: np.load(io.BytesIO(data), allow_pickle=False))


def _loaded(where: str | Path, load: Callable[[], Any]) -> NDArray[np.generic]:
    try:
        found: NDArray[np.generic] = load()
    except Exception as error:  # a damaged header fails in as many ways as Python has
        pickled = "pickle" in str(error) or "Python objects" in str(error)
        what = (
            "an array of Python objects, which is never opened"
            if pickled
            else f"cannot be read: {str(error)[:100]}"
        )
        raise BadInput(where, what, "save it as numbers with np.save") from error
    return found


def _refuse_decimals(where: str, ids: Sequence[str]) -> None:
    """Ids that went through a float (``1.0``, ``1e+06``) match nothing, or the wrong person."""
    if all(DECIMAL.fullmatch(name) for name in ids):
        what = f'ids look like decimal numbers ("{ids[0]}"): this is no id column, or it was rounded'
        raise BadInput(where, what, "name the column with --id, or write ids as text or whole numbers")
