"""Planted bugs, by name: with each of them a goal must be missed, or it would show nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from veilrec.base import files, locks

__all__ = ["plant"]

PAUSE = 0.4  # seconds before what was read is written: so long do two callers overlap


def plant(name: str) -> None:
    """Put a bug into this process, for good."""
    match name:
        case "written in place":
            _replace(files.atomic, in_place)
        case "no lock":
            _replace(locks.locked, unlocked)
            _replace(files.atomic, late(files.atomic))


@contextmanager
def in_place(path: Path, *, secret: bool = False) -> Iterator[files.Sink]:
    """A file that is there before it is whole."""
    with path.open("wb") as file:
        yield files.Sink(file)


@contextmanager
def unlocked(folder: Path, wait: float = 0.0, *, name: str = locks.LOCK) -> Iterator[None]:
    """A lock that keeps nobody out."""
    yield


def late(atomic: Any) -> Any:
    """A file that is written some time after what it says was read."""

    @contextmanager
    def written(path: Path, **options: Any) -> Iterator[files.Sink]:
        time.sleep(PAUSE)
        with atomic(path, **options) as sink:
            yield sink

    return written


def _replace(old: object, new: object) -> None:
    """Put a function in the place of another one, wherever the package has it."""
    for module in [module for name, module in sys.modules.items() if name.startswith("veilrec")]:
        for name in [name for name, value in vars(module).items() if value is old]:
            setattr(module, name, new)
