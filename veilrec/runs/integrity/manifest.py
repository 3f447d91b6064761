"""The manifest of a finished run: its files and their checksums, and the one file whose rename commits.

A change writes new files beside the old ones, as ``result.json.g2``, then the manifest of generation 2, and
then gives them their names. So a name means what the manifest says: the file of that name or, where a change
was cut off on the way, the one beside it.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from veilrec.base.files import Digest, read_json
from veilrec.base.limits.schema import Wrong, listed, whole
from veilrec.errors import BadInput, Corrupted
from veilrec.runs.integrity.checked import Checked
from veilrec.runs.integrity.sealed import CHECKSUMS, NAME, digests, plain, read_sealed, write_sealed

__all__ = [
    "BEFORE",
    "DONE",
    "FILES",
    "MANIFEST",
    "RECEIPT",
    "RESULT",
    "SINCE",
    "Manifest",
    "Unverified",
    "is_finished",
    "staged",
    "steadily",
]

MANIFEST, RESULT, VERSION = "manifest.json", "result.json", 1
DONE, RECEIPT = "requests.json", "receipt.json"  # requests to forget that were done, and of the last one more
BEGUN = ("recipe.toml", "checkpoint")  # what a run has before it has a result
BEFORE, SINCE = 2, 3  # versions of results: with the checksums of other files in them, and with a manifest
FILES = (  # all that a result may depend on, by name; FILES alone are changed, and vouched for
    *("recipe.toml", "metrics.jsonl", "timing.jsonl", "model.safetensors", "users.safetensors"),
    *("world.safetensors", "ids.json", "transcript.safetensors", "per_user.csv", RESULT),
    *(DONE, RECEIPT),
)
TRIES, PAUSE = 6, 0.05  # looks at a run that somebody changes meanwhile, and seconds between them

SHAPE = {"generation": whole(1, 1 << 31), "files": CHECKSUMS, "dropped": listed(NAME, 1 << 12)}
Found = TypeVar("Found")


class Unverified(UserWarning):
    """A run of before there were manifests: nothing vouches for most of its files."""


@dataclass(frozen=True)
class Manifest:
    """The files of a run.

    Attributes:
        folder: The run.
        files: Their checksums, by name.
        generation: One more with each change; 0 for a run that has no manifest.
        dropped: What the last change took away.
        checked: Which of them are known to be what they should be.
    """

    folder: Path
    files: Mapping[str, Digest]
    generation: int = 0
    dropped: tuple[str, ...] = ()
    checked: Checked = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "checked", Checked(self.folder))

    def path(self, name: str) -> Path:
        """Where the bytes of a file lie, which are checked.

        Raises:
            BadInput: Where the run was kept without it.
            Corrupted: Where it is not what the run wrote.
        """
        plain = self.folder / name
        if name not in self.files:
            if self.generation or not plain.exists():
                raise BadInput(plain, "no such file: the run is kept without it", "make the run again")
            return plain
        for place in (plain, self.folder / staged(name, self.generation), plain):  # it may just be renamed
            if self.checked.holds(place, self.files[name]):
                return place
        raise Corrupted(f"{plain}: not what the run wrote; restore the file")

    def faults(self) -> list[str]:
        """What is wrong with the run's files, by name; nothing where it is whole."""
        found = []
        for name in sorted(self.files):
            try:
                self.path(name)
            except Corrupted as error:
                found.append(f"{error}")
        return found

    @property
    def settled(self) -> bool:
        """Whether every file goes by its own name."""
        return not any((self.folder / staged(name, self.generation)).exists() for name in self.files)

    def write(self) -> None:
        """Commit: from now on the run is what this manifest says."""
        told = {"generation": self.generation, "files": plain(self.files), "dropped": list(self.dropped)}
        write_sealed(self.folder / MANIFEST, VERSION, told)

    @classmethod
    def load(cls, folder: Path) -> Manifest:
        """The manifest of a finished run; of one without, what its result says of its files.

        Raises:
            BadInput: Where the run is not finished, or of a later version.
            Corrupted: Where it is not what `write` has written, or is missing.
        """
        path = folder / MANIFEST
        if not os.path.lexists(path):
            return _of_before(folder)
        told = read_sealed(path, VERSION, SHAPE)
        return cls(folder, digests(told["files"]), told["generation"], tuple(told["dropped"]))


def is_finished(folder: Path) -> bool:
    """Whether a folder holds a finished run."""
    return any(os.path.lexists(folder / name) for name in (MANIFEST, RESULT))


def staged(name: str, generation: int) -> str:
    """The name of a file until it has its own."""
    return f"{name}.g{generation}"


def steadily(folder: Path, read: Callable[[Manifest], Found]) -> Found:
    """What a function reads of a finished run, all of one generation: it is called again where that changed.

    Raises:
        BadInput: Where the run is not finished.
        Corrupted: Where a file is not what the run wrote.
    """
    for tries in range(1, TRIES + 1):
        manifest = Manifest.load(folder)
        settled = manifest.settled
        try:
            found = read(manifest)
        except Corrupted:
            if tries == TRIES or (settled and not _changed(manifest)):
                raise
        else:
            if not _changed(manifest):
                manifest.checked.save()
                if not manifest.generation:
                    said = "written before runs had manifests: what it says cannot be verified"
                    warnings.warn(f"{folder}: {said}", Unverified, stacklevel=1)
                return found
        time.sleep(PAUSE * tries)
    raise BadInput(folder, "is being changed over and over", "wait until that is done")


def _changed(manifest: Manifest) -> bool:
    return Manifest.load(manifest.folder).generation != manifest.generation


def _unfinished(folder: Path) -> BadInput:
    """What a folder without a result is: a run that was begun, or none."""
    if not os.path.isdir(folder):
        return BadInput(folder, "not a finished run: there is no such folder", "name a run directory")
    if any(os.path.lexists(folder / name) for name in BEGUN):
        return BadInput(folder, "not a finished run: it was begun", "finish it with `veilrec run --resume`")
    return BadInput(folder, "not a finished run: there is no result in it", "name a run directory")


def _of_before(folder: Path) -> Manifest:
    """What a result of before manifests says of its other files."""
    path = folder / RESULT
    if not os.path.lexists(path):
        raise _unfinished(folder)
    told = read_json(path)
    if (version := told.get("version")) == SINCE:
        raise Corrupted(f"{folder / MANIFEST}: missing; restore the file")
    if version != BEFORE:
        raise BadInput(path, f"written as version {version}", f"this veilrec reads version {SINCE}")
    files = told.get("files")
    try:
        CHECKSUMS(files, "files")
    except Wrong as wrong:
        raise Corrupted(f"{path}: {wrong}; restore the file") from wrong
    return Manifest(folder, digests(files or {}))
