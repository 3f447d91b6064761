"""Failpoints: a process kills itself before the n-th thing that it does to the disk, or within a write."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from veilrec.base import files

__all__ = ["install"]

EVENTS = {
    "os.rename",
    "os.remove",
    "os.link",
    "os.symlink",
    "os.mkdir",
    "os.rmdir",
    "os.truncate",
    "os.chmod",
}
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def install(fatal: int = 0) -> Callable[[Path], None]:
    """Count what is done to the disk, and die at the `fatal`-th time.

    Returns:
        Writes into a file how often it was.
    """
    count = 0

    def due() -> bool:
        nonlocal count
        count += 1
        return count == fatal

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        opens = event == "open" and isinstance(arguments[2], int) and bool(arguments[2] & WRITES)
        if (event in EVENTS or (opens and arguments[0] != os.devnull)) and due():
            die()

    def half(call: Callable[..., Any]) -> Callable[..., Any]:
        def written(sink: Any, data: Any) -> Any:
            if due():
                call(sink, memoryview(data)[: len(data) // 2])
                sink._file.flush()
                die()
            return call(sink, data)

        return written

    def synced(descriptor: int) -> None:  # slow, and a process that is killed loses nothing without
        if due():
            die()

    sys.addaudithook(watch)
    files.Sink.write = half(files.Sink.write)  # type: ignore[method-assign]
    os.fsync = synced
    return lambda path: path.write_text(json.dumps(count), encoding="utf-8") and None


def die() -> None:
    """End at once, as by ``kill -9``."""
    os.kill(os.getpid(), signal.SIGKILL)
