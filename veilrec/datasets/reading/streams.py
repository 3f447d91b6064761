"""Texts too large for memory: whole lines, some megabytes at a time, from a folder or a tar.gz."""

from __future__ import annotations

import gzip
import itertools
import re
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple

from veilrec.datasets.reading.archives import Source
from veilrec.datasets.reading.text import LONGEST
from veilrec.datasets.reading.zips import LIMIT, MEMBERS
from veilrec.errors import BadInput

__all__: list[str] = []

PIECE = 8 << 20  # bytes at a time
DAMAGE = (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile)


class Piece(NamedTuple):
    """Some whole lines of a text, and how many lines there are before them."""

    source: Source
    before: int

    def placed(self, error: BadInput) -> BadInput:
        """An error about a line of the piece, with the number that the line has in the whole text."""
        found = re.match(rf"{re.escape(self.source.where)}:(\d+): (.*)", str(error), re.DOTALL)
        if found is None:
            return error
        return BadInput(self.source.where, found[2], line=int(found[1]) + self.before)


def pieces(home: Path, name: str) -> Iterator[Piece]:
    """The file `name` of a folder or of a tar.gz, piece by piece; nothing is unpacked to disk.

    Raises:
        BadInput: Where it is not there, damaged, too long, or has a line that no text has.
    """
    where, rest, before, total = f"{home}/{name}", b"", 0, 0
    with _opened(home, name) as file:
        while block := file.read(PIECE):
            total += len(block)
            if total > LIMIT:
                raise BadInput(where, f"more than {LIMIT:,} bytes", "get the file as published")
            whole, end, tail = (rest + block).rpartition(b"\n")
            if len(tail) > LONGEST:
                line = before + whole.count(b"\n") + len(end) + 1
                what = f"a line of more than {LONGEST:,} bytes"
                raise BadInput(where, what, "check its line ends", line=line)
            if end:
                yield Piece(Source(where, whole + end), before)
                before += whole.count(b"\n") + 1
            rest = tail
    if rest:
        yield Piece(Source(where, rest), before)


@contextmanager
def _opened(home: Path, name: str) -> Iterator[IO[bytes]]:
    """The bytes of a file, from its beginning."""
    try:
        if home.is_dir():
            with (home / name).open("rb") as file:
                yield file
        else:
            with tarfile.open(home, "r:gz") as archive:
                yield _member(home, archive, name)
    except DAMAGE as error:
        raise BadInput(home, f"no tar.gz, or a damaged one: {error}", "get the archive again") from error
    except OSError as error:
        what = (error.strerror or str(error)).lower()
        raise BadInput(f"{home}/{name}", what, "check the path and its permissions") from error


def _member(home: Path, archive: tarfile.TarFile, name: str) -> IO[bytes]:
    """A plain file in an archive, in whatever folder; no member before it may be larger than all can be."""
    total = 0
    for member in itertools.islice(archive, MEMBERS):
        total += member.size
        if total > LIMIT:
            raise BadInput(home, f"unpacks to more than {LIMIT:,} bytes", "get the archive as published")
        if PurePosixPath(member.name).name == name and member.isreg() and not member.issparse():
            file = archive.extractfile(member)
            if file is not None:
                return file
    raise BadInput(home, f"the archive has no file called {name}", "get the archive as published")
