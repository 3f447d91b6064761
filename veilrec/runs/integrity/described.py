"""What a checkpoint says of itself, in a file of its own, and whether its files are what that says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

from veilrec.base.files import Digest, digest, matches
from veilrec.base.limits.schema import anything, number, or_none, table, text, whole
from veilrec.base.tensors import Reader
from veilrec.engine.devices.kept import SUMS
from veilrec.engine.devices.shelf import Shelf
from veilrec.errors import Corrupted
from veilrec.runs.integrity.sealed import CHECKSUMS, digests, read_sealed

__all__ = ["DEVICES", "VERSION", "Faulty", "Saved", "begun_with", "check_states", "descriptions", "read"]

VERSION, DEVICES = 1, "devices"
DIGESTS = f"{DEVICES}/{SUMS}"  # of the devices' files
STATE = re.compile(r"state-\d{6,}\.safetensors")
SELECTION = table(
    {"metric": text(200), "round": whole(), "best": or_none(number()), "since": whole()},
    may={"first": whole(), "patience": whole()},
    rest=anything,
)
NOTES = table(may={"journals": CHECKSUMS, "selection": SELECTION, "began": CHECKSUMS}, rest=anything)


class Faulty(Exception):
    """A fault found in a checkpoint."""


class Saved(NamedTuple):
    """A checkpoint's description: its round, and the files that belong to it."""

    round: int
    notes: dict[str, Any]  # selection, length of the journals, …
    files: dict[str, Digest]  # the states it needs
    fingerprint: str = ""  # of recipe and data


def descriptions(folder: Path) -> list[Path]:
    """The descriptions in a folder, the newest first."""
    return sorted(folder.glob("round-*.json"), reverse=True)


def read(path: Path) -> Saved:
    """The description of a checkpoint.

    Raises:
        BadInput: Where it is of another version.
        Faulty: Where it is not what was written.
    """
    shape = {"round": whole(), "fingerprint": text(200), "files": CHECKSUMS, "notes": NOTES}
    try:
        body = read_sealed(path, VERSION, shape)
    except Corrupted as cause:
        raise Faulty(f"{cause}".removeprefix(f"{path}: ").partition(";")[0]) from cause
    return Saved(body["round"], body["notes"], digests(body["files"]), body["fingerprint"])


def check_states(folder: Path, saved: Saved) -> None:
    """Hold the files of a checkpoint against its description.

    Raises:
        Faulty: With the first one that is not what was written.
    """
    for name, expected in saved.files.items():
        state = folder / name
        if not STATE.fullmatch(name) or not matches(state, expected):
            raise Faulty(f"{name} does not match its checksum")
        if wrong := _differing(state, folder / name.removesuffix(".safetensors")):
            raise Faulty(f"{wrong} does not match its checksum")


def begun_with(folder: Path) -> dict[str, Digest]:
    """The checksums of what a run began with, by its newest readable checkpoint; empty without one."""
    for path in descriptions(folder):
        try:
            return digests(read(path).notes.get("began", {}))
        except Faulty:  # told when the checkpoint is taken up
            continue
    return {}


def _differing(state: Path, folder: Path) -> str:
    """The first of the devices' files in a folder that is not what a state says; empty for none."""
    file, shelf = Reader(state), Shelf({}, folder)
    if DIGESTS not in file.names:
        return ""
    if folder.is_symlink():
        return folder.name
    slot, sums = file.get("devices/slot"), file.get(DIGESTS)
    for client in (slot >= 0).nonzero().squeeze(1).tolist():
        path, expected = shelf.path(client), bytes(sums[slot[client]].tolist())
        if path.is_symlink() or not path.is_file() or digest(path).sha256 != expected.hex():
            return f"{folder.name}/{path.name}"
    return ""
