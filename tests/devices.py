"""Devices to try things on: never those of the machine, which a fault in what is tested could replace."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

__all__ = ["device"]


def device(path: Path) -> Path:
    """A device that swallows everything, as ``/dev/null`` does; skips where nobody may make one."""
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    except OSError as cause:
        pytest.skip(f"no device can be made here: {cause.strerror}")
    return path
