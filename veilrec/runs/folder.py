"""A run directory: who may write into it, what lies in it, and how to take up from it again."""

from __future__ import annotations

import csv
import io
import os
import shutil
import tomllib
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from veilrec.base.files import UNFINISHED, Digest, atomic, digest, matches, reading, writing
from veilrec.base.locks import LOCK, held_by, locked
from veilrec.base.params import Params
from veilrec.base.plain import NotPlain, check_folder
from veilrec.base.scratch import Scratch
from veilrec.base.tensors import Blocks, Lazy, read, write
from veilrec.engine.devices.kept import Devices
from veilrec.engine.evaluation import Scored
from veilrec.errors import BadInput, Corrupted, InUse
from veilrec.interactions import Interactions
from veilrec.protocol import State
from veilrec.result import Result
from veilrec.rounds import Federation
from veilrec.runs.checkpoint import unflat
from veilrec.runs.fingerprint import data_fingerprint, difference
from veilrec.runs.integrity.changes import settle
from veilrec.runs.integrity.described import DEVICES, begun_with
from veilrec.runs.integrity.manifest import Manifest, steadily
from veilrec.runs.world import IDS, WORLD, load_world, save_world

__all__ = [
    "Run",
    "claim",
    "lay_out",
    "load_run",
    "mend",
    "per_user",
    "read_run",
    "save_state",
    "tables_of",
    "tidy",
    "write_per_user",
]

RECIPE, MODEL, USERS, PER_USER = "recipe.toml", "model.safetensors", "users.safetensors", "per_user.csv"
TRANSCRIPT, METRICS, TIMING, CHECKPOINT = (
    "transcript.safetensors",
    "metrics.jsonl",
    "timing.jsonl",
    "checkpoint",
)
SPOOL = "transcript"
DRAWS = "draws-{}.safetensors"  # of the erasers, by their place: secret, and only until the run is over
LARGEST = 1 << 22  # bytes of a recipe
FORMULA = ("=", "+", "-", "@", "\t", "\r")


@contextmanager
def claim(out: Path | None, *, resume: bool = False) -> Iterator[Path]:
    """A run directory that nobody else writes into meanwhile; without `out`, one that is gone afterwards.

    Raises:
        BadInput: Where it is in use, or holds something and is not to be resumed.
    """
    if out is None:
        with closing(Scratch()) as scratch:
            yield scratch.folder
        return
    if out.exists() and not out.is_dir():
        raise BadInput(out, "not a folder", "choose another one with --out")
    there = {path.name for path in out.iterdir()} - {LOCK} if out.is_dir() else set()
    if there and not resume:
        if holder := held_by(out):
            raise InUse(out, f"locked by {holder}", "wait for that process or stop it")
        raise BadInput(out, "not empty", "continue it with --resume, or choose another folder with --out")
    if there and RECIPE not in there and not all(name.endswith(UNFINISHED) for name in there):
        raise BadInput(out, "not a run", "name the folder of a run, or an empty one")
    with _there(out), locked(out):
        settle(out)
        _remove(*out.glob(f"{DEVICES}*"))  # left by a process that was killed; checkpoints have links
        try:
            yield out
        finally:
            _remove(*out.glob(f"{DEVICES}*"))


@contextmanager
def _there(folder: Path) -> Iterator[None]:
    """A folder, made where there was none; then it goes again if nothing has come into it."""
    new = not folder.exists()
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        if new:
            with suppress(OSError):  # it holds something
                folder.rmdir()


def tidy(folder: Path) -> None:
    """Remove what only an unfinished run needs: the spool of a transcript, devices' files in checkpoints."""
    _remove(folder / SPOOL, *(folder / CHECKPOINT).glob("state-*/"))


def mend(out: Path) -> None:
    """Complete what a crash has cut off behind the commit of a finished run, and remove what goes then.

    A run that somebody writes at the moment, or that nobody may write, stays as it is.
    """
    left = (LOCK, f"*{UNFINISHED}", "*.g*", SPOOL, f"{DEVICES}*", f"{CHECKPOINT}/state-*/")
    if any(True for names in left for _ in out.glob(names)) and os.access(out, os.W_OK):
        with suppress(InUse), claim(out, resume=True):
            tidy(out)


def _remove(*folders: Path) -> None:
    for path in folders:
        with writing(path):
            check_folder(path)
            if path.exists():
                shutil.rmtree(path)


def lay_out(folder: Path, recipe: str, data: Interactions | None) -> dict[str, Digest]:
    """Store the recipe, and the data if they are to be there, once; what is there must be what was stored.

    Returns:
        The checksums of what the run begins with.

    Raises:
        BadInput: Where the folder holds a run of another recipe.
        Corrupted: Where a file of a run that was begun has changed since.
    """
    known = begun_with(folder / CHECKPOINT)
    for name, expected in known.items():
        if not matches(folder / name, expected):
            raise Corrupted(f"{folder / name}: not what the run wrote; restore the file")
    _store(folder / RECIPE, recipe)
    if known:
        return known
    began = {RECIPE: digest(folder / RECIPE)}
    if data is not None and not (folder / CHECKPOINT).is_dir():
        return began | save_world(folder, data)
    return began | {name: digest(folder / name) for name in (WORLD, IDS) if (folder / name).exists()}


def _store(path: Path, recipe: str) -> None:
    """Write a recipe, or find that it is the one that lies there."""
    if not path.exists():
        with atomic(path) as sink:
            sink.write(recipe.encode())
        return
    try:
        with reading(path) as file:
            stored = tomllib.loads(file.read(LARGEST).decode())
    except (NotPlain, ValueError, RecursionError) as cause:
        raise Corrupted(f"{path}: cannot be read ({cause}); restore the file") from cause
    if other := difference(stored, tomllib.loads(recipe)):
        fix = "resume with the recipe of the run, or choose another folder with --out"
        raise BadInput(path, f"another recipe: {other}", fix)


def save_state(folder: Path, state: State, devices: Devices) -> dict[str, Digest]:
    """Write a state as two files: what the server has, and what devices hold, for their owner only."""
    server, own = tables_of(state, devices)
    return {MODEL: write(folder / MODEL, server), USERS: write(folder / USERS, own, secret=True)}


def tables_of(state: State, devices: Devices) -> tuple[Params, dict[str, Tensor | Blocks]]:
    """What the two files of a state hold."""
    server = {**state.server, **{f"memory/{name}": value for name, value in state.memory.items()}}
    own: dict[str, Tensor | Blocks] = {"client": devices.clients(), "posts/owner": state.posts.owner}
    own |= {f"posts/value/{name}": value for name, value in state.posts.values.items()}
    own |= devices.columns()  # in the order of its slots: no column has to be copied
    return server, own


def _state_of(model: Path, users: Path, round: int, devices: Devices) -> State:
    """The reverse of `save_state`: what devices held is put into `devices`."""
    tensors: Params = {}
    for name, value in read(model).items():
        tensors[name if name.startswith("memory/") else f"server/{name}"] = value
    own = Lazy(users)
    tensors |= {name: own[name] for name in own if name[:6] == "posts/"}
    tensors["devices/slot"] = torch.full((devices.n_clients,), -1)
    state = unflat(round, tensors, devices)[0]
    columns = [name for name in own if name != "client" and name[:6] != "posts/"]
    devices.fill(own["client"], Lazy(users, names=columns))
    return state


def write_per_user(folder: Path, scored: Scored, data: Interactions) -> Digest:
    """A table of every tested user's metrics, by original id, for its owner only."""
    with atomic(folder / PER_USER, secret=True) as sink:
        sink.write(per_user(scored, data))
    return sink.digest()


def per_user(scored: Scored, data: Interactions) -> bytes:
    """What that table holds.

    Cells that a spreadsheet would take for a formula begin with an apostrophe.
    """
    columns = [value.tolist() for value in scored.values.values()]
    users, text = [_cell(data.user_ids[user]) for user in scored.user.tolist()], io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["user", *scored.values])
    writer.writerows(zip(users, *columns, strict=True))
    return text.getvalue().encode()


def _cell(text: str) -> str:
    return f"'{text}" if text.startswith(FORMULA) else text


@dataclass(frozen=True)
class Run:
    """A finished run, taken from its directory.

    Attributes:
        manifest: Its files.
        result: What it found.
        data: Its log, with original ids and titles.
    """

    manifest: Manifest
    result: Result
    data: Interactions

    @property
    def path(self) -> Path:
        """The directory."""
        return self.manifest.folder

    @property
    def transcript(self) -> Path | None:
        """Where what the server saw was written down, checked; None where nothing was."""
        return self.manifest.path(TRANSCRIPT) if TRANSCRIPT in self.manifest.files else None

    def state(self, federation: Federation) -> State:
        """The selected state, for a federation made from the run's recipe and `data`.

        Raises:
            Corrupted: Where a file is not what the run wrote.
        """
        places = self.manifest.path(MODEL), self.manifest.path(USERS)
        federation.fleet.begin()
        return _state_of(*places, self.result.selected, federation.fleet.devices)


def load_run(path: Path, data: Interactions | None = None) -> Run:
    """A finished run; `data` is asked for where it was left out of the directory.

    Raises:
        BadInput: Where the run is not finished, or the data is missing or another.
        Corrupted: Where a file is not what the run wrote.
    """
    return steadily(path, lambda manifest: read_run(manifest, data))


def read_run(manifest: Manifest, data: Interactions | None = None) -> Run:
    """The run whose files a manifest names."""
    result = Result.read(manifest)
    if data is not None:
        if data_fingerprint(data) != result.data_fingerprint:
            raise BadInput("--data", "not the data of this run", "name the dataset it was made with")
        return Run(manifest, result, data)
    if WORLD not in manifest.files:
        raise BadInput(manifest.folder, "was written without its data", "name the dataset with --data")
    return Run(manifest, result, load_world(manifest.path(WORLD), manifest.path(IDS)))
