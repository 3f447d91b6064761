"""Plugins: Python files from outside the tree that add entries to the catalogue."""

from __future__ import annotations

import hashlib
import os
import sys
import traceback
from dataclasses import dataclass
from importlib.abc import SourceLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

from veilrec.base.defaults import own_defaults
from veilrec.errors import BadInput

__all__ = ["Plugin", "forget", "load", "loaded"]

CHECK = "correct the file; veilrec runs it as Python"


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


def _read(path: Path) -> bytes:
    if path.suffix != ".py":
        raise BadInput(path, "a plugin is a Python file", "name one that ends in .py")
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadInput(path, f"cannot be read: {error.strerror}", "check --plugin") from error


def _run(loader: _Loader, module: ModuleType, path: Path) -> None:
    sys.modules[module.__name__] = module  # dataclasses look their module up there
    try:
        with own_defaults():
            loader.exec_module(module)
    except SyntaxError as error:
        sys.modules.pop(module.__name__, None)
        raise BadInput(path, f"not Python: {error.msg}", CHECK, line=error.lineno) from error
    except (Exception, SystemExit) as error:
        sys.modules.pop(module.__name__, None)
        frames = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
        line = frames[-1] if frames else None
        raise BadInput(path, f"{type(error).__name__}: {error}", CHECK, line=line) from error
