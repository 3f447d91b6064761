"""A lock on a folder: one process at a time, and none after its holder has died."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from veilrec.base.files import grab, writing
from veilrec.errors import BadInput

__all__ = ["LOCK", "held_by", "locked"]

LOCK = "lock"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder for a while.

    Raises:
        BadInput: Where another process holds it, with its number.
    """
    path = folder / LOCK
    descriptor = _take(path)
    try:
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        yield
    finally:
        if sys.platform == "win32":  # where an open file cannot be removed
            os.close(descriptor)
            path.unlink(missing_ok=True)
        else:
            path.unlink(missing_ok=True)
            os.close(descriptor)


def held_by(folder: Path) -> str:
    """The holder of the lock: ``pid 123``, or nothing. Takes and changes nothing."""
    path = folder / LOCK
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return ""
    try:
        return "" if grab(descriptor) else _holder(path)
    finally:
        os.close(descriptor)


def _take(path: Path) -> int:
    """A locked descriptor of the file that lies at `path`, not of one that its last holder removed."""
    while True:
        with writing(path):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        if not grab(descriptor):
            os.close(descriptor)
            raise BadInput(path.parent, f"locked by {_holder(path)}", "wait for that process or stop it")
        try:
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor
        except FileNotFoundError:
            pass  # removed in between: try again with a new file
        os.close(descriptor)


def _holder(path: Path) -> str:
    try:
        text = path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        text = ""
    return f"pid {text}" if text.isdigit() else "another process"
