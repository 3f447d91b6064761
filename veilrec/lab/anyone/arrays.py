"""Live arrays: vectors and attributes as numpy, torch, pandas or plain lists hold them."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from veilrec.datasets.reading.archives import Source
from veilrec.datasets.reading.columns import ALIASES
from veilrec.datasets.reading.layout import Layout, plain
from veilrec.datasets.reading.table import read_table
from veilrec.errors import BadInput
from veilrec.lab.attributes import Described, described
from veilrec.lab.ids import unique_names
from veilrec.lab.vectors import Vectors, finite

__all__ = ["described_of", "ids_of", "vectors_of"]

NAMES = {*ALIASES["user"], "id"}  # of a frame's column that holds ids
ID = "id"


def vectors_of(given: Any, ids: Iterable[Any] | None = None, where: str = "vectors") -> Vectors:
    """One row a user: a matrix of numpy or torch, a list of rows, or a frame, whose index may be the ids.

    >>> vectors_of([[1, 2], [3, 4]], ids=["ann", "bob"]).ids
    ['ann', 'bob']

    Args:
        given: The matrix.
        ids: Whose row is whose, where a frame does not say so itself.
        where: What errors call it.
    """
    names: tuple[str, ...] = ()
    own: list[str] | None = None
    if _is_frame(given):
        columns, own = _columns(given)
        names, given = tuple(columns), [list(row) for row in zip(*columns.values(), strict=True)]
    found = given.detach().cpu() if isinstance(given, torch.Tensor) else _array(where, given)
    if isinstance(found, torch.Tensor):  # numpy has no bfloat16
        found = (found.float() if found.is_floating_point() else found).numpy()
    values = finite(where, found)
    told = own if ids is None else ids_of(ids)
    if told is not None and len(told) != len(values):
        raise BadInput("ids", f"{len(told):,} ids for {len(values):,} vectors", "give one id a vector")
    return Vectors(where, values, told if told is None else unique_names("ids", told), names)


def _array(where: str, given: Any) -> Any:
    try:
        return np.asarray(given)
    except (TypeError, ValueError) as error:
        raise BadInput(where, "rows of different lengths, or no numbers", "give [users, width]") from error


def described_of(
    given: Any,
    *,
    attributes: Sequence[str] = (),
    continuous: Sequence[str] = (),
    borders: Mapping[str, Sequence[float]] | None = None,
    where: str = "attributes",
) -> tuple[Described, bool]:
    """What is known about users: a frame, or one sequence an attribute; and whether their ids are told.

    >>> described_of({"sex": ["f", "m", None]})[0].labels["sex"].classes
    ('f', 'm')

    Args:
        given: A frame, whose index or whose column of ids says who it is; or columns by name.
        attributes, continuous, borders: As `read_attributes` has them.
        where: What errors call it.
    """
    columns, ids = _columns(given) if _is_frame(given) else (_by_name(where, given), None)
    lengths = {name: len(column) for name, column in columns.items()}
    if len({*lengths.values()}) != 1 or 0 in lengths.values():
        raise BadInput(where, f"columns of lengths {lengths}"[:200], "give one value a user in each")
    told = ids is not None
    names = ids if ids is not None else [str(row) for row in range(next(iter(lengths.values())))]
    first = next(name for name in (ID, "user id", " id") if name not in columns)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL)
    writer.writerows(zip(names, *map(_words, columns.values()), strict=True))
    layout = Layout(",", ",", (first, *columns), False, True)
    source = Source(where, text.getvalue().encode())
    table = read_table(source, layout, dict.fromkeys(layout.names, "token"))
    return described(table, first, attributes=attributes, continuous=continuous, borders=borders), told


def ids_of(given: Iterable[Any]) -> list[str]:
    """Ids as text; a number that pandas has made a float is the whole number that it was."""
    return _words(_plain(given))


def _by_name(where: str, given: Any) -> dict[str, list[Any]]:
    if not isinstance(given, Mapping) or not given:
        fix = 'give a DataFrame, or columns by name: {"gender": [...]}'
        raise BadInput(where, f"{type(given).__name__} says nothing about whose it is", fix)
    return {str(name): _plain(column) for name, column in given.items()}


def _is_frame(given: Any) -> bool:
    """Whether it is a frame of pandas, or of another library that has columns by name."""
    return hasattr(given, "columns") and not isinstance(given, Mapping | np.ndarray | torch.Tensor)


def _columns(frame: Any) -> tuple[dict[str, list[Any]], list[str] | None]:
    """The columns of a frame, and ids, where its index or a column has them."""
    columns = {str(name): _plain(frame[name]) for name in frame.columns}
    index = getattr(frame, "index", None)
    counts = index is None or (index.name is None and _plain(index) == list(range(len(index))))
    if not counts:
        return columns, _words(_plain(index))
    named = next((name for name in columns if plain(name) in NAMES), None)
    return columns, _words(columns.pop(named)) if named is not None else None


def _plain(column: Any) -> list[Any]:
    """The values of a column as Python has them."""
    if isinstance(column, torch.Tensor):
        column = column.detach().cpu()
    for way in ("tolist", "to_list"):
        if hasattr(column, way):
            return list(getattr(column, way)())
    return list(column)


def _words(column: Sequence[Any]) -> list[str]:
    """Values as text; nothing for what is missing, and no point behind numbers that are all whole."""
    missing = [_is_missing(value) for value in column]
    there = [value for value, gone in zip(column, missing, strict=True) if not gone]
    whole = bool(there) and all(isinstance(value, float) and value.is_integer() for value in there)
    return [
        "" if gone else str(int(value) if whole else value)
        for value, gone in zip(column, missing, strict=True)
    ]


def _is_missing(value: Any) -> bool:
    """None, NaN, and whatever pandas has for them: only they differ from themselves, or will not say."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return True
    return type(value).__name__ in ("NAType", "NaTType")
