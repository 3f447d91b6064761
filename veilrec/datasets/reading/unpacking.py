"""Unpacking: files and members of archives as streams that are given up where they hold too much.

What is packed a hundredfold is no text that anybody wrote: of that, a little passes and no more, so that a
bomb is refused after some megabytes, however large it says it is. Of all else as much is read as fits into
memory with the copies that reading makes.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from veilrec.base.limits.machine import room
from veilrec.errors import BadInput

__all__: list[str] = []

BLOCK = 1 << 20
LIMIT = 4 << 30  # bytes of a file, or of all members of an archive, unpacked
RATIO, FREE = 100, 32 << 20  # text packs to about a twentieth: beyond both of these it is a bomb
COPIES = 4  # of a text, at most, while it is made clean and cut into columns


class Readable(Protocol):
    """Whatever can be read."""

    def read(self, size: int = ..., /) -> bytes:
        """Read some bytes."""


class Counted(io.FileIO):
    """A file that counts the bytes that were read of it.

    Attributes:
        count: How many.
    """

    count = 0

    def read(self, size: int | None = -1, /) -> bytes:
        """Read, and count."""
        data = super().read(size) or b""
        self.count += len(data)
        return data


class Metered:
    """A stream that is given up where it grows beyond all likelihood.

    Attributes:
        where: The name that an error gives it.
        stream: Where it comes from.
        packed: Says how many packed bytes have been read; None where nothing is packed.
        most: How many bytes may come.
        total: The bytes that came so far, and `wild`, how many of them were packed more than `RATIO`-fold.
    """

    def __init__(
        self,
        where: str | Path,
        stream: Readable,
        packed: Callable[[], int] | None = None,
        most: int = LIMIT,
    ) -> None:
        self.where, self.stream, self.packed, self.most = where, stream, packed, most
        self.total, self.wild = 0, 0

    def read(self, size: int = BLOCK) -> bytes:
        """Some bytes.

        Raises:
            BadInput: Where they are too many by now.
        """
        before = self.packed() if self.packed else 0
        data = self.stream.read(size)
        self.total += len(data)
        if self.packed:
            self.wild += max(0, len(data) - RATIO * (self.packed() - before))
        if self.wild > FREE:
            what = (
                f"unpacks to more than {FREE:,} bytes that were packed more than {RATIO}-fold, as no text is"
            )
            raise BadInput(self.where, what, "unpack it by hand if you trust it")
        if self.total > self.most:
            raise too_large(self.where, f"more than {self.most:,}")
        return data

    def whole(self) -> bytes:
        """All bytes that are left, of as many as fit into memory."""
        self.most, found = min(self.most, most()), io.BytesIO()
        while data := self.read(BLOCK):
            found.write(data)
        return found.getvalue()


def most() -> int:
    """The bytes of a text that can be read on this machine."""
    return min(LIMIT, room().bytes // COPIES)


def too_large(where: str | Path, size: str) -> BadInput:
    """An error for a file with so many bytes, in words."""
    free = room()
    if free.bytes // COPIES < LIMIT:
        what = (
            f"has {size} bytes, which reading takes up to {COPIES} times, and {free.limit} is {free.bytes:,}"
        )
        return BadInput(where, what, "cut it in parts, or read it where there is more memory")
    return BadInput(where, f"has {size} bytes, and at most {LIMIT:,} are read", "cut it in parts")
