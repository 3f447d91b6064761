"""Messages between the ranks of a run: a head that says what is asked for, and parts as bytes."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from veilrec.base.params import Params
from veilrec.engine.fleet import Trains
from veilrec.wire import codec
from veilrec.wire.halves import tensors_of

__all__ = ["packed", "scope", "tensors", "unpacked"]


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
