"""Scratch: a temporary folder that does not outlive its owner, even one that was killed."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import weakref
from pathlib import Path

from veilrec.base.plain import NotPlain, check_folder, grab, opened, same_file, writing
from veilrec.errors import BadInput

__all__ = ["Scratch", "close_all"]

PREFIX, LOCK = "veilrec-scratch-", "scratch.lock"  # no run directory looks like that


class Scratch:
    """A folder below the system's temporary one, which ``TMPDIR`` names.

    It goes with `close`, with this object, or with the process. What a process that was killed has left is
    removed by the next one that asks for a folder: the lock in it is free then, and a living owner's is not.

    Attributes:
        folder: Empty but for its lock, and nobody else's.
    """

    def __init__(self) -> None:
        base = _base()
        with writing(base):
            _sweep(base)
            self.folder, descriptor = _made()
        self._end = weakref.finalize(self, _remove, self.folder, descriptor, os.getpid())
        _open.add(self)

    def close(self) -> None:
        """Remove the folder."""
        self._end()


_open: weakref.WeakSet[Scratch] = weakref.WeakSet()


def close_all() -> None:
    """Remove all folders of this process, which is about to end without its usual goodbyes."""
    for one in list(_open):
        one.close()


def _base() -> Path:
    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError as cause:
        what = "no folder for temporary files can be written"
        raise BadInput("TMPDIR", what, "let it name one, and make room") from cause


def _made() -> tuple[Path, int]:
    """A new folder and its lock, held; another one where somebody swept it away before it was held."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        descriptor = opened(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        if grab(descriptor) and same_file(descriptor, folder / LOCK):
            return folder, descriptor
        os.close(descriptor)


def _sweep(base: Path) -> None:
    """Remove the folders of processes that are no more."""
    if sys.platform == "win32":  # where a file that is open, as the lock must be, cannot be removed
        return
    for lock in base.glob(f"{PREFIX}*/{LOCK}"):
        try:
            check_folder(lock.parent)  # a temporary folder is everybody's: a link in it may lead anywhere
            descriptor = opened(lock, os.O_RDWR)
        except (
            FileNotFoundError,
            PermissionError,
            NotPlain,
        ):  # removed, another user's, or a trap
            continue
        try:
            if grab(descriptor) and lock.exists():  # or another process was faster
                shutil.rmtree(lock.parent)
        finally:
            os.close(descriptor)


def _remove(folder: Path, descriptor: int, owner: int) -> None:
    if os.getpid() != owner:  # a fork has this object, too, but not the folder
        return
    if sys.platform == "win32":
        os.close(descriptor)
    if folder.exists():
        shutil.rmtree(folder)
    if sys.platform != "win32":  # not before: who sweeps would remove the same files at the same time
        os.close(descriptor)
