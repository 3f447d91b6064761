"""Files that are whole or not there: written beside their place, brought to the disk, then renamed."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

from veilrec.errors import BadInput, Corrupted

__all__ = [
    "Digest",
    "Sink",
    "atomic",
    "digest",
    "grab",
    "read_json",
    "sweep",
    "sync_file",
    "sync_folder",
    "write_json",
    "writing",
]

UNFINISHED = ".tmp"
BLOCK = 1 << 20


class Digest(NamedTuple):
    """The checksum and the length of a file."""

    sha256: str
    bytes: int


class Sink:
    """The bytes of a new file, counted and hashed on their way to the disk."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._hash, self._bytes = file, hashlib.sha256(), 0

    def write(self, data: bytes | memoryview) -> None:
        """Append some bytes."""
        self._file.write(data)
        self._hash.update(data)
        self._bytes += len(data)

    def digest(self) -> Digest:
        """The digest of all bytes written so far."""
        return Digest(self._hash.hexdigest(), self._bytes)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn a full disk or a missing permission into an error that names the file."""
    try:
        yield
    except OSError as cause:
        fix = "make room or choose another folder; what was finished is intact"
        raise BadInput(path, f"cannot be written ({cause.strerror or cause})", fix) from cause


@contextmanager
def atomic(path: Path, *, secret: bool = False) -> Iterator[Sink]:
    """A new file that takes its place only when it is complete; with `secret` nobody else may read it."""
    unfinished = path.with_name(path.name + UNFINISHED)
    with writing(path):
        unfinished.unlink(missing_ok=True)  # it may have been left with other permissions
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
            with os.fdopen(os.open(unfinished, flags, 0o600 if secret else 0o666), "wb") as file:
                yield Sink(file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(unfinished, path)
            sync_folder(path.parent)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise


def sync_file(path: Path) -> None:
    """Bring what was written to a file to the disk."""
    with writing(path), path.open("rb+") as file:
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Bring new names in a folder to the disk, where the system knows how."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def sweep(folder: Path) -> None:
    """Remove what an earlier process left unfinished."""
    for path in folder.glob(f"*{UNFINISHED}"):
        path.unlink()


def digest(path: Path, until: int | None = None) -> Digest:
    """The digest of a file, or of its first bytes."""
    whole, count = hashlib.sha256(), 0
    with path.open("rb") as file:
        while block := file.read(BLOCK if until is None else min(BLOCK, until - count)):
            whole.update(block)
            count += len(block)
    return Digest(whole.hexdigest(), count)


def write_json(path: Path, value: Mapping[str, Any], *, secret: bool = False, indent: int | None = 2) -> None:
    """A JSON file; a number that is not finite is refused."""
    text = json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False) + "\n"
    with atomic(path, secret=secret) as sink:
        sink.write(text.encode())


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file that this library wrote.

    Raises:
        Corrupted: Where it is anything else.
    """
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as cause:
        raise Corrupted(f"{path}: cannot be read as JSON ({cause}); restore the file") from cause
    if not isinstance(value, dict):
        raise Corrupted(f"{path}: no JSON object; restore the file")
    return value


def grab(descriptor: int) -> bool:
    """Lock an open file without waiting; the lock ends when it is closed, however that happens."""
    try:
        if sys.platform == "win32":
            import msvcrt

            os.lseek(descriptor, 1 << 20, os.SEEK_SET)  # far behind the text, which others may read
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
            os.lseek(descriptor, 0, os.SEEK_SET)
        else:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
