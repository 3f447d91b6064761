"""Checks of a zip: every name and size in it is looked at before anything is unpacked."""

from __future__ import annotations

import stat
import struct
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PureWindowsPath

from veilrec.datasets.reading.unpacking import FREE, LIMIT, RATIO, Counted
from veilrec.errors import BadInput, visible

__all__: list[str] = []

MEMBERS = 10_000
END, END_SIZE, COMMENT = b"PK\x05\x06", 22, 1 << 16
ARCHIVES = (".zip", ".gz", ".tgz", ".bz2", ".xz", ".zst", ".7z", ".rar", ".tar")


@contextmanager
def opened(path: Path) -> Iterator[zipfile.ZipFile]:
    """The zip at `path`, or BadInput where it is damaged or anything in it is suspicious."""
    try:
        if (count := _declared_members(path)) > MEMBERS:
            raise BadInput(
                path, f"the archive declares {count:,} members or more", f"at most {MEMBERS:,} are read"
            )
        file = Counted(path)
        archive = _listed(file)
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, struct.error) as error:
        raise BadInput(path, f"not a zip, or a damaged one: {error}", "get the archive again") from error
    with file, archive:
        _check(path, archive.infolist())
        yield archive


def _listed(file: Counted) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(file)
    except BaseException:
        file.close()
        raise


def _check(path: Path, members: list[zipfile.ZipInfo]) -> None:
    seen: dict[str, str] = {}
    for member in members:
        where = f"{path}/{visible(member.orig_filename, 200)}"
        if what := _fault(member):
            raise BadInput(where, what, "get the archive as published")
        if other := seen.get(member.filename.casefold()):
            raise BadInput(where, f"the archive holds {other} as well", "remove one of the two")
        seen[member.filename.casefold()] = member.filename
    if (total := sum(member.file_size for member in members)) > LIMIT:
        raise BadInput(
            path, f"unpacks to {total:,} bytes, more than {LIMIT:,}", "unpack what you need by hand"
        )


def _fault(member: zipfile.ZipInfo) -> str:
    """The fault of one entry, or an empty text."""
    name = member.orig_filename
    if name.startswith("/") or ".." in name.replace("\\", "/").split("/") or PureWindowsPath(name).drive:
        return "the member's path leads out of the archive"
    if not name or "\\" in name or not name.isprintable():
        return "the member's name has characters that no file name should have"
    kind = stat.S_IFMT(member.external_attr >> 16)
    if kind not in {0, stat.S_IFREG, stat.S_IFDIR}:
        return "the member is a link or a device, not a file"
    if member.flag_bits & 1:
        return "the member is encrypted"
    if name.lower().endswith(ARCHIVES):
        return "the member is an archive inside an archive"
    if member.file_size > max(FREE, RATIO * member.compress_size):
        return f"the member unpacks from {member.compress_size:,} to {member.file_size:,} bytes"
    return ""


def _declared_members(path: Path) -> int:
    """The number of members that the end record declares: read first, since listing a million takes long."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - END_SIZE - COMMENT))
        tail = file.read()
    place = tail.rfind(END)
    if place < 0:
        raise zipfile.BadZipFile("no end record")
    count: int = struct.unpack_from("<H", tail, place + 10)[0]
    return count
