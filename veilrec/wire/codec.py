"""One message is safetensors bytes, checked against the schema that its method declares."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Literal, NamedTuple

import torch
from safetensors.torch import load, save
from torch import Tensor

from veilrec.base.params import Message, Params, Rows
from veilrec.base.tensors import NAMES, Entry, header
from veilrec.errors import BadInput
from veilrec.wire.frame import OPEN, Frame, Limits, framed, limits, shown

__all__ = [
    "Kind",
    "Schema",
    "Spec",
    "check",
    "decode",
    "encode",
    "limits_of",
    "one",
    "size",
    "weights",
    "within",
]

ROWS = "#rows"  # the name under which the row numbers of a table travel
ORDER = list(NAMES)  # in which tensors are laid out, and by name


Kind = Literal["weight", "gradient", "count", "sum", "items", "labels"]


class Spec(NamedTuple):
    """A specification: the numbers that may travel under a name.

    Attributes:
        shape: Of one device's tensor; of one row where `table` is given.
        table: How many rows the table has, if only some of them travel.
        kind: What the value is: a weight of the model as it is, a gradient of one, how many of something, a
            sum over users, items (their numbers, -1 for none), or soft labels from 0 to 1. What users post
            has a schema of its own.
        below: Of items and of classes: their numbers are smaller than this, and -1 stands for none.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype = torch.float32
    table: int | None = None
    kind: Kind = "weight"
    below: int | None = None


Schema = Mapping[str, Spec]


def encode(message: Message, notes: Mapping[str, str] | None = None) -> bytes:
    """One device's message as bytes: values, and the numbers of the rows that are meant as int32.

    What `notes` say goes into the header, beside the message and not part of it.
    """
    flat: Params = {}
    for name, value in message.items():
        if isinstance(value, Rows):
            meant = value.row >= 0
            flat[name + ROWS] = value.row[meant].to(torch.int32).cpu().contiguous()
            flat[name] = value.value[meant].cpu().contiguous()
        else:
            flat[name] = value.detach().cpu().contiguous()
    return bytes(save(flat, dict(notes) if notes else None))


def decode(
    data: bytes,
    schema: Schema,
    *,
    sender: str = "message",
    notes: Mapping[str, int] | None = None,
    optional: Collection[str] = (),
    rest: bool = False,
) -> Message:
    """A message from its bytes; whatever the schema does not declare is refused, before any value is read.

    Args:
        data: The bytes.
        schema: What may come under which name.
        sender: Who is blamed.
        notes: The longest text of each note that may come beside the message; other notes are refused.
        optional: Names of the schema that may be missing.
        rest: Whether names may come that the schema does not have, with values of any shape, and any notes:
            between processes of one run.

    Raises:
        BadInput: Where the bytes are not such a message.
    """
    frame = framed(data, OPEN if rest else limits_of(schema, notes), sender=sender)
    there = {name: spec for name, spec in schema.items() if name in frame.entries or name not in optional}
    if not rest:
        _expect_notes(frame, notes or {}, sender)
    _expect(frame, there, sender, rest=rest)
    try:
        flat = load(data)
    except Exception as cause:  # whatever the reader stumbles over, it is the message that is at fault
        what = f"{type(cause).__name__}: {shown(cause)}"
        raise BadInput(sender, f"not a message ({what})", "send safetensors bytes") from cause
    if odd := [n for n, v in flat.items() if v.dtype is torch.bool and bool((v.view(torch.uint8) > 1).any())]:
        raise BadInput(sender, f"'{shown(odd[0])}' is neither true nor false", "send 0 or 1")
    message: Message = {}
    for name, spec in there.items():
        value = flat.pop(name)
        message[name] = (
            value if spec.table is None else Rows(_numbers(flat.pop(name + ROWS), name, sender), value)
        )
    check(message, there, sender=sender)
    return {**message, **flat}


def limits_of(schema: Schema, notes: Mapping[str, int] | None = None) -> Limits:
    """The most bytes that a message of a schema takes, with every row of its tables, and its notes."""
    return limits(_entries(schema, {name: spec.table or 0 for name, spec in schema.items()}), notes)


def _expect_notes(frame: Frame, notes: Mapping[str, int], sender: str) -> None:
    for name, note in frame.notes.items():
        if len(note) > notes.get(name, -1):
            raise BadInput(sender, f"a note '{shown(name)}' of {len(note):,} letters", "leave it out")


def _expect(frame: Frame, schema: Schema, sender: str, *, rest: bool) -> None:
    """Refuse a frame whose names, types or shapes are not those of a schema."""
    entries, wanted = frame.entries, dict[str, Spec]()
    for name, spec in schema.items():
        wanted[name] = spec
        if spec.table is not None:
            wanted[name + ROWS] = Spec((), torch.int32, spec.table)
    if not rest and (odd := entries.keys() - wanted.keys()):
        raise BadInput(sender, f"undeclared '{shown(min(odd))}'", "send only what the schema declares")
    if missing := wanted.keys() - entries.keys():
        raise BadInput(sender, f"lacks {sorted(missing)[0]!r}", "send what the schema declares")
    for name, spec in wanted.items():
        dtype, shape = entries[name]
        rows = shape[:1] if spec.table is not None else ()
        if shape != (*rows, *spec.shape) or (spec.table is not None and sum(rows) > spec.table):
            raise BadInput(sender, f"{name!r} has shape {shown(list(shape))}", f"declared is {spec}")
        if dtype != spec.dtype:
            raise BadInput(sender, f"{name!r} is {dtype}", f"declared is {spec.dtype}")


def check(message: Message, schema: Schema, *, lead: tuple[int, ...] = (), sender: str = "upload") -> None:
    """Refuse a message that is not what its schema says; `lead` are axes in front, e.g. the clients'."""
    if message.keys() != schema.keys():
        odd = sorted(message.keys() ^ schema.keys())[0]
        what = "undeclared" if odd in message else "missing"
        raise BadInput(sender, f"{what} part {odd!r}", "send exactly what the schema declares")
    for name, spec in schema.items():
        value = message[name]
        tensor = value.value if isinstance(value, Rows) else value
        rows = value.row.shape[len(lead) :] if isinstance(value, Rows) else ()
        if isinstance(value, Rows) != (spec.table is not None) or tensor.shape != (*lead, *rows, *spec.shape):
            raise BadInput(sender, f"{name!r} has shape {list(tensor.shape)}", f"declared is {spec}")
        if tensor.dtype != spec.dtype:
            raise BadInput(sender, f"{name!r} is {tensor.dtype}", f"declared is {spec.dtype}")
        if isinstance(value, Rows) and spec.table is not None:
            _check_rows(value.row, spec.table, name, sender)
        if tensor.is_floating_point() and not bool(tensor.sum().isfinite()):
            raise BadInput(sender, f"{name!r} holds a value that is not finite", "lower the learning rate")
        _check_range(tensor, spec, name, sender)


def _check_range(tensor: Tensor, spec: Spec, name: str, sender: str) -> None:
    """Refuse numbers of items or classes that are not known, counts below 0, soft labels that are none."""
    if spec.below is not None and not bool(((tensor >= -1) & (tensor < spec.below)).all()):
        what = f"{name!r} has a number beyond {spec.below - 1}"
        raise BadInput(sender, what, "send those of known items or classes, and -1 for none")
    if spec.kind == "count" and not bool((tensor >= 0).all()):
        raise BadInput(sender, f"{name!r} counts less than nothing", "send 0 or more")
    if spec.kind == "labels" and not bool(((tensor >= 0) & (tensor <= 1)).all()):
        raise BadInput(sender, f"{name!r} has soft labels that are no shares", "send numbers from 0 to 1")


def within(schema: Schema, most: Schema) -> None:
    """Refuse a schema that holds more than another: a name, a kind or dtype, or values beyond it."""
    for name, spec in schema.items():
        known = most.get(name)
        if known is None or not _fits(spec, known):
            what = f"a letter asks for {name!r} as {spec}, and declared without one is {known}"
            raise BadInput("schema", what, "list in `schema` without a letter the most that may come")


def _fits(spec: Spec, most: Spec) -> bool:
    same = (spec.kind, spec.dtype, spec.table is None) == (most.kind, most.dtype, most.table is None)
    return same and math.prod(spec.shape) <= math.prod(most.shape) and (spec.table or 0) <= (most.table or 0)


def _numbers(row: Tensor, name: str, sender: str) -> Tensor:
    """Row numbers as they came over the wire, where padding does not travel."""
    if row.dtype != torch.int32 or row.dim() != 1 or bool((row < 0).any()):
        raise BadInput(
            sender, f"rows of {name!r} are not a list of numbers from 0 upwards", "send int32 numbers"
        )
    return row.long()


def _check_rows(row: Tensor, table: int, name: str, sender: str) -> None:
    inside = bool(((row >= -1) & (row < table)).all())
    before, after = row[..., :-1], row[..., 1:]
    ascending = bool((((before >= 0) & (after > before)) | (after < 0)).all())  # padding only at the end
    if not (inside and ascending):
        raise BadInput(
            sender, f"rows of {name!r} are not ascending numbers below {table}", "send each row once"
        )


def weights(schema: Schema) -> dict[str, Spec]:
    """The entries that are weights of the model, or their gradients."""
    return {name: spec for name, spec in schema.items() if spec.kind in ("weight", "gradient")}


def one(message: Message, k: int | slice) -> Message:
    """The message of client `k` of a cohort, or those of some clients."""
    return {n: Rows(v.row[k], v.value[k]) if isinstance(v, Rows) else v[k] for n, v in message.items()}


def size(schema: Schema, rows: Mapping[str, int]) -> int:
    """The number of bytes that `encode` makes of a message, given how many rows of each table travel."""
    entries = _entries(schema, rows)
    return _size(tuple(sorted(entries, key=lambda entry: (ORDER.index(entry[1][0]), entry[0]))))


def _entries(schema: Schema, rows: Mapping[str, int]) -> list[tuple[str, Entry]]:
    """Names, types and shapes in the bytes of a message, given how many rows of each table travel."""
    entries: list[tuple[str, Entry]] = []
    for name, spec in schema.items():
        if spec.table is None:
            entries.append((name, (spec.dtype, spec.shape)))
        else:
            entries.append((name, (spec.dtype, (rows[name], *spec.shape))))
            entries.append((name + ROWS, (torch.int32, (rows[name],))))
    return entries


@lru_cache(maxsize=65536)
def _size(entries: tuple[tuple[str, Entry], ...]) -> int:
    head, body = header(entries)
    return len(head) + body
