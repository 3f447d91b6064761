"""Changes of a finished run: all of one or nothing of it, whatever happens on the way.

    with change(folder) as new:
        result = read_json(new.path("result.json"))
        new.write_json("result.json", {**result, "more": 1})
        new.drop("transcript.safetensors")

New files are written beside the old ones and brought to the disk; the manifest's rename commits; then they
get their names, and what was dropped goes. What a crash leaves is finished, or removed, by whoever changes
the run next or goes on with it.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from veilrec.base import files
from veilrec.base.files import Digest, Sink, atomic, digest, matches, sweep, sync_folder, writing
from veilrec.base.locks import LOCK, WAIT, locked
from veilrec.errors import Corrupted
from veilrec.runs.integrity.manifest import FILES, MANIFEST, Manifest, is_finished, staged, steadily
from veilrec.runs.integrity.sealed import NAME

if TYPE_CHECKING:
    from torch import Tensor

    from veilrec.base.tensors import Blocks

__all__ = ["Change", "change", "changing", "settle", "vouched_for"]

STAGED = re.compile(rf"({'|'.join(map(re.escape, FILES))})\.g(\d{{1,10}})")


class Change:
    """A change that is being made.

    Attributes:
        before: The run as it was.
        files: The checksums of its files as they will be.
    """

    def __init__(self, before: Manifest) -> None:
        self.before, self.files = before, dict(before.files)
        self._generation = before.generation + 1
        self._new: list[str] = []
        self._dropped: list[str] = []

    def path(self, name: str) -> Path:
        """Where a file as it was lies, checked."""
        return self.before.path(name)

    @contextmanager
    def writing(self, name: str, *, secret: bool = False) -> Iterator[Sink]:
        """A new file in the place of one of the run's, or beside them."""
        with atomic(self._place(name), secret=secret) as sink:
            yield sink
        self.files[name] = sink.digest()

    def write_json(
        self, name: str, value: Mapping[str, Any], *, secret: bool = False, indent: int | None = 2
    ) -> None:
        """A new JSON file."""
        self.files[name] = files.write_json(self._place(name), value, secret=secret, indent=indent)

    def write_tensors(self, name: str, table: Mapping[str, Tensor | Blocks], *, secret: bool = False) -> None:
        """A new safetensors file."""
        from veilrec.base import tensors as stored  # which brings torch

        self.files[name] = stored.write(self._place(name), table, secret=secret)

    def keep(self, written: Mapping[str, Digest]) -> None:
        """Vouch for files that lie there under their own names."""
        self.files.update(written)

    def drop(self, name: str) -> None:
        """Take away a file of the run, or anything else in its folder, once the change is committed."""
        NAME(name, "what is dropped")
        if name in self._new or name in (MANIFEST, LOCK):
            raise ValueError(f"what is dropped: {name} is needed")
        self.files.pop(name, None)
        self._dropped.append(name)

    def commit(self) -> None:
        """Make it so."""
        folder, dropped = self.before.folder, tuple(dict.fromkeys(self._dropped))
        after = Manifest(folder, self.files, self._generation, dropped)
        try:
            after.write()
        except BaseException:
            if _generation(folder) < self._generation:
                self.abandon()
            raise
        with writing(folder):
            for name in self._new:
                os.replace(self._staged(name), folder / name)
            _purge(after)

    def abandon(self) -> None:
        """Leave everything as it was; what cannot be removed is nobody's, and goes with the next change."""
        for name in self._new:
            with suppress(OSError):
                self._staged(name).unlink(missing_ok=True)

    def _place(self, name: str) -> Path:
        if name not in FILES or name in self._dropped:
            raise ValueError(f"{name} is no file of a run")
        if name not in self._new:
            self._new.append(name)
        return self._staged(name)

    def _staged(self, name: str) -> Path:
        return self.before.folder / staged(name, self._generation)


@contextmanager
def change(folder: Path, wait: float = WAIT) -> Iterator[Change]:
    """Change a finished run, of which nobody changes anything meanwhile.

    Raises:
        BadInput: Where it is not finished, or somebody holds its lock for too long.
        Corrupted: Where a file that is looked at is not what the run wrote.
    """
    with locked(folder, wait):
        Manifest.load(folder)  # or there is nothing to change
        with changing(folder) as new:
            yield new


@contextmanager
def changing(folder: Path) -> Iterator[Change]:
    """The same for who holds the lock already, and also where nothing is finished yet."""
    settle(folder)
    before = Manifest.load(folder) if is_finished(folder) else Manifest(folder, {})
    new = Change(before)
    if not before.generation:
        new.keep(_first(before))
    try:
        yield new
    except BaseException:
        new.abandon()
        raise
    new.commit()


def settle(folder: Path) -> None:
    """Finish what was committed before a crash, and remove what was not; for who holds the lock.

    Raises:
        Corrupted: Where neither the old nor the new file is what the run wrote.
    """
    manifest = Manifest.load(folder) if is_finished(folder) else Manifest(folder, {})
    with writing(folder):
        sweep(folder)
        for path in sorted(folder.glob("*.g*")):
            if (found := STAGED.fullmatch(path.name)) is None:
                continue
            name, expected = found[1], manifest.files.get(found[1])
            if int(found[2]) != manifest.generation or expected is None or matches(folder / name, expected):
                path.unlink()
            elif matches(path, expected):
                os.replace(path, folder / name)
            else:
                raise Corrupted(f"{folder / name}: not what the run wrote; restore the file")
        _purge(manifest)


def vouched_for(path: Path) -> Path:
    """The same path; where the file belongs to a finished run, it is checked.

    Raises:
        Corrupted: Where it is not what the run wrote.
    """
    folder, its = path.parent, path.name in FILES
    if its and all((folder / name).exists() for name in (MANIFEST, FILES[0])):
        cut_off = steadily(folder, lambda manifest: manifest.path(path.name)) != path
        if cut_off:  # a change was, before it got its name
            with locked(folder, WAIT):
                settle(folder)
    return path


def _first(before: Manifest) -> dict[str, Digest]:
    """What a first manifest vouches for beside a run's own checksums, which must not deny what is there."""
    for fault in before.faults():
        raise Corrupted(fault)
    return {
        name: digest(before.folder / name)
        for name in FILES
        if before.files and name not in before.files and (before.folder / name).exists()
    }


def _purge(after: Manifest) -> None:
    """Remove what a change has dropped, and then no longer say so: who puts it there again, keeps it."""
    for path in (after.folder / name for name in after.dropped):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    sync_folder(after.folder)
    if after.dropped:
        replace(after, dropped=()).write()


def _generation(folder: Path) -> int:
    return Manifest.load(folder).generation if is_finished(folder) else 0
