"""The canonical form of a dataset on disk: a folder with ``dataset.json`` and ``events.safetensors``."""

from __future__ import annotations

import glob
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from veilrec.base.files import sync_folder, writing
from veilrec.base.limits.bounds import Seed, bounded
from veilrec.base.locks import WAIT, locked
from veilrec.base.plain import check_folder
from veilrec.datasets.common.card import AGAIN, CARD, FORMAT, VERSION, checksum, read_card
from veilrec.datasets.reading.archives import read
from veilrec.errors import BadInput, Corrupted
from veilrec.interactions import Interactions

__all__ = ["imported"]

EVENTS = "events.safetensors"
VALUE = "value."
ASIDE = ".old"  # ends the name of a dataset that makes room for another
COLUMNS = ("user", "item", "rating", "time", "features")


@bounded("data")
def imported(path: Path, *, split_seed: Seed = 0) -> Interactions:
    """A dataset that ``veilrec data import`` stored.

    >>> from tempfile import TemporaryDirectory
    >>> from veilrec.datasets.synthetic import synthetic
    >>> with TemporaryDirectory() as folder:
    ...     write(synthetic(users=4, items=12), Path(folder) / "world")
    ...     imported(Path(folder) / "world").n_users
    4

    Args:
        path: Its folder.
        split_seed: Decides the order of events at the same time, and so what is held out.

    Raises:
        Corrupted: Where a file is missing, cut off, or not what was written.
    """
    folder = Path(path)
    card = read_card(folder)
    data = read(folder / EVENTS).data
    if hashlib.sha256(data).hexdigest() != card.get("sha256"):
        raise Corrupted(f"{folder / EVENTS}: does not match its checksum; {AGAIN}")
    try:
        log = _from_tensors(card, load_tensors(data))
    except (SafetensorError, KeyError, TypeError, ValueError, IndexError, RuntimeError) as error:
        raise Corrupted(f"{folder / EVENTS}: {error}; {AGAIN}") from error
    return _reordered(log, split_seed) if split_seed else log


def write(log: Interactions, folder: Path, *, overwrite: bool = False) -> None:
    """Store a dataset as `folder`, whole or not at all.

    Raises:
        BadInput: Where the folder exists (unless `overwrite`) or cannot be written.
    """
    data = save_tensors(_to_tensors(log))
    text = json.dumps(_card(log, data), indent=1, ensure_ascii=False).encode()
    with writing(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with locked(folder.parent, WAIT, name=f".{folder.name}.lock"):
            _recover(folder)
            _check_place(folder, overwrite=overwrite)
            fresh = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}")
            try:
                fresh.mkdir(mode=0o700)
                for name, content in ((CARD, text), (EVENTS, data)):
                    _write_file(fresh / name, content)
                sync_folder(fresh)
                _put(fresh, folder)
                sync_folder(folder.parent)
            finally:
                shutil.rmtree(fresh, ignore_errors=True)


def _check_place(folder: Path, *, overwrite: bool) -> None:
    check_folder(folder)
    if folder.exists() and not overwrite:
        raise BadInput(folder, "there is a dataset of this name", "choose another --name, or pass --replace")
    if folder.exists() and not (folder / CARD).is_file():
        raise BadInput(folder, "is in the way, and no dataset of veilrec", "choose another --name")


def _recover(folder: Path) -> None:
    """Put a dataset back that had stepped aside when a process died, and remove what that one has begun."""
    for left in folder.parent.glob(f".{glob.escape(folder.name)}.{'[0-9a-f]' * 8}*"):
        if left.suffix == ASIDE and not folder.exists():
            left.rename(folder)
        else:
            shutil.rmtree(left)


def _put(fresh: Path, folder: Path) -> None:
    """Give the fresh folder its name; an older one steps aside first, and comes back where that fails."""
    if not folder.exists():
        fresh.rename(folder)
        return
    aside = fresh.with_name(fresh.name + ASIDE)
    folder.rename(aside)
    try:
        fresh.rename(folder)
    except BaseException:
        aside.rename(folder)
        raise
    shutil.rmtree(aside, ignore_errors=True)


def _write_file(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)  # personal data
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _card(log: Interactions, data: bytes) -> dict[str, Any]:
    card: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "name": log.name,
        "users": log.n_users,
        "items": log.n_items,
        "events": len(log),
        "classes": {name: list(classes) for name, classes in log.classes.items()},
        "titles": log.texts is not None,
        "features": list(log.feature_names),
        "report": list(log.report),
        "sha256": hashlib.sha256(data).hexdigest(),
    }
    return {**card, "checksum": checksum(card)}


def _to_tensors(log: Interactions) -> dict[str, Tensor]:
    tensors = {name: getattr(log, name) for name in COLUMNS if getattr(log, name) is not None}
    tensors |= {f"attribute.{name}": value for name, value in log.attributes.items()}
    tensors |= {f"{VALUE}{name}": value for name, value in log.values.items()}
    words = {"user_ids": log.user_ids, "item_ids": log.item_ids, "texts": log.texts}
    for name, entries in words.items():
        if entries is not None:
            tensors[f"{name}.letters"], tensors[f"{name}.ends"] = _packed(entries)
    return {name: value.contiguous() for name, value in tensors.items()}


def _from_tensors(card: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Interactions:
    words = {
        name: _unpacked(tensors[f"{name}.letters"], tensors[f"{name}.ends"])
        if f"{name}.ends" in tensors
        else None
        for name in ("user_ids", "item_ids", "texts")
    }
    user_ids, item_ids = words["user_ids"] or [], words["item_ids"] or []
    columns: dict[str, Any] = {name: tensors[name] for name in COLUMNS if name in tensors}
    log = Interactions(
        **columns,
        n_users=len(user_ids),
        n_items=len(item_ids),
        user_ids=user_ids,
        item_ids=item_ids,
        attributes={name: tensors[f"attribute.{name}"] for name in card["classes"]},
        classes={name: tuple(classes) for name, classes in card["classes"].items()},
        values={
            name.removeprefix(VALUE): tensors[name] for name in sorted(tensors) if name.startswith(VALUE)
        },
        feature_names=tuple(card.get("features", ())),
        texts=words["texts"],
        report=tuple(card["report"]),
        name=card["name"],
    )
    log.check()
    return log


def _reordered(log: Interactions, split_seed: int) -> Interactions:
    """The log with its ties broken by another seed than the one it was stored with."""
    kept = ("attributes", "classes", "values", "features", "feature_names", "texts", "name")
    rest = {name: getattr(log, name) for name in kept}
    built = Interactions.build(
        log.user,
        log.item,
        log.user_ids,
        log.item_ids,
        rating=log.rating,
        time=log.time,
        split_seed=split_seed,
        **rest,
    )
    return replace(built, report=log.report)


def _packed(words: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Strings as one row of UTF-8 bytes and the place where each ends."""
    encoded = [word.encode() for word in words]
    letters = torch.from_numpy(np.frombuffer(b"".join(encoded), dtype=np.uint8).copy())
    return letters, torch.tensor([len(word) for word in encoded], dtype=torch.int64).cumsum(0)


def _unpacked(letters: Tensor, ends: Tensor) -> list[str]:
    whole, places = letters.numpy().tobytes(), [0, *ends.tolist()]
    return [whole[start:end].decode() for start, end in pairwise(places)]
