"""Letters to one device: made by whoever has the server, read and judged by the device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch

from veilrec.base.defaults import own_defaults
from veilrec.base.params import Message, under
from veilrec.base.tensors import hashed
from veilrec.engine.fleet import Fleet
from veilrec.errors import BadInput
from veilrec.protocol import State
from veilrec.rounds import Federation
from veilrec.wire import codec
from veilrec.wire.codec import Spec
from veilrec.wire.frame import Limits, framed
from veilrec.wire.halves import many, tensors_of
from veilrec.wire.notes import LONGEST, Notes, notes
from veilrec.wire.uploads import EACH, Letter

__all__ = ["Letterbox", "Received", "letter"]

POST = "post/"  # before the names of what consenting users have posted


@own_defaults()
def letter(
    federation: Federation,
    state: State,
    client: int,
    *,
    run: str = "",
    recipe: str = "",
    missed: Sequence[int] = (),
    attempt: int = 1,
) -> bytes:
    """Encode what the server sends to a device of the coming round, posts included.

    Args:
        federation, state: The server's.
        client: To whom.
        run: The name of the run: a device answers one run alone.
        recipe: The text of its recipe, of which the letter carries a hash.
        missed: Rounds before this one, counted from 1, in which this client's answer did not count; the
            device goes on from what it has, and its ledger says that they were for nothing.
        attempt: How often this round was begun; the same letter under another one gets the same answer.
    """
    sent = federation.letter(state, torch.tensor([client]))
    message: Message = {**sent.all, **{EACH + name: value[0] for name, value in sent.each.items()}}
    message |= {POST + name: value for name, value in sent.posts.items()}
    round = torch.tensor(sent.round, dtype=torch.int32)
    return codec.encode({**message, "round": round}, notes(run, recipe, missed, attempt))


class Received(NamedTuple):
    """A letter that was read.

    Attributes:
        letter: What a fleet is given.
        notes: What goes with it.
        hash: Of its message: the same for the same letter, whatever its attempt.
    """

    letter: Letter
    notes: Notes
    hash: bytes


@dataclass(frozen=True)
class Letterbox:
    """A letterbox: it reads the letters to one device.

    Attributes:
        fleet: The device.
        people: How many users there are, of whom each may post.
        rounds: How many rounds there will be at most.
    """

    fleet: Fleet
    people: int
    rounds: int

    @property
    def longest(self) -> int:
        """The bytes of the longest letter that is read."""
        return self._limits.whole

    def read(self, data: bytes, *, asks: bool = False) -> Received:
        """A letter of a round that may come, or with `asks` of one after the last, as well.

        Raises:
            BadInput: Where it is not what the protocol and the defence declare.
        """
        frame = framed(data, self._limits)
        told = Notes.of(frame.notes, "message")
        posts = [POST + name for name in self.fleet.announced if POST + name in frame.entries]
        n = frame.axis(posts[0]) if posts else 0
        if posts and not 0 < n <= self.people:
            raise BadInput("message", f"{n:,} posts of {self.people:,} users", "send the latest of each")
        found = tensors_of(codec.decode(data, self._schema(n), notes=LONGEST))
        mark, round = hashed(found), int(found.pop("round"))
        if round >= self.rounds + asks:
            what = f"of round {round + 1}, and there are {self.rounds}"
            raise BadInput("message", what, "send one of a round that the recipe has")
        if any(not 0 < one <= round for one in told.missed):
            what = "speaks of answers that did not count, in rounds that were not before it"
            raise BadInput("message", what, "leave them out")
        each = {name: value[None] for name, value in under(found, EACH).items()}
        common = {name: value for name, value in found.items() if not name.startswith((POST, EACH))}
        return Received(Letter(common, each, under(found, POST), round), told, mark)

    def _schema(self, posts: int) -> dict[str, Spec]:
        """The schema of a letter with so many posts."""
        sheet, posted = self.fleet.form
        return {**sheet, **many(posted, posts, POST)} if posts else {**sheet}

    @cached_property
    def _limits(self) -> Limits:
        return codec.limits_of(self._schema(self.people), LONGEST)
