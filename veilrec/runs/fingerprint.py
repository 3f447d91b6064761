"""Fingerprints: an experiment in plain words and numbers, and a hash by which a run knows itself again."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from torch import Tensor

from veilrec.base.tensors import raw
from veilrec.interactions import Interactions
from veilrec.model import Recommender

__all__ = ["data_fingerprint", "describe", "difference", "fingerprint", "without_idle"]

IDLE = {  # settings that change no bit of a result
    ("plan", "workers"),
    ("plan", "keeps"),
    ("plan", "timeout"),
    ("data", "path"),
    ("plugin", "path"),
}


def describe(thing: Any, *, named: bool = True) -> Any:
    """A part of an experiment as TOML and JSON can write it: its name and its options; None is left out."""
    if thing is None or isinstance(thing, bool | int | float | str):
        return thing
    if isinstance(thing, Enum):
        return thing.value
    if isinstance(thing, Mapping):
        return {str(k): describe(v) for k, v in thing.items() if v is not None}
    if isinstance(thing, list | tuple):
        return [describe(entry) for entry in thing]
    if isinstance(thing, set | frozenset):
        return sorted(describe(entry) for entry in thing)
    if isinstance(thing, functools.partial):
        options = {f"argument {k}": value for k, value in enumerate(thing.args)} | thing.keywords
        return {**describe(thing.func), **describe(options)}
    head = {"name": getattr(thing, "__name__", type(thing).__name__)} if named else {}
    if is_dataclass(thing) and not isinstance(thing, type):
        return {**head, **describe({field.name: getattr(thing, field.name) for field in fields(thing)})}
    return head


def fingerprint(settings: Mapping[str, Any], model: Recommender, data: Interactions) -> str:
    """A hash of all that decides the bits of a result."""
    told = without_idle(settings)
    parts = {name: [part.scope.value, part.rows, part.helper] for name, part in model.parts.items()}
    shapes = {name: list(weight.shape) for name, weight in model.named_parameters()}
    whole = json.dumps([told, parts, shapes, data_fingerprint(data)], sort_keys=True, default=str)
    return hashlib.sha256(whole.encode()).hexdigest()


def difference(stored: Mapping[str, Any], given: Mapping[str, Any]) -> str:
    """The first setting by which two recipes differ: ``plan.lr was 0.1, is 0.2``; empty where none does."""
    then, now = (dict(_flat(without_idle(one))) for one in (stored, given))
    for key in dict.fromkeys((*now, *then)):
        if then.get(key) != now.get(key):
            return f"{key} was {_told(then, key)}, is {_told(now, key)}"
    return ""


def _flat(value: Any, lead: str = "") -> Iterator[tuple[str, Any]]:
    """Each setting by its dotted key."""
    if isinstance(value, Mapping) and value:
        for key, entry in value.items():
            yield from _flat(entry, f"{lead}.{key}" if lead else str(key))
    elif isinstance(value, list) and any(isinstance(entry, Mapping) for entry in value):
        for place, entry in enumerate(value):
            yield from _flat(entry, f"{lead}.{place}")
    else:
        yield lead, value


def _told(settings: Mapping[str, Any], key: str) -> str:
    return json.dumps(settings[key], ensure_ascii=False, default=str) if key in settings else "not set"


def without_idle(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings without those that change no bit of a result."""
    return {section: _without_idle(section, value) for section, value in settings.items()}


def _without_idle(section: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: entry for name, entry in value.items() if (section, name) not in IDLE}
    return [_without_idle(section, entry) for entry in value] if isinstance(value, list) else value


def data_fingerprint(data: Interactions) -> str:
    """A hash of a log: events, ids, attributes, amounts and features."""
    whole = hashlib.sha256()

    def add(name: str, value: Tensor | None) -> None:
        if value is not None:
            whole.update(f"{name} {value.dtype} {list(value.shape)}\n".encode())
            whole.update(raw(value))

    for name in ("user", "item", "rating", "time", "features"):
        add(name, getattr(data, name))
    for name in sorted(data.attributes):
        add(f"attributes/{name}", data.attributes[name])
    for name in sorted(data.values):
        add(f"values/{name}", data.values[name])
    for ids in (data.user_ids, data.item_ids):
        whole.update(json.dumps(list(ids)).encode())
    return whole.hexdigest()
