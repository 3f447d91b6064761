"""The frame of a message: the names, types and lengths in its header, which are judged before any is read."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import torch

from veilrec.base.tensors import DTYPES, Entry, header
from veilrec.errors import BadInput, visible

__all__ = ["OPEN", "Frame", "Limits", "framed", "limits", "shown"]

NOTES = "__metadata__"  # the place of notes in a header
KEYS = {"dtype", "shape", "data_offsets"}
LONGEST = 1 << 48  # an axis, or a place in the bytes
AXES = 16  # of one tensor
SPARE = 100  # one part in so many that a message may be longer than its schema has it
SHOWN = 60  # letters of a name that comes from elsewhere
LETTER = 4  # bytes of a letter, at most


class Limits(NamedTuple):
    """Limits of a message in bytes: of its header, and of all of it."""

    head: int
    whole: int


OPEN = Limits(1 << 20, 1 << 62)  # where no schema says what comes: between processes of one run


class Frame(NamedTuple):
    """A header that holds what it says: each byte of the message belongs to one tensor.

    Attributes:
        entries: Type and shape by name.
        notes: Notes beside the message.
    """

    entries: Mapping[str, Entry]
    notes: Mapping[str, str]

    def axis(self, name: str) -> int:
        """The first axis of a tensor; 0 where it has none, or is not there."""
        shape = self.entries[name][1] if name in self.entries else ()
        return shape[0] if shape else 0


def limits(entries: Iterable[tuple[str, Entry]], notes: Mapping[str, int] | None = None) -> Limits:
    """Limits of a message whose tensors are these at most, and one part in a hundred more.

    Args:
        entries: Type and largest shape by name.
        notes: The longest text of each note that may come.
    """
    head, body = header(entries)
    told = sum(len(name) + LETTER * length + LETTER for name, length in (notes or {}).items())
    told += len(NOTES) + 2 * LETTER if notes else 0
    spare = (len(head) + told + body) // SPARE + 8  # a header may be filled up to a multiple of 8
    return Limits(len(head) + told + spare, len(head) + told + body + spare)


def framed(data: bytes, limits: Limits = OPEN, *, sender: str = "message") -> Frame:
    """The frame of some bytes, of which nothing but a header of bounded length is read.

    Raises:
        BadInput: Where they are longer than the limits, no message, or say of themselves what does not hold:
            a name twice, bytes of two tensors or of none, a type that is not known.
    """
    if len(data) > limits.whole:
        raise _too_long(sender, "", len(data), limits.whole)
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > len(data) - 8:
        raise _none(sender, "its header is cut")
    if length > limits.head:
        raise _too_long(sender, " in its header", length, limits.head)
    try:
        head = json.loads(str(data[8 : 8 + length], "utf-8"), object_pairs_hook=_once)
    except (ValueError, RecursionError) as cause:
        raise _none(sender, f"its header is no JSON: {shown(cause)}") from cause
    if not isinstance(head, dict):
        raise _none(sender, "its header is no JSON object")
    notes = _notes(head.pop(NOTES, {}), sender)
    return Frame(_entries(head, len(data) - 8 - length, sender), notes)


def shown(name: object) -> str:
    """A name or a text from elsewhere, fit for a line."""
    return visible(name, SHOWN)


def _entries(head: Mapping[str, Any], body: int, sender: str) -> dict[str, Entry]:
    """Type and shape by name, of tensors that lie in the bytes one behind the other."""
    found, places = dict[str, Entry](), list[tuple[int, int]]()
    for name, told in head.items():
        dtype, shape, begin, end = _entry(name, told, sender)
        if end - begin != math.prod(shape) * dtype.itemsize:
            raise _none(sender, f"'{shown(name)}' is not as long as its shape says")
        found[name] = (dtype, shape)
        places.append((begin, end))
    here = 0
    for begin, end in sorted(places):
        if begin != here:
            raise _none(sender, "tensors overlap, or bytes belong to none")
        here = end
    if here != body:
        raise _none(sender, f"{body:,} bytes of values, and its header speaks of {here:,}")
    return found


def _entry(name: str, told: Any, sender: str) -> tuple[torch.dtype, tuple[int, ...], int, int]:
    """Type, shape, begin and end, as a header has them of one tensor."""
    if not isinstance(told, dict) or told.keys() != KEYS:
        raise _none(sender, f"'{shown(name)}' is not described by type, shape and place")
    dtype = DTYPES.get(told["dtype"]) if isinstance(told["dtype"], str) else None
    if dtype is None:
        raise _none(sender, f"'{shown(name)}' is of a type that is not known, {shown(told['dtype'])}")
    shape, place = _numbers(told["shape"]), _numbers(told["data_offsets"])
    if shape is None or place is None or len(place) != 2 or len(shape) > AXES:
        raise _none(sender, f"shape or place of '{shown(name)}' are no lengths")
    return dtype, shape, place[0], place[1]


def _numbers(told: Any) -> tuple[int, ...] | None:
    """Whole numbers from 0 upwards; None where it is anything else."""
    if isinstance(told, list) and all(type(n) is int and 0 <= n <= LONGEST for n in told):
        return tuple(told)
    return None


def _notes(told: Any, sender: str) -> dict[str, str]:
    if isinstance(told, dict) and all(isinstance(note, str) for note in told.values()):
        return told
    raise _none(sender, "its notes are no texts by name")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object in which no key stands twice: two readers would take each another value."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name twice")
    return found


def _none(sender: str, what: str) -> BadInput:
    return BadInput(sender, f"not a message ({what})", "send safetensors bytes")


def _too_long(sender: str, where: str, length: int, most: int) -> BadInput:
    what = f"{length:,} bytes{where}, where {most:,} are the most"
    return BadInput(sender, what, "send what the schema declares")
