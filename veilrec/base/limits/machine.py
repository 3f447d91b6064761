"""The machine: how much more memory this process may take, and what sets the limit.

Three things may: the memory that is free, a control group (as containers have), and the limit on addresses of
the process (``ulimit -v``). Reads numbers of the system and nothing else; where it says nothing, as outside
of Linux, half of the memory that is built in is taken for free.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

__all__ = ["Room", "fenced", "free_disk", "held", "peak", "room"]

GROUPS = Path("/sys/fs/cgroup")
PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
UNLIMITED = 1 << 60  # how a control group without a limit says so


class Room(NamedTuple):
    """Memory that a process may still take.

    Attributes:
        bytes: How much.
        limit: What ends it, in words.
    """

    bytes: int
    limit: str


def room() -> Room:
    """The memory that this process may still take: the least that anything allows."""
    found = [Room(free, limit) for free, limit in [*_of_machine(), *_of_groups(), *_of_addresses()]]
    return min(found, key=lambda one: one.bytes)


def held() -> int:
    """The bytes of memory that this process holds now; 0 where the system does not say."""
    return _status("VmRSS")


def peak() -> int:
    """The most bytes of memory that this process ever held; 0 where the system does not say."""
    if (most := _status("VmHWM")) or sys.platform == "win32":
        return most
    import resource

    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(used if sys.platform == "darwin" else used << 10)


@contextmanager
def fenced() -> Iterator[None]:
    """A while in which memory that is not there is an error, where the system would else end a process."""
    if not sys.platform.startswith("linux"):
        yield
        return
    import resource

    before = resource.getrlimit(resource.RLIMIT_DATA)
    most = _status("VmData") + room().bytes
    soft = most if before[0] == resource.RLIM_INFINITY else min(most, before[0])
    resource.setrlimit(resource.RLIMIT_DATA, (soft, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def free_disk(folder: Path) -> int:
    """The bytes that are free where a folder lies or will lie."""
    there = next(one for one in [folder.absolute(), *folder.absolute().parents] if one.exists())
    return shutil.disk_usage(there).free


def _of_machine() -> Iterator[Room]:
    free = _number(Path("/proc/meminfo"), r"MemAvailable:\s+(\d+) kB")
    if free is not None:
        yield Room(free << 10, "the memory that is free")
    elif hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        yield Room(os.sysconf("SC_PHYS_PAGES") * PAGE // 2, "half of this machine's memory")
    else:
        yield Room(UNLIMITED, "nothing that is known")


def _of_groups() -> Iterator[Room]:
    """What the control groups of the process allow, its own and all around it."""
    for line in _text(Path("/proc/self/cgroup")).splitlines():
        _, kinds, place = line.split(":", 2)
        old = "memory" in kinds.split(",")
        if not old and kinds:
            continue
        top = GROUPS / "memory" if old else GROUPS
        most, used = (
            ("memory.limit_in_bytes", "memory.usage_in_bytes") if old else ("memory.max", "memory.current")
        )
        own = top / place.lstrip("/")
        for folder in [own, *own.parents]:  # in a container, the group may be mounted as the top
            limit, taken = _number(folder / most, r"^(\d+)"), _number(folder / used, r"^(\d+)")
            if limit is not None and taken is not None and limit < UNLIMITED:
                cached = _number(folder / "memory.stat", r"(?m)^(?:total_)?inactive_file (\d+)") or 0
                yield Room(max(0, limit - taken + cached), "the limit of the control group")
            if folder == top:
                break


def _of_addresses() -> Iterator[Room]:
    if sys.platform == "win32":
        return
    import resource

    for kind, words in ((resource.RLIMIT_AS, "ulimit -v"), (resource.RLIMIT_DATA, "ulimit -d")):
        most, _ = resource.getrlimit(kind)
        if most != resource.RLIM_INFINITY:
            used = _status("VmSize" if kind == resource.RLIMIT_AS else "VmData")
            yield Room(max(0, most - used), f"the limit on this process ({words})")


def _status(name: str) -> int:
    return (_number(Path("/proc/self/status"), rf"{name}:\s+(\d+) kB") or 0) << 10


def _number(path: Path, pattern: str) -> int | None:
    found = re.search(pattern, _text(path))
    return int(found[1]) if found else None


def _text(path: Path) -> str:
    """What the system says in a file of its own; nothing where it has no such file, or keeps it to itself."""
    try:
        return path.read_text()
    except OSError:
        return ""
