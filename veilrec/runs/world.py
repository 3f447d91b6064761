"""The world of a run on disk: the log, attributes, original ids and titles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from veilrec.base.files import Digest, read_json, write_json
from veilrec.base.limits.schema import Wrong, or_none, table, text, texts
from veilrec.base.params import Params, under
from veilrec.base.tensors import read, write
from veilrec.errors import Corrupted
from veilrec.interactions import Interactions

__all__ = ["IDS", "WORLD", "load_world", "save_world", "world_tables"]

WORLD, IDS = "world.safetensors", "ids.json"
LARGEST = 4 << 30  # bytes of ids and titles
MANY = 1 << 31
NAMES = texts(MANY)
SHAPE = table(
    {
        "name": text(),
        "users": NAMES,
        "items": NAMES,
        "titles": or_none(NAMES),
        "classes": table(rest=NAMES),
        "report": texts(),
    },
    may={"features": texts()},
)
COLUMNS = ("user", "item", "rating", "time")


def save_world(folder: Path, data: Interactions) -> dict[str, Digest]:
    """Write two files that only their owner may read."""
    tensors, ids = world_tables(data)
    return {
        WORLD: write(folder / WORLD, tensors, secret=True),
        IDS: write_json(folder / IDS, ids, secret=True, indent=None),
    }


def world_tables(data: Interactions) -> tuple[Params, dict[str, Any]]:
    """What the two files hold."""
    tensors: Params = {name: value for name in COLUMNS if (value := getattr(data, name)) is not None}
    tensors |= {f"attributes/{name}": value for name, value in data.attributes.items()}
    tensors |= {f"values/{name}": value for name, value in data.values.items()}
    if data.features is not None:
        tensors["features"] = data.features
    ids = {
        "name": data.name,
        "users": list(data.user_ids),
        "items": list(data.item_ids),
        "titles": None if data.texts is None else list(data.texts),
        "classes": {name: list(names) for name, names in data.classes.items()},
        "report": list(data.report),
        "features": list(data.feature_names),
    }
    return tensors, ids


def load_world(world: Path, names: Path) -> Interactions:
    """The log as it was, from its two files, so that it is split again in the same way."""
    tensors, ids = read(world), read_json(names, LARGEST)
    try:
        SHAPE(ids, "")
    except Wrong as wrong:
        raise Corrupted(f"{names}: {wrong}; restore the file") from wrong
    try:
        log = Interactions(
            user=tensors["user"],
            item=tensors["item"],
            n_users=len(ids["users"]),
            n_items=len(ids["items"]),
            user_ids=ids["users"],
            item_ids=ids["items"],
            rating=tensors.get("rating"),
            time=tensors.get("time"),
            attributes=under(tensors, "attributes/"),
            classes=ids["classes"],
            values=under(tensors, "values/"),
            features=tensors.get("features"),
            feature_names=ids.get("features", ()),
            texts=ids["titles"],
            report=tuple(ids["report"]),
            name=ids["name"],
        )
        log.check()
    except (KeyError, ValueError) as cause:
        what = f"lacks {cause}" if isinstance(cause, KeyError) else f"{cause}"
        raise Corrupted(f"{world}: {what}; restore the file") from cause
    return log
