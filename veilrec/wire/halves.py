"""Halves: what passes between a server and a fleet that run apart, as bytes: letters down, folds up."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from veilrec.base.params import Message, Params, Rows, under
from veilrec.errors import BadInput
from veilrec.model import Recommender
from veilrec.protocol import Protocol
from veilrec.wire import codec
from veilrec.wire.codec import Schema, Spec
from veilrec.wire.frame import Frame, framed
from veilrec.wire.notes import LONGEST, Notes
from veilrec.wire.uploads import EACH, Exchange, Fold, Letter, Posts, Uploads

__all__ = [
    "Form",
    "exchange_bytes",
    "exchange_of",
    "fold_bytes",
    "fold_of",
    "letter_bytes",
    "letter_of",
    "many",
    "tensors_of",
]

ALL, POSTS, ROUND = "all/", "posts/", "round"
PARTIAL, SEEN = "partial/", "seen/"
ROW = {"clients": "row/clients", "loss": "row/loss"}
OWNER, GROUPS = "posts/owner", "groups"
COHORT, VALUE, SUM, COUNT, ROW_OF = "cohort", "value/", "sum/", "count/", "row/"


class Form(NamedTuple):
    """The form of letters to the devices of a fleet.

    Attributes:
        sheet: What a letter holds for one device, as `Protocol.letter` says it.
        posts: What one user may post.
    """

    sheet: Schema
    posts: Schema

    def schema(self, frame: Frame) -> Schema:
        """The schema of a letter to as many devices, with as many posts, as its header speaks of."""
        found = {ROUND: Spec((), torch.int64, kind="count")}
        for name, spec in self.sheet.items():
            if name.startswith(EACH):
                found |= many({name: spec}, frame.axis(name))
            elif name != ROUND:
                found[ALL + name] = spec
        return found | _posted(self.posts, frame)


def many(schema: Schema, n: int, prefix: str = "") -> dict[str, Spec]:
    """A schema of the same entries for so many, as one tensor each with an axis in front."""
    return {prefix + name: spec._replace(shape=(n, *spec.shape)) for name, spec in schema.items()}


def _posted(posts: Schema, frame: Frame) -> dict[str, Spec]:
    """The schema of as many posts as a header speaks of: each of them whole, or none at all."""
    first = next((POSTS + name for name in posts if POSTS + name in frame.entries), "")
    return many(posts, frame.axis(first), POSTS) if first else {}


def letter_bytes(letter: Letter, notes: Mapping[str, str] | None = None) -> bytes:
    """A letter to many devices, and the notes that go with it."""
    flat: Message = {ROUND: torch.tensor(letter.round)}
    for prefix, params in ((ALL, letter.all), (EACH, letter.each), (POSTS, letter.posts)):
        flat |= {prefix + name: value for name, value in params.items()}
    return codec.encode(flat, notes)


def letter_of(data: bytes, form: Form, mine: Mapping[str, str] | None = None) -> Letter:
    """The reverse of `letter_bytes`, checked; `mine` are the notes of the run that the reader takes part in.

    Raises:
        BadInput: Where the bytes are no such letter, or that of another run or recipe.
    """
    frame, known = framed(data, sender="letter"), mine or {}
    Notes.of(frame.notes)
    for name in ("run", "recipe"):
        if name in known and frame.notes.get(name, known[name]) != known[name]:
            raise BadInput("letter", f"of another {name}", "send it to the fleet that runs that one")
    flat = tensors_of(codec.decode(data, form.schema(frame), sender="letter", notes=LONGEST))
    if len({len(value) for value in under(flat, EACH).values()}) > 1:
        raise BadInput("letter", "speaks to several numbers of devices at once", "send one part to each")
    return Letter(under(flat, ALL), under(flat, EACH), under(flat, POSTS), int(flat[ROUND]))


def fold_bytes(fold: Fold, schema: Schema) -> bytes:
    """The fold of a round: of tables that are declared row by row, the rows that are not zero."""
    flat: Message = {PARTIAL + name: _sparse(value, schema[name]) for name, value in fold.partial.items()}
    flat |= {place: torch.tensor(float(fold.row[name]), dtype=torch.float64) for name, place in ROW.items()}
    flat[GROUPS] = torch.tensor(fold.groups, dtype=torch.int64)
    flat[OWNER] = fold.posts.owner
    flat |= {POSTS + name: value for name, value in fold.posts.values.items()}
    for tag, found in fold.seen.items():
        flat |= {f"{SEEN}{tag}/{name}": value for name, value in found.items()}
    return codec.encode(flat)


def fold_of(
    data: bytes,
    protocol: Protocol,
    model: Recommender,
    letter: Letter,
    posts: Schema,
    seen: Mapping[str, Params] | None = None,
) -> Fold:
    """The reverse of `fold_bytes`, checked against what may be in the answer to a letter.

    Args:
        data: The bytes.
        protocol, model: Whose `partial_schema` they are held against.
        letter: What they answer.
        posts: What one user may post.
        seen: What watches here have found, by their tags: those of the sender find as much.

    Raises:
        BadInput: Where something in them is not declared, or is not what it should be.
    """
    frame = framed(data, sender="fold")
    declared = protocol.partial_schema(model, letter)
    partial = {PARTIAL + name: spec for name, spec in declared.items()}
    schema = {**partial, **_posted(posts, frame), **_found(seen or {})}
    schema |= {place: Spec((), torch.float64) for place in ROW.values()}
    schema |= {name: Spec((frame.axis(name),), torch.int64, kind="count") for name in (OWNER, GROUPS)}
    found = codec.decode(data, schema, sender="fold", optional=partial)
    rest = tensors_of(found)
    values = {name: value for name, value in under(rest, POSTS).items() if POSTS + name != OWNER}
    _one_owner_each(rest[OWNER], values)
    row = {name: float(rest[place]) for name, place in ROW.items()}
    sums = _dense(under(found, PARTIAL), declared) if protocol.partial_is_sum else under(found, PARTIAL)
    return Fold(sums, Posts(rest[OWNER], values), row, _seen(rest), tuple(rest[GROUPS].tolist()))


def _found(seen: Mapping[str, Params]) -> dict[str, Spec]:
    """The schema of what watches find, which add up: counters of the same shape everywhere."""
    each = {f"{SEEN}{tag}/{name}": value for tag, found in seen.items() for name, value in found.items()}
    return {name: Spec(tuple(value.shape), value.dtype) for name, value in each.items()}


def _one_owner_each(owner: Tensor, posts: Params) -> None:
    if any(len(value) != len(owner) for value in posts.values()):
        raise BadInput("post", f"not as many as their {len(owner)} owners", "send each with its owner")


def exchange_bytes(exchange: Exchange, read: Collection[str] | None) -> bytes:
    """One chunk of a round for watches in another process: the values that any of them reads (None for all),
    and how many rows of a table each device sent. Losses stay where they are.
    """
    received = exchange.received
    flat: Params = {COHORT: received.cohort, OWNER: received.posts.owner}
    flat |= {POSTS + name: value for name, value in received.posts.values.items()}
    tables = [name for name, spec in exchange.schema.items() if spec.table is not None]
    flat |= {COUNT + name: received.row_counts(name) for name in tables}
    for name, value in received.values.items():
        if read is not None and name not in read:
            continue
        flat[VALUE + name] = value.value if isinstance(value, Rows) else value
        if isinstance(value, Rows):
            flat[ROW_OF + name] = value.row
    flat |= {SUM + name: value for name, value in received.sums.items() if read is None or name in read}
    return codec.encode({**flat})


def exchange_of(data: bytes, cohort: Tensor, letter: Letter, schema: Schema, posts: Schema) -> Exchange:
    """The reverse of `exchange_bytes`, for a chunk of those ``[c]``, ascending, that a letter is for.

    Raises:
        BadInput: Where something in it is not in the schema of an upload or a post, or of somebody else.
    """
    frame = framed(data, sender="exchange")
    flat = tensors_of(codec.decode(data, _exchanged(frame, schema, posts), sender="exchange"))
    if not bool(torch.isin(flat[COHORT], cohort).all()):
        raise BadInput("exchange", "of a client that was not asked", "answer for the cohort of the letter")
    rows, held = under(flat, ROW_OF), under(flat, VALUE)
    values: Message = {n: Rows(rows[n], v) if n in rows else v for n, v in held.items()}
    codec.check(values, {name: schema[name] for name in held}, lead=(len(flat[COHORT]),), sender="exchange")
    told = {name: value for name, value in under(flat, POSTS).items() if POSTS + name != OWNER}
    _one_owner_each(flat[OWNER], told)
    received = Uploads(
        flat[COHORT], values, Posts(flat[OWNER], told), sums=under(flat, SUM), rows=under(flat, COUNT)
    )
    sent = letter.only(torch.searchsorted(cohort, flat[COHORT]))
    return Exchange(letter.round + 1, sent, received, schema)


def _exchanged(frame: Frame, schema: Schema, posts: Schema) -> dict[str, Spec]:
    """The schema of a chunk, of as many clients and of those values that its header speaks of."""
    clients = frame.axis(COHORT)
    found = {COHORT: Spec((clients,), torch.int64, kind="count")}
    found[OWNER] = Spec((frame.axis(OWNER),), torch.int64, kind="count")
    found |= _posted(posts, frame)
    for name, spec in schema.items():
        if spec.table is not None:
            found[COUNT + name] = Spec((clients,), torch.int64, kind="count")
        if SUM + name in frame.entries:
            found[SUM + name] = spec
        if VALUE + name not in frame.entries:
            continue
        wide: tuple[int, ...] = (clients,)
        if spec.table is not None:  # rows are padded to the longest
            wide = (clients, *frame.entries[VALUE + name][1][1:2])
            found[ROW_OF + name] = Spec(wide, torch.int64, kind="items", below=spec.table)
        found[VALUE + name] = spec._replace(shape=(*wide, *spec.shape), table=None)
    return found


def _seen(rest: Params) -> dict[str, Params]:
    """Findings of watches, by their tags."""
    tags = {name.split("/")[1] for name in rest if name.startswith(SEEN)}
    return {tag: under(rest, f"{SEEN}{tag}/") for tag in sorted(tags)}


def _sparse(value: Tensor | Rows, spec: Spec) -> Tensor | Rows:
    """A dense table as the rows of it that are not zero, where rows are declared."""
    if isinstance(value, Rows) or spec.table is None:
        return value
    row = value.reshape(len(value), -1).any(1).nonzero().squeeze(1)
    return Rows(row, value[row])


def _dense(partial: Message, declared: Schema) -> Message:
    """The reverse, of a whole partial: rows of a sum that did not travel are zero."""
    return {name: _whole(value, declared[name]) for name, value in partial.items()}


def _whole(value: Tensor | Rows, spec: Spec) -> Tensor | Rows:
    if not isinstance(value, Rows) or spec.table is None:
        return value
    wide = value.value.new_zeros(spec.table, *spec.shape)
    return wide.index_copy_(0, value.row, value.value)


def tensors_of(message: Message) -> Params:
    """A message without its tables of which only some rows travel."""
    return {name: value for name, value in message.items() if isinstance(value, Tensor)}
