"""Respond: what devices do between a letter and their message, the one body that everybody runs.

The simulation runs it for chunks of a cohort, a node for a cohort of one; serving runs the first two parts of
it for models that train once more before they score, the ledger the first to count rows. Other bodies may do
the same with other means (compiled lanes, a GPU): they take the same arguments, answer with the same uploads,
or with the protocol's fold of them and how many rows each device sent, and one contract test holds for all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from torch import Tensor

from veilrec.base.keys import Keys
from veilrec.base.params import ROW, Message, Params
from veilrec.clients import Clients
from veilrec.engine import fused, local, outgoing
from veilrec.engine.devices import private_rows
from veilrec.errors import BadInput
from veilrec.examples import Draw, Examples
from veilrec.model import overrides
from veilrec.protocol import Protocol, Trained
from veilrec.wire import codec
from veilrec.wire.codec import Schema
from veilrec.wire.uploads import Letter, Uploads

__all__ = ["Answer", "Chunk", "Failed", "Respond", "drawn", "learned", "respond"]


@dataclass(frozen=True)
class Chunk:
    """Some devices at the beginning of a round.

    Attributes:
        clients: All devices' own data.
        cohort: ``[c]`` which of them, the largest first.
        letter: What they received.
        kept: What they hold, as the store gives it.
        keys: Their own keys for the round, ``[c]``.
        first: Their keys for what they begin with, ``[c]``.
    """

    clients: Clients
    cohort: Tensor
    letter: Letter
    kept: Params
    keys: Keys
    first: Keys


@dataclass(frozen=True)
class Answer:
    """The answer of a chunk of devices: what they send, and what they hold from now on."""

    uploads: Uploads
    kept: Params


Respond = Callable[[local.LocalTask, Chunk, Schema, Schema], Answer]
"""A body: task, chunk, the schema of an upload and that of a post → the answer."""


class Failed(Exception):
    """A chunk that could not do its work."""

    def __init__(self, phase: str, chunk: Tensor, cause: Exception) -> None:
        super().__init__(phase)
        self.phase, self.chunk, self.cause = phase, chunk, cause


def drawn(task: local.LocalTask, chunk: Chunk) -> Examples:
    """Draw the examples that devices read in a round."""
    held = chunk.kept.get(ROW)
    draw = Draw(chunk.clients, chunk.cohort, chunk.keys, task.plan, chunk.letter, held)
    return task.protocol.examples(task.model, draw)


def learned(task: local.LocalTask, chunk: Chunk, examples: Examples) -> tuple[Examples, Trained]:
    """Devices after their local work; the examples come back with the model's summary of absent rows."""
    situation = local.Situation(chunk.letter, chunk.keys)
    examples, own = private_rows.load(task.model, examples, chunk.kept, chunk.first)
    if overrides(task.protocol, Protocol, "learn"):
        trained = task.protocol.learn(task.model, examples, chunk.letter, own, chunk.keys)
    else:
        trained = local.train(task, examples, situation, own)
    if not bool(trained.loss.isfinite().all()):
        raise BadInput("plan.lr", "the training loss is not finite", "lower the learning rate")
    return examples, trained


def respond(task: local.LocalTask, chunk: Chunk, schema: Schema, announced: Schema) -> Answer:
    """The reference body: draw examples, train, upload; nothing here knows other devices.

    Raises:
        Failed: With the phase in which it failed.
    """
    phase = "drawing examples"
    try:
        examples = drawn(task, chunk)
        phase = "training"
        examples, trained = learned(task, chunk, examples)
        phase = "upload"
        uploads = outgoing.upload(task, examples, local.Situation(chunk.letter, chunk.keys), trained)
        fused.check(uploads, schema)
        if uploads.posts.values:
            posts: Message = {**uploads.posts.values}
            codec.check(posts, announced, lead=(len(uploads.posts.owner),), sender="post")
    except Exception as cause:
        raise Failed(phase, chunk.cohort, cause) from cause
    kept = private_rows.save(chunk.kept, examples.known.rows, trained.params | trained.optimiser)
    return Answer(numbered(uploads, chunk.clients), kept)


def numbered(uploads: Uploads, clients: Clients) -> Uploads:
    """The same uploads, with clients and owners of posts as the whole log counts them."""
    seats, owner = clients.n_seats, uploads.posts.owner
    whole = clients.number[owner // seats] * seats + owner % seats
    posts = uploads.posts._replace(owner=whole)
    return replace(uploads, cohort=clients.number[uploads.cohort], posts=posts)
