"""Plain files: opened by their own names and through no link, so that nothing elsewhere is touched."""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from veilrec.errors import BadInput

__all__ = [
    "SHOWN",
    "NotPlain",
    "check_file",
    "check_folder",
    "check_way",
    "grab",
    "made",
    "opened",
    "same_file",
    "writing",
]

FLAGS = ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY")  # those that the system has
SAFELY = sum(getattr(os, name, 0) for name in FLAGS)
SHOWN = 40  # letters of a file's name in those of files that go with it, which must not be too long
KINDS = {
    stat.S_IFLNK: "a link",
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
BUSY = {errno.EACCES, errno.EAGAIN, errno.EDEADLK}  # what a lock that somebody holds gives


class NotPlain(OSError):
    """Something else than a plain file, or than a folder, in a place that is for one."""

    def __init__(self, path: Path, what: str) -> None:
        super().__init__(errno.EINVAL, what, str(path))


def check_file(path: Path) -> None:
    """Refuse a place for a file where something else lies; nothing at all may lie there.

    Raises:
        NotPlain: Where a link, a folder, a pipe or a device is in the way.
    """
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    _check(path, found, stat.S_IFREG, "no plain file")


def check_folder(path: Path) -> None:
    """Refuse a folder that is none, or that a link leads to; nothing at all may lie there."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    _check(path, found, stat.S_IFDIR, "no folder")


def check_way(path: Path) -> None:
    """Refuse a place for a file that a user names where a link leads there, or lies in its place.

    What lies below the working folder may have come from anybody, in a checkout or an archive: no part of
    the way may be a link there. Above it links are how a machine is set up (``/tmp`` on a Mac, a home on
    another disk), unless another user than its own or the system's has made them.

    Raises:
        BadInput: With the link.
    """
    with writing(path):
        here = Path.cwd()
        for folder in (here / path).parents:
            if folder.is_symlink() and not _set_up(folder, here):
                fix = "name the folder that it leads to, or another place"
                raise BadInput(folder, "is a link, no folder", fix)
        check_file(path)


def _set_up(link: Path, here: Path) -> bool:
    """Whether a link is one of the machine's: not below the working folder, and not another user's."""
    above = here.parent == here or here not in Path(os.path.realpath(link.parent), link.name).parents
    return above and (os.name != "posix" or os.lstat(link).st_uid in (0, os.geteuid()))


def made(folder: Path, mode: int = 0o777) -> None:
    """Make a folder where there is none; one that a link leads to is refused."""
    with suppress(FileExistsError):
        folder.mkdir(mode)
    check_folder(folder)


def opened(path: Path, flags: int, mode: int = 0o666, *, alone: bool = False) -> int:
    """A descriptor of a plain file, as `os.open` gives it, but never through a link and without waiting.

    With `alone` a file that has another name as well is refused: what is written in place would change that.

    Raises:
        NotPlain: Where it is no such file.
    """
    check_file(path)
    descriptor = os.open(path, flags | SAFELY, mode)
    try:
        found = os.fstat(descriptor)  # between the look and the opening it may have become another
        _check(path, found, stat.S_IFREG, "no plain file")
        if alone and found.st_nlink > 1:
            raise NotPlain(path, "has a second name, a hard link")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def same_file(descriptor: int, path: Path) -> bool:
    """Whether an open file still goes by a name."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False


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
    except OSError as cause:
        if cause.errno in BUSY:
            return False
        raise
    return True


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn a full disk, a missing permission or a link into an error that names the file."""
    try:
        yield
    except NotPlain as cause:
        raise BadInput(cause.filename, f"{cause.strerror}", "remove it, or name another place") from cause
    except OSError as cause:
        fix = "make room or choose another folder; what was finished is intact"
        raise BadInput(path, f"cannot be written ({cause.strerror or cause})", fix) from cause


def _check(path: Path, found: os.stat_result, wanted: int, lacks: str) -> None:
    kind = stat.S_IFMT(found.st_mode)
    if kind != wanted:
        raise NotPlain(path, f"is {KINDS.get(kind, 'something else')}, {lacks}")
