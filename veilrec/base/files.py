"""Files that are whole or not there: written beside their place, brought to the disk, then renamed."""

from __future__ import annotations

import glob
import hashlib
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import IO, Any, NamedTuple

from veilrec.base.plain import SHOWN, NotPlain, check_file, grab, opened, same_file, writing
from veilrec.errors import Corrupted

__all__ = [
    "LARGEST",
    "UNFINISHED",
    "Digest",
    "Sink",
    "atomic",
    "digest",
    "matches",
    "read_json",
    "reading",
    "sweep",
    "sync_file",
    "sync_folder",
    "write_json",
    "writing",
]

UNFINISHED = ".tmp"
BLOCK = 1 << 20
LARGEST = 64 << 20  # bytes of a JSON file, unless another bound is given
POSIX = os.name == "posix"


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
def atomic(path: Path, *, secret: bool = False, lasts: bool = True) -> Iterator[Sink]:
    """A new file that takes its place only when it is complete; with `secret` nobody else may read it.

    Until then it lies beside its place under a name that no other call has, so that two who write one file
    at the same time leave one or the other, whole. What a process that died has left of it goes. Unless it
    `lasts`, it may be lost, or be no more than its name, where the power fails.

    Raises:
        BadInput: Where it cannot be written, or where its place is a link's, a folder's or a device's.
    """
    with writing(path):
        check_file(path)
        for left in path.parent.glob(f"{glob.escape(path.name[:SHOWN])}.{'[0-9a-f]' * 12}{UNFINISHED}"):
            _sweep(left)
        unfinished, descriptor = _begun(path, 0o600 if secret else 0o666)
        try:
            with os.fdopen(descriptor, "wb") as file:
                yield Sink(file)
                file.flush()
                if lasts:
                    os.fsync(file.fileno())
                check_file(path)
                if POSIX:  # while its lock keeps others from sweeping it away
                    os.replace(unfinished, path)
            if not POSIX:
                os.replace(unfinished, path)
            if lasts:
                sync_folder(path.parent)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise


def _begun(path: Path, mode: int) -> tuple[Path, int]:
    """A new file beside a path, and its locked descriptor: a lock says that its writer lives."""
    while True:
        name = f"{path.name[:SHOWN]}.{secrets.token_hex(6)}{UNFINISHED}"
        unfinished = path.with_name(name)
        descriptor = opened(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with suppress(OSError):  # a file system without locks: then nobody sweeps there, either
            if not grab(descriptor) or not same_file(descriptor, unfinished):  # somebody sweeps just now
                os.close(descriptor)
                continue
        return unfinished, descriptor


def sync_file(path: Path) -> None:
    """Bring what was written to a file to the disk."""
    with writing(path):
        descriptor = opened(path, os.O_RDWR)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Bring new names in a folder to the disk, where the system knows how."""
    if POSIX:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def sweep(folder: Path) -> None:
    """Remove what processes that are no more have left unfinished in a folder."""
    for path in folder.glob(f"*{UNFINISHED}"):
        _sweep(path)


def _sweep(path: Path) -> None:
    """Remove an unfinished file, unless somebody is writing it or it is no file."""
    try:
        descriptor = opened(path, os.O_RDWR)
    except (NotPlain, FileNotFoundError, PermissionError):  # not ours, just renamed, or another user's
        return
    try:
        free = grab(descriptor)
        if free and POSIX:  # before the lock ends, or who has just made it would take it for his own
            path.unlink(missing_ok=True)
    finally:
        os.close(descriptor)
    if free and not POSIX:  # where an open file cannot be removed
        path.unlink(missing_ok=True)


def reading(path: Path) -> BufferedReader:
    """A plain file to read, whose bytes are its own and not those that a link leads to."""
    return os.fdopen(opened(path, os.O_RDONLY), "rb")


def digest(path: Path, until: int | None = None) -> Digest:
    """The digest of a file, or of its first bytes."""
    whole, count = hashlib.sha256(), 0
    with reading(path) as file:
        while block := file.read(BLOCK if until is None else min(BLOCK, until - count)):
            whole.update(block)
            count += len(block)
    return Digest(whole.hexdigest(), count)


def matches(path: Path, expected: Digest) -> bool:
    """Whether a plain file with just these bytes lies at a path."""
    try:
        return os.lstat(path).st_size == expected.bytes and digest(path) == expected
    except (FileNotFoundError, NotADirectoryError, NotPlain):
        return False


def write_json(
    path: Path, value: Mapping[str, Any], *, secret: bool = False, indent: int | None = 2, lasts: bool = True
) -> Digest:
    """A JSON file; a number that is not finite is refused."""
    text = json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False) + "\n"
    with atomic(path, secret=secret, lasts=lasts) as sink:
        sink.write(text.encode())
    return sink.digest()


def read_json(path: Path, most: int = LARGEST) -> dict[str, Any]:
    """The object in a JSON file of at most so many bytes that this library wrote.

    Raises:
        Corrupted: Where it is anything else.
    """
    try:
        with reading(path) as file:
            text = file.read(most + 1)
        value = json.loads(text, parse_constant=_refuse) if len(text) <= most else None
    except (OSError, ValueError, RecursionError) as cause:
        why = cause.strerror if isinstance(cause, OSError) else cause
        raise Corrupted(f"{path}: cannot be read as JSON ({why}); restore the file") from cause
    if len(text) > most:
        raise Corrupted(f"{path}: has more than {most:,} bytes; restore the file")
    if not isinstance(value, dict):
        raise Corrupted(f"{path}: no JSON object; restore the file")
    return value


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no number")
