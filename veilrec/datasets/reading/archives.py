"""Files as they arrive: plain, gzipped, in a folder or in a zip; read into memory, never unpacked to disk."""

from __future__ import annotations

import gzip
import io
import os
import stat
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

from veilrec.datasets.reading.unpacking import Counted, Metered, most, too_large
from veilrec.datasets.reading.zips import opened
from veilrec.errors import BadInput

__all__: list[str] = []

HEAD = 512  # bytes by which a kind is known
KINDS = {
    b"\x1f\x8b": "gzip",
    b"PK\x03\x04": "zip",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"7z\xbc\xaf": "7z",
    b"Rar!": "rar",
}
UNPACKING = (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, NotImplementedError)


@dataclass(frozen=True)
class Source:
    """The bytes of one file, and the name that errors give it."""

    where: str
    data: bytes


def read(path: Path) -> Source:
    """A plain or gzipped file (known by its first bytes), or a member of a zip: ``log.zip/log.csv``."""
    archive = next((parent for parent in path.parents if os.path.isfile(parent)), None)
    if archive is not None:
        return Archive(archive).read(path.relative_to(archive).as_posix())
    _check_file(path)
    try:
        with Counted(path) as file:
            head = file.read(HEAD)
            file.seek(0)
            data = _unpacked(path, file) if kind_of(head) == "gzip" else Metered(path, file).whole()
    except OSError as error:
        raise BadInput(path, _reason(error), "check the path and its permissions") from error
    return Source(str(path), data)


def kind_of(data: bytes) -> str:
    """The kind of archive that these bytes are, or nothing."""
    if data[257:262] == b"ustar":
        return "tar"
    return next((kind for magic, kind in KINDS.items() if data.startswith(magic)), "")


def is_zip(path: Path) -> bool:
    """Whether a file begins as a zip does; False for what cannot be opened."""
    try:
        with path.open("rb") if os.path.isfile(path) else io.BytesIO() as file:
            return kind_of(file.read(8)) == "zip"
    except OSError:
        return False


@dataclass(frozen=True)
class Folder:
    """The files of one folder (not of those below it)."""

    path: Path

    @property
    def names(self) -> list[str]:
        """The names of the files in the folder."""
        return sorted(entry.name for entry in self.path.iterdir() if entry.is_file())

    def read(self, name: str) -> Source:
        """The file `name` of the folder."""
        return read(self.path / name)


@dataclass(frozen=True)
class Archive:
    """The members of a zip."""

    path: Path

    @property
    def names(self) -> list[str]:
        """The members that are files."""
        with opened(self.path) as archive:
            return sorted(member.filename for member in archive.infolist() if not member.is_dir())

    def read(self, name: str) -> Source:
        """The one member whose path ends with `name`."""
        with opened(self.path) as archive:
            found = [member for member in archive.infolist() if f"/{member.filename}".endswith(f"/{name}")]
            if len(found) != 1:
                many = f"{len(found)} files" if found else "no file"
                raise BadInput(
                    self.path, f"the archive has {many} called {name}", "get the archive as published"
                )
            where = f"{self.path}/{found[0].filename}"
            try:
                packed = archive.fp
                assert isinstance(packed, Counted)
                with archive.open(found[0]) as file:
                    return Source(where, Metered(where, file, lambda: packed.count).whole())
            except UNPACKING as error:
                raise BadInput(
                    where, f"the member cannot be unpacked: {error}", "get the archive again"
                ) from error


Files = Folder | Archive


def files(path: Path, marker: str, name: str) -> Files:
    """The folder or zip that holds the file `marker` of dataset `name`.

    `path` may be that folder, zip or file, or a folder that holds ``name/`` or ``name.zip``.
    """
    if path.name == marker and os.path.isfile(path):
        return Folder(path.parent)
    if not os.path.isdir(path):  # unlike Path.is_dir, False for a path that is too long
        _check_file(path)
        return Archive(path)
    for folder in (path, path / name):
        if (folder / marker).is_file():
            return Folder(folder)
        if (folder / f"{name}.zip").is_file():
            return Archive(folder / f"{name}.zip")
    raise BadInput(path, f"there is no {marker} here, nor {name}/ nor {name}.zip", f"veilrec data get {name}")


def _check_file(path: Path) -> None:
    """Refuse a pipe, a device or a folder, and what is too large, before anything is opened."""
    try:
        status = path.stat()
    except (OSError, ValueError) as error:
        raise BadInput(_short(path), _reason(error), "check the path") from error
    if stat.S_ISDIR(status.st_mode):
        raise BadInput(path, "is a folder where a file should be", "name a file in it")
    if not stat.S_ISREG(status.st_mode):
        raise BadInput(path, "is not a plain file", "copy what it gives into a file")
    if status.st_size > most():
        raise too_large(path, f"{status.st_size:,}")


def _unpacked(path: Path, file: Counted) -> bytes:
    """Unpack a gzip file."""
    try:
        with gzip.GzipFile(fileobj=file) as packed:
            return Metered(path, packed, lambda: file.count).whole()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BadInput(path, f"the gzip file is damaged: {error}", "get the file again") from error


def _reason(error: OSError | ValueError) -> str:
    """The system's own reason for an error, in words."""
    return (error.strerror or str(error)).lower() if isinstance(error, OSError) else str(error)


def _short(path: Path) -> str:
    """A path that fits on a line."""
    text = str(path).replace("\0", "\\0")
    return text if len(text) <= 200 else f"{text[:100]}…{text[-60:]}"
