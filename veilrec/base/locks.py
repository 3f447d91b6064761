"""A lock on a folder: one process at a time, and none after its holder has died."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from veilrec.base.plain import SHOWN, check_file, grab, opened, same_file, writing
from veilrec.errors import BadInput, InUse

__all__ = ["LOCK", "WAIT", "held_by", "locked", "writer_of", "writers_lock"]

LOCK = "lock"
WAIT = 60.0  # seconds that a short change waits for another one
PAUSE = 0.02  # seconds between two looks at a lock that somebody holds
MARK = re.compile(rb"(\d{1,20}\n)?")  # all that a lock ever holds: the number of its holder


@contextmanager
def locked(folder: Path, wait: float = 0.0, *, name: str = LOCK) -> Iterator[None]:
    """Hold the lock of a folder for a while, once it is free; for that it waits so many seconds at most.

    Raises:
        InUse: Where another process holds it, with its number.
        BadInput: Where something else lies in its place.
    """
    path = folder / name
    descriptor = _taken(path, time.monotonic() + wait)
    try:
        with writing(path):
            os.ftruncate(descriptor, 0)
            os.lseek(descriptor, 0, os.SEEK_SET)
            os.write(descriptor, f"{os.getpid()}\n".encode())
        yield
    finally:
        _let_go(path, descriptor)


@contextmanager
def writer_of(path: Path, wait: float = WAIT) -> Iterator[None]:
    """Be the only one for a while who writes one file: what is read meanwhile is what will lie there last.

    Raises:
        InUse: Where somebody else writes it for too long.
        BadInput: Where something else than a file is in its place.
    """
    with writing(path):
        check_file(path)
    with locked(path.parent, wait, name=writers_lock(path).name):
        yield


def writers_lock(path: Path) -> Path:
    """The lock that `writer_of` holds."""
    return path.with_name(f".{path.name[:SHOWN]}.lock")


def held_by(folder: Path) -> str:
    """The holder of the lock: ``pid 123``, or nothing. Takes and changes nothing."""
    path = folder / LOCK
    with writing(path):
        try:
            descriptor = opened(path, os.O_RDWR)
        except FileNotFoundError:
            return ""
        try:
            return "" if grab(descriptor) else _holder(descriptor)
        finally:
            os.close(descriptor)


def _taken(path: Path, until: float) -> int:
    """A locked descriptor of the file that lies at `path`, not of one that its last holder removed."""
    while True:
        with writing(path):
            descriptor = opened(path, os.O_RDWR | os.O_CREAT, 0o600, alone=True)
            try:
                free = grab(descriptor)
                holder = "" if free else _holder(descriptor)
                ours, there = MARK.fullmatch(_text(descriptor)), same_file(descriptor, path)
            except BaseException:
                os.close(descriptor)
                raise
        if free and there and ours:
            return descriptor
        os.close(descriptor)
        if free and there:
            raise BadInput(path, "is no lock of veilrec", "move that file away")
        if not free and time.monotonic() >= until:
            place = path.parent if path.name == LOCK else path
            raise InUse(place, f"locked by {holder}", "wait for that process or stop it")
        if not free:
            time.sleep(PAUSE)


def _let_go(path: Path, descriptor: int) -> None:
    """Remove a lock and free it: even one that cannot be removed is nobody's from then on."""
    with writing(path):
        if sys.platform == "win32":  # where an open file cannot be removed
            os.close(descriptor)
            path.unlink(missing_ok=True)
            return
        try:
            path.unlink(missing_ok=True)
        finally:
            os.close(descriptor)


def _text(descriptor: int) -> bytes:
    os.lseek(descriptor, 0, os.SEEK_SET)
    return os.read(descriptor, 64)


def _holder(descriptor: int) -> str:
    text = _text(descriptor).strip()
    return f"pid {text.decode()}" if text.isdigit() else "another process"
