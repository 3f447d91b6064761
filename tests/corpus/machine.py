"""Folders that cannot be written and disks that are full, for one process alone and gone with it."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from unittest import SkipTest

__all__ = ["need_mounts", "private_mounts", "read_only", "small_disk"]

NEW_MOUNTS = 0x20000  # of unshare(2); those below of mount(2)
READ_ONLY, REMOUNT, BIND, RECURSIVE, PRIVATE = 1, 32, 4096, 16384, 1 << 18


def read_only(folders: Sequence[Path]) -> Callable[[], None] | None:
    """Make folders unwritable, or say what makes them so in the process that calls it.

    Permissions mean nothing to the superuser, for whom the folders are mounted anew.
    """
    if os.geteuid():
        for folder in folders:
            folder.chmod(0o555)
        return None
    need_mounts()

    def before() -> None:
        private_mounts()
        for folder in folders:
            _mount(folder, folder, BIND)
            _mount(folder, folder, BIND | REMOUNT | READ_ONLY)

    return before


def small_disk(folder: Path) -> None:
    """Mount a disk on a folder, in this process alone, and fill it."""
    private_mounts()
    _mount("none", folder, 0, "tmpfs", "size=64k")
    with (folder / "filling").open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return


def private_mounts() -> None:
    """What this process mounts from now on nobody else sees."""
    _checked(_system().unshare(NEW_MOUNTS))
    _mount("none", "/", RECURSIVE | PRIVATE)


def need_mounts() -> None:
    """Skip where a process may not mount anything for itself."""
    if not _may_mount():
        raise SkipTest("needs to mount something")


@cache
def _may_mount() -> bool:
    if not hasattr(os, "fork") or os.geteuid():
        return False
    child = os.fork()
    if child == 0:
        try:
            private_mounts()
        except (OSError, AttributeError):
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


def _system() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _mount(source: Path | str, target: Path | str, flags: int, kind: str = "none", options: str = "") -> None:
    words = [os.fsencode(word) for word in (source, target, kind)]
    _checked(_system().mount(*words, ctypes.c_ulong(flags), options.encode()))


def _checked(result: int) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
