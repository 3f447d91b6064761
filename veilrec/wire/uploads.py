"""Uploads: what the server sees, and all that it sees; letters: what it sends."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from veilrec.base.params import Message, Params, Rows
from veilrec.wire.codec import Schema

__all__ = ["EACH", "Exchange", "Finder", "Fold", "Letter", "Posts", "Uploads"]

EACH = "each/"  # before the names of what is sent to one device alone


class Letter(NamedTuple):
    """Server → devices, in one round: a part for all and a part for each.

    Attributes:
        all: The same for everyone, without a client axis.
        each: Client axis first, in the order of the cohort that it is for.
        posts: What consenting users have posted so far: the latest of each, in the order of the owners.
        round: How many rounds were done before.
    """

    all: Params
    each: Params
    posts: Params = {}  # noqa: RUF012  # never changed in place
    round: int = 0

    def only(self, place: Tensor) -> Letter:
        """The letter of some devices of its cohort, by their places in it."""
        return self._replace(each={name: value[place] for name, value in self.each.items()})


class Posts(NamedTuple):
    """Posts of consenting users, open to everybody: the latest of each."""

    owner: Tensor  # [posts] number of the client in the whole log, times seats, plus seat
    values: Params  # name → [posts, …]

    @classmethod
    def none(cls, device: str | torch.device = "cpu") -> Posts:
        """No posts at all."""
        return cls(torch.zeros(0, dtype=torch.int64, device=device), {})

    def merge(self, newer: Posts) -> Posts:
        """Merge posts: a later one replaces the same owner's earlier one; ordered by owner."""
        if not len(newer.owner):
            return self
        older = self.owner.to(newer.owner)  # that of `none` may lie elsewhere
        stays = ~torch.isin(older, newer.owner)
        owner = torch.cat([older[stays], newer.owner])
        order = owner.argsort()
        values = {
            name: torch.cat([self.values[name][stays], value])[order] if name in self.values else value[order]
            for name, value in newer.values.items()
        }
        return Posts(owner[order], values)


@dataclass(frozen=True)
class Uploads:
    """Uploads of one chunk of a cohort in one round, after every defence.

    Attributes:
        cohort: ``[c]`` numbers of the clients in the whole log.
        values: By name, client axis first. A part whose rows are items is `Rows`: only what was touched.
        posts: What consenting users of this chunk posted openly.
        loss: ``[c]`` mean training loss. It stays on the devices: for progress bars, never for attacks.
        sums: Of weights that nobody looks at one by one, the sum over the chunk in place of `values`. A
            deployed device sends its own like all others: it is the simulation that saves the copies.
        folded: The protocol's fold of the chunk in place of `values`, from a body of `respond` that folds
            as it goes; `rows` then says what each device sent.
        rows: Table → ``[c]`` how many rows each device sent, where `values` does not say.
    """

    cohort: Tensor
    values: Message
    posts: Posts = field(default_factory=Posts.none)
    loss: Tensor | None = None
    sums: Params = field(default_factory=dict)
    folded: Message | None = None
    rows: Params = field(default_factory=dict)

    def row_counts(self, name: str) -> Tensor:
        """``[c]`` how many rows of a table each device sent."""
        value = self.values.get(name)
        return (value.row >= 0).sum(1) if isinstance(value, Rows) else self.rows[name]


@dataclass(frozen=True)
class Exchange:
    """One chunk of one round, as the server sees it.

    Attributes:
        round: From 1.
        sent: The letter of this chunk.
        received: What came back.
        schema: What one device might upload in answer to that letter.
    """

    round: int
    sent: Letter
    received: Uploads
    schema: Schema = field(default_factory=dict)


@runtime_checkable
class Finder(Protocol):
    """A watch that finds something, where the uploads are: what it found travels by its tag, and adds up.

    A state of zeros has found nothing. One watch of all uploads, and several of some each that are merged, in
    any order, have found the same.
    """

    tag: str

    @property
    def reads(self) -> Collection[str] | None:
        """The names of an upload that it looks at; None for all."""

    def __call__(self, exchange: Exchange) -> None:
        """Look at one chunk of one round."""

    def state(self) -> Params:
        """What it has found so far, as tensors."""

    def restore(self, state: Params) -> None:
        """The reverse of `state`."""

    def merge(self, other: Params) -> None:
        """Add the state of another one, which has seen other uploads."""


@dataclass(frozen=True)
class Fold:
    """A fold: the part of one round that leaves the devices' side for the server.

    Attributes:
        partial: The protocol's own fold of all uploads.
        posts: What was posted in this round.
        row: How many clients took part, and the sum of their losses.
        seen: What watches on the devices' side have found so far, by their tags.
        groups: How many devices stand behind each message that left; empty where uploads leave one by one.
    """

    partial: Message
    posts: Posts
    row: Mapping[str, float]
    seen: Mapping[str, Any] = field(default_factory=dict)
    groups: tuple[int, ...] = ()
