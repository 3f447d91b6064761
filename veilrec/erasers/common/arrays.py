"""Arrays: an eraser on vectors from anywhere, numpy in and numpy out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from veilrec.base.draws import Draws
from veilrec.eraser import AttributeEraser, Eraser, Request, VectorEraser
from veilrec.errors import BadInput

__all__ = ["forget"]

Labels = Mapping[str, NDArray[np.generic] | Sequence[object]]


def forget(
    eraser: Eraser,
    vectors: NDArray[np.floating],
    labels: Labels,
    *,
    asks: NDArray[np.bool_] | None = None,
    lends: NDArray[np.bool_] | None = None,
    draws: Draws | None = None,
) -> NDArray[np.floating]:
    """Vectors from anywhere after an eraser, as a new array of the same type.

    The level of a column is all that tells two groups apart, and goes:

    >>> from veilrec.erasers.leace import LEACE
    >>> vectors = np.array([[1.0, 0.5], [1.2, -0.5], [3.0, 0.4], [3.2, -0.4]])
    >>> after = forget(LEACE(), vectors, {"gender": ["f", "f", "m", "m"]})
    >>> bool(np.allclose(after[:2].mean(0), after[2:].mean(0)))
    True

    Args:
        eraser: The method.
        vectors: ``[users, width]``, one row a user.
        labels: By attribute, one label a user: whole numbers with -1 for unknown, or names with "" or None.
        asks, lends: As in `Request`.
        draws: As in `AttributeEraser.forget`.
    """
    table = torch.from_numpy(np.ascontiguousarray(vectors))
    marks = [None if who is None else torch.from_numpy(np.asarray(who, dtype=bool)) for who in (asks, lends)]
    columns = {name: torch.from_numpy(_codes(name, label)) for name, label in labels.items()}
    request, own = Request(columns, asks=marks[0], lends=marks[1]), draws or Draws()
    if isinstance(eraser, AttributeEraser):
        return eraser.forget(table, request, own).numpy()
    if not isinstance(eraser, VectorEraser) or len(eraser.changes) != 1:
        raise BadInput("eraser", "changes more than vectors of users", "name one part of a model")
    (part,) = eraser.changes
    moved = eraser.erase(part, table, own.as_keys("noise").fold(request.own_tags))
    return torch.where(request.moves[:, None], moved, table).numpy()


def _codes(name: str, label: NDArray[np.generic] | Sequence[object]) -> NDArray[np.int64]:
    """Labels as numbers of classes, in the order of their names; -1 for unknown."""
    column = np.asarray(label)
    if column.dtype.kind in "iub":
        return column.astype(np.int64)
    if column.dtype.kind not in "OU":
        raise BadInput(f"labels {name}", f"hold {column.dtype}", "give whole numbers or names")
    text = np.array(["" if one is None or one != one else str(one) for one in column.tolist()])
    names, codes = np.unique(text, return_inverse=True)
    return codes.astype(np.int64) - int(bool(len(names)) and names[0] == "")
