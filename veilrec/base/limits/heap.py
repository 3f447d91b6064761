"""Heap: what the C library does with blocks of memory that are free again, where it can be told."""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from typing import Any

__all__ = ["ARENAS", "TRIMMED", "keep_freed", "return_freed", "trim"]

TRIM_THRESHOLD, MMAP_THRESHOLD, ARENA_MAX = -1, -3, -8  # as <malloc.h> numbers them
TRIMMED, ARENAS = 24 << 20, 3  # bytes that each arena keeps back, and how many there are
LARGE = 4 << 20  # bytes of a column of a log; smaller blocks are quicker when they are kept


@cache
def keep_freed() -> None:
    """Ask the C library to keep freed blocks for the next chunk, up to a bound; a tenth of a round goes into
    giving them back and having fresh ones cleared. Nothing happens where there is no `mallopt`.
    """
    _set((MMAP_THRESHOLD, 32 << 20), (TRIM_THRESHOLD, TRIMMED), (ARENA_MAX, ARENAS))


def return_freed() -> None:
    """Ask it to give large blocks back at once, until `keep_freed`: each step of reading a log has others."""
    _set((MMAP_THRESHOLD, LARGE))


def trim() -> None:
    """Give back what is free now."""
    library = _library()
    if hasattr(library, "malloc_trim"):
        library.malloc_trim(0)


def _set(*options: tuple[int, int]) -> None:
    library = _library()
    if hasattr(library, "mallopt"):
        for option, size in options:
            library.mallopt(option, size)


def _library() -> Any:
    return ctypes.CDLL(None) if sys.platform == "linux" else None
