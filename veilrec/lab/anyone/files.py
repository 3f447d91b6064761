"""Files: one of vectors and one about their users, each as somebody said it is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from veilrec.datasets.reading.layout import FileFormat
from veilrec.errors import BadInput
from veilrec.lab.attributes import Described, read_attributes
from veilrec.lab.ids import read_ids
from veilrec.lab.match_ids import Audience, join, with_ids
from veilrec.lab.vectors import Vectors, read_vectors

__all__ = ["VectorFiles"]

BARE = (".npy", ".npz", ".safetensors")  # files without named columns


@dataclass(frozen=True)
class VectorFiles:
    """What somebody said about two files; what is None or empty is guessed.

    Attributes:
        attributes: The columns to take; by default every one that could be an attribute.
        continuous: Columns whose numbers are amounts.
        borders: Where to cut numbers into groups, by column.
        id: The column of ids, in both files.
        vectors_id: The same of the vectors, where theirs is another.
        ids: A file with the ids of the vectors.
        by_position: Whether row n is the same user in both files.
        tensor: Which array of a file with several.
        written: How the file about the users is written.
        most: Users at most; 0 for all.
        control: A file of vectors of people on whom nothing was trained.
        control_attributes: A file about them; by default the one about the others.
    """

    attributes: Sequence[str] = ()
    continuous: Sequence[str] = ()
    borders: Mapping[str, Sequence[float]] = field(default_factory=dict)
    id: str | None = None
    vectors_id: str | None = None
    ids: Path | None = None
    by_position: bool = False
    tensor: str | None = None
    written: FileFormat = field(default_factory=FileFormat)
    most: int = 0
    control: Path | None = None
    control_attributes: Path | None = None

    @property
    def options(self) -> list[str]:
        """How somebody would type this again: an option a text, and files by name, without their folders."""
        written, name = self.written, self.ids.name if self.ids else None
        header = {True: "--header", False: "--no-header", None: ""}[written.header]
        named = {
            "id": self.id,
            "vectors-id": self.vectors_id,
            "ids": name,
            "tensor": self.tensor,
            "sep": written.separator,
            "columns": ",".join(written.names) or None,
            "encoding": written.encoding,
            "escape": written.escape,
        }
        told = [f"--{key}={value}" for key, value in named.items() if value is not None]
        several = {"attribute": self.attributes, "continuous": self.continuous}
        told += [f"--{key}={value}" for key, values in several.items() for value in values]
        told += [
            f"--borders={key}={','.join(f'{cut:g}' for cut in cuts)}" for key, cuts in self.borders.items()
        ]
        return [*told, *(["--by-position"] if self.by_position else []), *([header] if header else [])]

    def described(self, path: Path) -> Described:
        """The file about the users."""
        return read_attributes(
            path,
            ids=self.id,
            attributes=self.attributes,
            continuous=self.continuous,
            borders=self.borders,
            written=self.written,
        )

    def vectors(self, path: Path) -> Vectors:
        """The file of vectors, with ids where it or a file of its own has any."""
        bare = read_vectors(path, ids=self.column(path), tensor=self.tensor)
        return bare if self.ids is None else with_ids(bare, read_ids(self.ids), self.ids)

    def column(self, vectors: Path) -> str | None:
        """The column of ids in the file of vectors, as far as somebody named it."""
        return self.vectors_id or (None if vectors.suffix in BARE else self.id)

    def read(self, vectors: Path, attributes: Path) -> Audience:
        """Both files, joined.

        Raises:
            BadInput: With the file and the line, where something is wrong.
        """
        described = self.described(attributes)
        return join(self.vectors(vectors), described, by_position=self.by_position, most=self.most)

    def read_control(self, attributes: Path) -> Audience | None:
        """The control, if there is one, joined with what is known of its people."""
        if self.control is None:
            if self.control_attributes is not None:
                raise BadInput(
                    "--control-attributes", "there is no control", "name its vectors with --control"
                )
            return None
        if self.by_position and self.control_attributes is None:
            fix = "give the file about its people with --control-attributes"
            raise BadInput("--by-position", "row n of the control cannot be user n as well", fix)
        bare = replace(self, ids=None).vectors(self.control)
        described = self.described(self.control_attributes or attributes)
        return join(bare, described, by_position=self.by_position, most=self.most)
