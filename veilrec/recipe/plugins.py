"""Plugins: Python files from outside the tree that add entries to the catalogue."""

from __future__ import annotations

import hashlib
import os
import stat
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.abc import SourceLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

from veilrec.base.defaults import own_defaults
from veilrec.errors import BadInput, VeilrecError

__all__ = ["CHECK", "Plugin", "forget", "guarded", "load", "loaded", "said"]

CHECK = "correct the file; veilrec runs it as Python"
LARGEST = 8 << 20  # bytes of a file


@dataclass(frozen=True)
class Plugin:
    """A loaded file, and the hash of exactly the bytes that were run."""

    path: Path
    sha256: str
    module: ModuleType


class _Loader(SourceLoader):
    """Runs the bytes that were hashed, and leaves no bytecode beside the file."""

    def __init__(self, path: Path, source: bytes) -> None:
        self.path, self.source = path, source

    def get_filename(self, fullname: str) -> str:
        return str(self.path)

    def get_data(self, path: str | bytes) -> bytes:
        return self.source


_loaded: dict[Path, Plugin] = {}  # like `sys.modules`: what this process has imported


def loaded() -> list[Plugin]:
    """The plugins of this process, in the order in which they were loaded."""
    return list(_loaded.values())


def forget(*places: Path) -> None:
    """Take some plugins, by default all, out of the catalogue again."""
    for place in places or tuple(_loaded):
        if place in _loaded:
            sys.modules.pop(_loaded.pop(place).module.__name__, None)


def load(path: Path) -> Plugin:
    """Run a plugin file and remember it; a file that was loaded before and has not changed is not run again.

    Raises:
        BadInput: With the line, where the file cannot be read or run.
    """
    source = _read(path)
    place, sha256 = path.resolve(), hashlib.sha256(source).hexdigest()
    if place in _loaded and _loaded[place].sha256 == sha256:
        return _loaded[place]
    name = f"veilrec_plugin_{hashlib.sha256(os.fsencode(place) + source).hexdigest()[:12]}"
    loader = _Loader(path, source)
    spec = spec_from_loader(name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    _run(loader, module, path)
    forget(place)
    _loaded[place] = Plugin(place, sha256, module)
    return _loaded[place]


@contextmanager
def guarded(where: str | Path, fix: str, what: str = "") -> Iterator[None]:
    """Whatever goes wrong with code from elsewhere is an error that names the place and the way out.

    A signal is none of it, nor an error that veilrec words itself.
    """
    try:
        yield
    except (VeilrecError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise BadInput(where, f"{what}{said(error)}", fix, line=_line(error, where)) from error


def said(error: BaseException) -> str:
    """The type and the words of an error, if it has any."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # of an error that cannot even say what it is
        return type(error).__name__


def _line(error: BaseException, path: str | Path) -> int | None:
    """The last line of a file on the way to an error."""
    frames = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
    return frames[-1] if frames else None


def _read(path: Path) -> bytes:
    if path.suffix != ".py":
        raise BadInput(path, "a plugin is a Python file", "name one that ends in .py")
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode) or found.st_size > LARGEST:
            raise BadInput(path, f"no file of at most {LARGEST:,} bytes", "check --plugin")
        return path.read_bytes()
    except OSError as error:
        raise BadInput(path, f"cannot be read: {error.strerror}", "check --plugin") from error


def _run(loader: _Loader, module: ModuleType, path: Path) -> None:
    sys.modules[module.__name__] = module  # dataclasses look their module up there
    try:
        with guarded(path, CHECK), own_defaults():
            loader.exec_module(module)
    except BadInput as error:
        sys.modules.pop(module.__name__, None)
        cause = error.__cause__
        if isinstance(cause, SyntaxError):
            raise BadInput(path, f"not Python: {cause.msg}", CHECK, line=cause.lineno) from cause
        raise
    if sys.modules.get(module.__name__) is not module:
        raise BadInput(path, "is no module any more once it was run", CHECK)
