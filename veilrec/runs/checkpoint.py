"""Checkpoints: the whole state of a run on disk, checksummed, the last two of them.

A state lies in ``state-000012.safetensors``; ``round-000012.json`` names it and the selected state with their
checksums, is checksummed itself, and is written last: a checkpoint counts from then on. Where devices have
files, the folder ``state-000012`` holds links to them and the state their checksums: what did not change
between two checkpoints is on the disk once, and nothing is copied.
"""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from veilrec.base.files import Digest, sweep, sync_folder, writing
from veilrec.base.params import Params, under
from veilrec.base.plain import check_folder, made
from veilrec.base.tensors import Blocks, Lazy, beneath, write
from veilrec.engine.devices.kept import Devices
from veilrec.errors import BadInput, Corrupted
from veilrec.protocol import State
from veilrec.runs.integrity import described
from veilrec.runs.integrity.described import DEVICES, VERSION, Faulty, Saved, check_states, descriptions
from veilrec.runs.integrity.sealed import plain, write_sealed
from veilrec.wire.uploads import Posts

__all__ = ["Checkpoints", "Damaged", "flat", "unflat"]

KEPT = 2
STATES = {"server", "memory", "posts"}  # groups of tensors that live on the device


class Damaged(UserWarning):
    """A checkpoint that does not match its checksum; an older one is used."""


class Checkpoints:
    """The checkpoints of one run.

    Args:
        folder: Where they lie.
        fingerprint: Of recipe and data: a checkpoint of another run is refused.
    """

    def __init__(self, folder: Path, fingerprint: str) -> None:
        self.folder, self.fingerprint = folder, fingerprint
        self._files: dict[str, Digest] = {}  # states on disk that were written or checked by this process

    @property
    def devices(self) -> Path:
        """The folder with the devices' files of the state at hand, beside their links."""
        return self.folder.with_name(DEVICES)

    def select(self, state: State, devices: Devices, extra: Mapping[str, Params]) -> None:
        """Keep a state in the place of the one selected before; `extra` are more groups of tensors."""
        self._save(state, devices, extra)
        self._prune(state.round)

    def write(
        self,
        state: State,
        devices: Devices,
        extra: Mapping[str, Params],
        notes: Mapping[str, Any],
        selected: int,
    ) -> None:
        """A checkpoint of a state, and of the selected one, which is this one or was kept by `select`."""
        self._save(state, devices, extra)
        needed = sorted({_state_name(state.round), _state_name(selected or state.round)})
        body = {
            "round": state.round,
            "fingerprint": self.fingerprint,
            "files": plain({name: self._files[name] for name in needed}),
            "notes": dict(notes),
        }
        write_sealed(self.folder / f"round-{state.round:06}.json", VERSION, body)
        self._prune(selected)

    def latest(self, usable: Callable[[Saved], str]) -> Saved | None:
        """The newest checkpoint that is whole, or None where there never was one.

        Args:
            usable: Says what else is wrong with a checkpoint; empty for nothing.

        Raises:
            Corrupted: Where there are some and none is whole.
            BadInput: Where the newest one belongs to another run.
        """
        with writing(self.folder):
            check_folder(self.folder)
            if not self.folder.exists():
                return None
            sweep(self.folder)
        damaged: dict[Path, Faulty] = {}
        for path in descriptions(self.folder):
            try:
                saved = self._read(path)
                if wrong := usable(saved):
                    raise Faulty(wrong)
            except Faulty as cause:
                damaged[path] = cause
                continue
            self._forget(damaged, saved)
            return saved
        if damaged:
            first, wrong = next((path, f"{cause}") for path, cause in damaged.items())
            raise Corrupted(f"{first}: {wrong}, and no older one is whole; start again in another folder")
        return None

    def _forget(self, damaged: Mapping[Path, Faulty], saved: Saved) -> None:
        """Go on from a checkpoint: newer ones that are damaged would only be in the way."""
        self._files = dict(saved.files)
        for path, cause in damaged.items():
            text = f"{path}: {cause}; using the checkpoint of round {saved.round}"
            warnings.warn(text, Damaged, stacklevel=3)
            path.unlink()

    def _save(self, state: State, devices: Devices, extra: Mapping[str, Params]) -> None:
        """Write a state, unless this process has done so already."""
        name = _state_name(state.round)
        if name not in self._files:
            with writing(self.folder):
                made(self.folder)
            devices.snapshot(self.folder / _folder_name(name))
            self._files[name] = write(self.folder / name, flat(state, devices, extra), secret=True)

    def load(self, round: int, devices: Devices) -> tuple[State, dict[str, Params]]:
        """A state that was kept, and its other groups; what devices held then is put into `devices`."""
        name = _state_name(round)
        return unflat(round, Lazy(self.folder / name), devices, self.folder / _folder_name(name))

    def _read(self, path: Path) -> Saved:
        saved = described.read(path)
        if saved.fingerprint != self.fingerprint:
            raise BadInput(
                path, "a checkpoint of another recipe or other data", "resume with those it was made with"
            )
        check_states(self.folder, saved)
        return saved

    def _prune(self, selected: int) -> None:
        """Drop older checkpoints, then the states that nobody needs."""
        needed = {_state_name(selected)} if selected else set()
        for place, path in enumerate(descriptions(self.folder)):
            try:
                needed |= set(described.read(path).files if place < KEPT else ())
            except Faulty:  # an older one, of which nothing can be used
                place = KEPT
            if place >= KEPT:
                path.unlink()
        sync_folder(self.folder)
        for path in self.folder.glob("state-*.safetensors"):
            if path.name not in needed:
                path.unlink()
                self._files.pop(path.name, None)
        for path in self.folder.glob("state-*/"):
            if f"{path.name}.safetensors" not in needed:
                shutil.rmtree(path)


def flat(state: State, devices: Devices, extra: Mapping[str, Params]) -> dict[str, Tensor | Blocks]:
    """A state as one table of tensors, for a file."""
    groups: dict[str, Mapping[str, Tensor | Blocks]] = {
        "server": state.server,
        "memory": state.memory,
        "devices": devices.state(),
        "posts": {"owner": state.posts.owner, **{f"value/{n}": v for n, v in state.posts.values.items()}},
        **extra,
    }
    return {f"{group}/{name}": value for group, values in groups.items() for name, value in values.items()}


def unflat(
    round: int, tensors: Mapping[str, Tensor], devices: Devices, files: Path | None = None
) -> tuple[State, dict[str, Params]]:
    """The reverse of `flat`: what devices kept is put into `devices`, with their files from `files`."""
    groups: dict[str, Params] = {"server": {}, "memory": {}, "posts": {}}
    for name in tensors:
        group, rest = name.split("/", 1)
        if group != "devices":
            value = tensors[name]
            groups.setdefault(group, {})[rest] = value.to(devices.device) if group in STATES else value
    devices.restore(beneath(tensors, "devices/"), files)
    posts = groups.pop("posts")
    owner = posts.pop("owner")
    return State(
        round, groups.pop("server"), groups.pop("memory"), Posts(owner, under(posts, "value/"))
    ), groups


def _state_name(round: int) -> str:
    return f"state-{round:06}.safetensors"


def _folder_name(state: str) -> str:
    """The name of the folder with the devices' files of a state, if they have any."""
    return state.removesuffix(".safetensors")
