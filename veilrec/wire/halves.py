"""Halves: what passes between a server and a fleet that run apart, as bytes: letters down, folds up."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence

import torch
from torch import Tensor

from veilrec.base.params import Message, Params, Rows, under
from veilrec.errors import BadInput
from veilrec.model import Recommender
from veilrec.protocol import Protocol
from veilrec.wire import codec
from veilrec.wire.codec import Schema, Spec
from veilrec.wire.uploads import EACH, Exchange, Fold, Letter, Posts, Uploads

__all__ = [
    "exchange_bytes",
    "exchange_of",
    "fingerprint",
    "fold_bytes",
    "fold_of",
    "letter_bytes",
    "letter_of",
    "notes",
    "tensors_of",
]

ALL, POSTS, ROUND = "all/", "posts/", "round"
PARTIAL, SEEN = "partial/", "seen/"
ROW = {"clients": "row/clients", "loss": "row/loss"}
OWNER, GROUPS = "posts/owner", "groups"
COHORT, VALUE, SUM, COUNT, ROW_OF = "cohort", "value/", "sum/", "count/", "row/"


def notes(run: str = "", recipe: str = "", missed: Sequence[int] = ()) -> dict[str, str]:
    """Notes that go with a letter, beside its message; those that are empty are left out.

    Args:
        run: The name of the run.
        recipe: The text of its recipe, of which the letter carries a hash.
        missed: Rounds whose answer did not count. Devices and fleets here go on from what they have: it is
            there for whoever runs them.
    """
    told = {"run": run, "recipe": fingerprint(recipe), "missed": " ".join(map(str, missed))}
    return {name: note for name, note in told.items() if note}


def fingerprint(recipe: str) -> str:
    """A hash of a recipe's text; empty where there is none."""
    return hashlib.sha256(recipe.encode()).hexdigest() if recipe else ""


def letter_bytes(letter: Letter, notes: Mapping[str, str] | None = None) -> bytes:
    """A letter to many devices, and the notes that go with it."""
    flat: Message = {ROUND: torch.tensor(letter.round)}
    for prefix, params in ((ALL, letter.all), (EACH, letter.each), (POSTS, letter.posts)):
        flat |= {prefix + name: value for name, value in params.items()}
    return codec.encode(flat, notes)


def letter_of(data: bytes, mine: Mapping[str, str] | None = None) -> Letter:
    """The reverse of `letter_bytes`; `mine` are the notes of the run that the reader takes part in.

    Raises:
        BadInput: Where the bytes are no letter, or that of another run or recipe.
    """
    told, known = codec.notes_of(data), mine or {}
    for name in ("run", "recipe"):
        if name in known and told.get(name, known[name]) != known[name]:
            raise BadInput("letter", f"of another {name}", "send it to the fleet that runs that one")
    flat = tensors_of(codec.decode(data, {ROUND: Spec((), torch.int64)}, sender="letter", rest=True))
    return Letter(under(flat, ALL), under(flat, EACH), under(flat, POSTS), int(flat[ROUND]))


def fold_bytes(fold: Fold, schema: Schema) -> bytes:
    """The fold of a round: of tables that are declared row by row, the rows that are not zero."""
    flat: Message = {PARTIAL + name: _sparse(value, schema[name]) for name, value in fold.partial.items()}
    flat |= {ROW[name]: torch.tensor(float(fold.row[name]), dtype=torch.float64) for name in ROW}
    flat[GROUPS] = torch.tensor(fold.groups, dtype=torch.int64)
    flat[OWNER] = fold.posts.owner
    flat |= {POSTS + name: value for name, value in fold.posts.values.items()}
    for tag, found in fold.seen.items():
        flat |= {f"{SEEN}{tag}/{name}": value for name, value in found.items()}
    return codec.encode(flat)


def fold_of(data: bytes, protocol: Protocol, model: Recommender, letter: Letter, posts: Schema) -> Fold:
    """The reverse of `fold_bytes`, checked against what may be in the answer to a letter.

    Args:
        data: The bytes.
        protocol, model: Whose `partial_schema` they are held against.
        letter: What they answer.
        posts: What one user may post.

    Raises:
        BadInput: Where something in them is not declared, or is not what it should be.
    """
    declared, told = protocol.partial_schema(model, letter), codec.names_of(data)
    schema = {PARTIAL + name: spec for name, spec in declared.items() if PARTIAL + name in told}
    schema |= {name: Spec((), torch.float64, kind="count") for name in ROW.values()}
    found = codec.decode(data, schema, sender="fold", rest=True)
    partial = _partial(found, declared, dense=protocol.partial_is_sum)
    rest = tensors_of({name: value for name, value in found.items() if not name.startswith(PARTIAL)})
    values = {name: value for name, value in under(rest, POSTS).items() if POSTS + name != OWNER}
    if values:
        codec.check({**values}, posts, lead=(len(rest[OWNER]),), sender="post")
    row = {name: float(rest[place]) for name, place in ROW.items()}
    return Fold(partial, Posts(rest[OWNER], values), row, _seen(rest), tuple(rest[GROUPS].tolist()))


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


def exchange_of(data: bytes, cohort: Tensor, letter: Letter, schema: Schema) -> Exchange:
    """The reverse of `exchange_bytes`, for a chunk of those ``[c]``, ascending, that a letter is for."""
    flat = tensors_of(codec.decode(data, {}, sender="exchange", rest=True))
    rows = under(flat, ROW_OF)
    values: Message = {n: Rows(rows[n], v) if n in rows else v for n, v in under(flat, VALUE).items()}
    posts = {name: value for name, value in under(flat, POSTS).items() if POSTS + name != OWNER}
    received = Uploads(
        flat[COHORT], values, Posts(flat[OWNER], posts), sums=under(flat, SUM), rows=under(flat, COUNT)
    )
    sent = letter.only(torch.searchsorted(cohort, flat[COHORT]))
    return Exchange(letter.round + 1, sent, received, schema)


def _partial(found: Message, declared: Schema, *, dense: bool) -> Message:
    """The protocol's own part of a fold; of sums, whole tables."""
    partial = under(found, PARTIAL)
    if odd := partial.keys() - declared.keys():
        raise BadInput("fold", f"undeclared {sorted(odd)[0]!r}", "send only what the protocol declares")
    return {name: _dense(value, declared[name]) for name, value in partial.items()} if dense else partial


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


def _dense(value: Tensor | Rows, spec: Spec) -> Tensor | Rows:
    """The reverse: rows of a sum that did not travel are zero."""
    if not isinstance(value, Rows) or spec.table is None:
        return value
    wide = value.value.new_zeros(spec.table, *spec.shape)
    return wide.index_copy_(0, value.row, value.value)


def tensors_of(message: Message) -> Params:
    """A message without its tables of which only some rows travel."""
    return {name: value for name, value in message.items() if isinstance(value, Tensor)}
