"""A memory of checksums: a file that has not changed since it was hashed need not be hashed again."""

from __future__ import annotations

import hashlib
import os
import stat
import time
from contextlib import suppress
from pathlib import Path

from veilrec.base.files import Digest, read_json, reading, write_json
from veilrec.base.limits.schema import Wrong, table, text, whole
from veilrec.base.plain import NotPlain
from veilrec.errors import BadInput, Corrupted

__all__ = ["CHECKED", "Checked"]

CHECKED, VERSION = ".checked.json", 1
YOUNG = 2_000_000_000  # nanoseconds in which a file may change once more without its times telling
MOST = 1 << 16  # bytes of the memory
SHAPE = table(
    {
        "version": whole(VERSION, VERSION),
        "files": table(rest=table({"mark": text(200), "sha256": text(64, "[0-9a-f]{64}")}), most=64),
    }
)


class Checked:
    """What is known of the files of a folder, also from commands before this one.

    A file is known by inode, size and the times at which its bytes and its name last changed, in a file of
    its own beside it. That is no part of a run: without it, or where it cannot be read, files are hashed.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known = _read(folder / CHECKED)
        self._now: dict[str, tuple[str, str]] = {}  # of this process: young files, and others' digests too
        self._fresh = False

    def holds(self, path: Path, expected: Digest) -> bool:
        """Whether a plain file with just these bytes lies at a path in the folder."""
        try:
            found = os.lstat(path)
            if not stat.S_ISREG(found.st_mode) or found.st_size != expected.bytes:
                return False
            mark = _mark(found)
            if (mark, expected.sha256) in (self._known.get(path.name), self._now.get(path.name)):
                return True
            if self._now.get(path.name, ("", ""))[0] == mark:
                return False
            with reading(path) as file:
                sha256 = hashlib.file_digest(file, "sha256").hexdigest()
                after = os.fstat(file.fileno())
        except (FileNotFoundError, NotADirectoryError, NotPlain):
            return False
        if _mark(after) == mark:
            self._remember(path.name, mark, sha256, after, lasts=sha256 == expected.sha256)
        return sha256 == expected.sha256

    def forget(self) -> None:
        """Take nothing for granted: every file is hashed again."""
        self._known, self._now = {}, {}

    def save(self) -> None:
        """Leave what is known for the next command, where the folder lets us."""
        if self._fresh:
            files = {name: {"mark": mark, "sha256": sha256} for name, (mark, sha256) in self._known.items()}
            with suppress(BadInput):  # a folder that is not ours to write: the next command hashes again
                whole = {"version": VERSION, "files": files}
                write_json(self.folder / CHECKED, whole, secret=True, indent=None, lasts=False)
            self._fresh = False

    def _remember(self, name: str, mark: str, sha256: str, found: os.stat_result, *, lasts: bool) -> None:
        self._now[name] = mark, sha256
        if lasts and time.time_ns() - max(found.st_mtime_ns, found.st_ctime_ns) > YOUNG:
            self._known[name] = mark, sha256
            self._fresh = True


def _mark(found: os.stat_result) -> str:
    return f"{found.st_ino} {found.st_size} {found.st_mtime_ns} {found.st_ctime_ns}"


def _read(path: Path) -> dict[str, tuple[str, str]]:
    """What was left before; nothing where there is none, or it is not what `save` has left."""
    if not path.exists():
        return {}
    try:
        told = read_json(path, MOST)
        SHAPE(told, "")
    except (Corrupted, Wrong):
        return {}
    return {name: (entry["mark"], entry["sha256"]) for name, entry in told["files"].items()}
