"""A journal: a file of JSON lines that only grows, and can be cut back to where a checkpoint saw it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from veilrec.base.files import Digest, digest, reading, sync_file, writing
from veilrec.base.limits.schema import anything, table, whole
from veilrec.base.plain import opened
from veilrec.errors import Corrupted

__all__ = ["EMPTY", "Journal"]

ROW = table({"round": whole(1)}, rest=anything)
EMPTY = Digest(hashlib.sha256().hexdigest(), 0)


class Journal:
    """One line per round."""

    def __init__(self, path: Path) -> None:
        self.path, self._hash, self._bytes = path, hashlib.sha256(), 0

    def check(self) -> None:
        """Refuse a place where something else than a file of this journal alone lies."""
        if os.path.lexists(self.path):
            with writing(self.path), self._file():
                pass

    def append(self, row: Mapping[str, Any]) -> None:
        """Add a line."""
        line = (json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n").encode()
        with writing(self.path), self._file() as file:
            file.write(line)
        self._hash.update(line)
        self._bytes += len(line)

    def mark(self) -> Digest:
        """The size and checksum of the file now; all of it is on the disk when this returns."""
        if self._bytes:
            sync_file(self.path)
        return Digest(self._hash.hexdigest(), self._bytes)

    def matches(self, mark: Digest) -> bool:
        """Whether the file begins with what it held at a mark."""
        return mark == EMPTY if not self.path.exists() else digest(self.path, mark.bytes) == mark

    def rewind(self, mark: Digest) -> list[dict[str, Any]]:
        """Cut the file back to a mark that it matches; returns the rows that are left."""
        with writing(self.path), self._file() as file:
            file.truncate(mark.bytes)
        text = self._text()
        self._hash, self._bytes = hashlib.sha256(text), len(text)
        return self.rows()

    def rows(self) -> list[dict[str, Any]]:
        """All lines.

        Raises:
            Corrupted: Where one is not what `append` wrote.
        """
        try:
            found = [json.loads(line) for line in self._text().splitlines()]
            for number, row in enumerate(found, 1):
                ROW(row, f"line {number}")
        except (OSError, ValueError, RecursionError) as cause:
            raise Corrupted(f"{self.path}: cannot be read ({cause}); restore the file") from cause
        return found

    def _text(self) -> bytes:
        with reading(self.path) as file:
            return file.read()

    def _file(self) -> IO[bytes]:
        """The file, to be written on at its end: no link, nor a file with a second name."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        return os.fdopen(opened(self.path, flags, alone=True), "ab")
