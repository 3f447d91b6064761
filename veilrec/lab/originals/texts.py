"""Texts: originals in columns, CSV and its kin; the lines of users who do not change stay to the byte."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from veilrec.base.files import Sink
from veilrec.datasets.reading.archives import kind_of
from veilrec.errors import BadInput
from veilrec.lab.columns import opened
from veilrec.lab.ids import begin_of
from veilrec.lab.originals.original import Original
from veilrec.lab.vectors import Vectors

__all__ = ["Text"]

DIGITS = 9  # of a float32, which is read again as what it was
MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Text(Original):
    """A text in columns.

    Attributes:
        lines: The lines as they are in the file, their ends among them.
        rows: ``[rows]`` the line of each user.
        shown: The separator.
        single: The one that the csv module takes for it.
        quoted: Whether fields may stand in quotes.
        places: ``[width]`` the fields of a line that hold the vector.
        digits: How many digits numbers have in it: those that are written anew have as many.
    """

    lines: list[bytes] = field(repr=False)
    rows: list[int] = field(repr=False)
    shown: str
    single: str
    quoted: bool
    places: list[int]
    digits: int

    @classmethod
    def of(cls, path: Path, vectors: Vectors, ids: str | None) -> Text:
        """The text in a file.

        Raises:
            BadInput: Where it is packed, or a row goes over several lines.
        """
        try:
            whole = path.read_bytes()
        except OSError as error:
            raise BadInput(path, "cannot be written again where it lies", "unpack it first") from error
        if kind := kind_of(whole):
            raise BadInput(path, f"is packed ({kind}), and would be written unpacked", "unpack it first")
        _, layout, _ = opened(path, begin_of(path), ids, lists=True)
        if layout.header and len(vectors.columns) + 1 != len(layout.names):
            raise BadInput(path, "its columns cannot be told apart", "give it other names of columns")
        lines = whole.splitlines(keepends=True)
        rows = [number for number, line in enumerate(lines) if line.strip(b" \t\r\n" + MARK)]
        rows = rows[int(layout.header) :]
        if len(rows) != len(vectors.values):
            raise BadInput(path, "a row goes over several lines", "write each user in one line")
        places = [layout.names.index(name) for name in vectors.columns]
        table = torch.from_numpy(vectors.values)
        fields = ("", layout.shown, layout.separator, layout.quoted, places)
        found = cls(path, vectors, table, lines, rows, *fields[1:], DIGITS)
        digits = max(_digits(word) for row in rows for word in found.cells(lines[row]))
        return cls(path, vectors, table, lines, rows, *fields[1:], min(DIGITS, digits))

    def fields(self, line: bytes) -> list[str]:
        """The fields of a line."""
        text = line.removeprefix(MARK).decode().rstrip("\r\n")
        if len(self.shown) > 1:
            return text.split(self.shown)
        quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if self.quoted else csv.QUOTE_NONE
        return next(csv.reader([text], delimiter=self.shown, quoting=quoting))

    def cells(self, line: bytes) -> list[str]:
        """The fields of a line that hold the vector."""
        fields = self.fields(line)
        return [fields[place] for place in self.places]

    def put(self, sink: Sink, table: Tensor, changed: Tensor) -> None:
        """The lines as they were, and others for users who change."""
        lines = list(self.lines)
        for row in torch.nonzero(changed).squeeze(1).tolist():
            at = self.rows[row]
            lines[at] = self._line(lines[at], table[row].tolist())
        for line in lines:
            sink.write(line)

    def _line(self, line: bytes, vector: Sequence[float]) -> bytes:
        """A line with other numbers, and with its end."""
        fields = self.fields(line)
        for place, value in zip(self.places, vector, strict=True):
            fields[place] = f"{value:.{self.digits}g}"
        end = line[len(line.rstrip(b"\r\n")) :]
        mark = MARK if line.startswith(MARK) else b""
        return mark + self._joined(fields).encode() + end

    def _joined(self, fields: Sequence[str]) -> str:
        if len(self.shown) > 1 or not self.quoted:
            return self.shown.join(fields)
        text = io.StringIO()
        csv.writer(text, delimiter=self.shown, lineterminator="").writerow(fields)
        return text.getvalue()


def _digits(word: str) -> int:
    """How many digits a number is written with, zeros before the first one not counted.

    >>> [_digits(word) for word in ("-0.0120", "12.5e-7", "0")]
    [3, 3, 1]
    """
    mantissa = word.casefold().partition("e")[0]
    kept = "".join(letter for letter in mantissa if letter.isdigit()).lstrip("0")
    return max(1, len(kept))
