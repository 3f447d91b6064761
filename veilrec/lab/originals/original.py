"""An original: a file of vectors as it came, whose rows can be written anew in the same form."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from veilrec.base.files import Digest, Sink, atomic
from veilrec.base.plain import check_way
from veilrec.errors import BadInput
from veilrec.lab.vectors import Vectors

__all__ = ["Original", "checked_type", "new_place"]

SHARED = 0o077  # who else than its owner may do anything with a file


@dataclass(frozen=True)
class Original(ABC):
    """Vectors in the order, the type and the form of their file.

    Attributes:
        path: The file.
        vectors: What was read of it: one row a user.
        table: ``[rows, width]`` the same numbers in the type that the file has.
    """

    path: Path
    vectors: Vectors
    table: Tensor

    @abstractmethod
    def put(self, sink: Sink, table: Tensor, changed: Tensor) -> None:
        """Write the file, its rows that ``changed [rows]`` taken from a table and all others as they were."""

    def write(self, place: Path, table: Tensor) -> Digest:
        """A new file of the same kind, readable by nobody who could not read the old one.

        Raises:
            BadInput: Where it cannot be written.
        """
        if table.shape != self.table.shape or not bool(table.isfinite().all()):
            fix = "erase in float32, or by another method"
            raise BadInput(self.path, "what was erased does not fit its type", fix)
        changed = (table != self.table).any(1)
        secret = not self.path.stat().st_mode & SHARED
        with atomic(place, secret=secret) as sink:
            self.put(sink, table, changed)
        return sink.digest()


def new_place(original: Path, place: Path) -> Path:
    """The place for a new file beside an original, where nothing may lie yet.

    Raises:
        BadInput: Where something does, or where its name says that it is of another kind.
    """
    if place.exists() or place.is_symlink():
        raise BadInput(place, "is there already", "name a new file with -o; nothing is overwritten")
    if place.suffix.casefold() != original.suffix.casefold():
        what = f"would be of the kind of {original.name}"
        raise BadInput(place, what, f'give it a name that ends in "{original.suffix}"')
    if not place.parent.is_dir():
        raise BadInput(place.parent, "no such folder", "make it first")
    check_way(place)
    return place


def checked_type(path: Path, table: Tensor) -> Tensor:
    """The same table, whose type can hold what an eraser makes of it."""
    if not table.is_floating_point():
        what = f"holds whole numbers ({str(table.dtype).removeprefix('torch.')}), which an eraser would round"
        raise BadInput(path, what, "save it as float32")
    return table
