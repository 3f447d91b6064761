"""Texts too large for memory: one row after another, from a folder or a tar.gz."""

from __future__ import annotations

import gzip
import itertools
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Any

from veilrec.datasets.reading.archives import Source
from veilrec.datasets.reading.unpacking import LIMIT, Counted, Metered
from veilrec.datasets.reading.zips import MEMBERS
from veilrec.errors import BadInput

__all__: list[str] = []

LONGEST = 1 << 20  # bytes of one line
DAMAGE = (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile)
AGAIN = "get the file as published"


def streamed(home: Path, name: str, width: int) -> Iterator[tuple[int, list[str]]]:
    """The line number and the fields of every row of the file `name`, which has tabs and no quotes.

    Raises:
        BadInput: Where it is not there, damaged or too long, or a line is no text or has not `width` fields.
    """
    where, total = f"{home}/{name}", 0
    with _opened(home, name) as file:
        for line, row in enumerate(iter(partial(file.readline, LONGEST), b""), 1):
            total += len(row)
            if total > LIMIT:
                raise BadInput(where, f"more than {LIMIT:,} bytes", AGAIN)
            if not row.strip():
                continue
            try:
                fields = row.decode().rstrip("\r\n").split("\t")
            except UnicodeDecodeError as error:
                what = f"byte 0x{row[error.start]:02x} is not UTF-8"
                raise BadInput(where, what, AGAIN, line=line) from error
            if len(fields) != width:
                what = f"{len(fields)} fields where the published file has {width}"
                raise BadInput(where, what, AGAIN, line=line)
            yield line, fields


def whole(home: Path, name: str) -> Source:
    """All bytes of the file `name`."""
    with _opened(home, name) as file:
        where = f"{home}/{name}"
        return Source(where, Metered(where, file).whole())


@contextmanager
def _opened(home: Path, name: str) -> Iterator[IO[bytes]]:
    """The bytes of a file, from its beginning."""
    try:
        if home.is_dir():
            with (home / name).open("rb") as file:
                yield file
        else:
            with Counted(home) as raw, gzip.GzipFile(fileobj=raw) as packed:
                stream: Any = Metered(home, packed, lambda: raw.count)
                with tarfile.open(fileobj=stream, mode="r|") as archive:  # from front to back, as it comes
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
