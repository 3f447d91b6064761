"""Messages between the ranks of a run: a head that says what is asked for, and parts as bytes."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from veilrec.base.params import Params
from veilrec.engine.fleet import Trains
from veilrec.wire import codec
from veilrec.wire.halves import tensors_of

__all__ = ["moved", "packed", "scope", "tensors", "unpacked"]

T = TypeVar("T")


def packed(head: Mapping[str, Any], *parts: bytes) -> bytes:
    """A message of one rank to another: what it is, and bytes."""
    told = json.dumps({**head, "sizes": [len(part) for part in parts]}).encode()
    return b"".join([len(told).to_bytes(8, "little"), told, *parts])


def unpacked(data: bytes) -> tuple[dict[str, Any], list[bytes]]:
    """The reverse of `packed`."""
    end = 8 + int.from_bytes(data[:8], "little")
    head: dict[str, Any] = json.loads(data[8:end])
    parts = []
    for size in head.pop("sizes"):
        parts.append(data[end : end + size])
        end += size
    return head, parts


def scope(read: Collection[str] | None, trains: Trains) -> dict[str, Any]:
    """The values that are read and the parts that move, for a message."""
    if not isinstance(trains, Collection | None):
        raise TypeError("parts that move on several ranks are named one by one")
    return {
        "read": None if read is None else sorted(read),
        "trains": None if trains is None else sorted(trains),
    }


def tensors(data: bytes) -> Params:
    """The tensors of a part."""
    return tensors_of(codec.decode(data, {}, sender="rank", rest=True))


def moved(value: T, device: torch.device) -> T:
    """A letter, a fold or whatever else was read from bytes, with all its tensors on a device."""
    if isinstance(value, Tensor):
        return value.to(device)  # type: ignore[return-value]
    if isinstance(value, dict):
        return {name: moved(entry, device) for name, entry in value.items()}  # type: ignore[return-value]
    if isinstance(value, tuple):
        parts = [moved(entry, device) for entry in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)  # type: ignore[return-value]
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{one.name: moved(getattr(value, one.name), device) for one in fields(value)})
    return value
