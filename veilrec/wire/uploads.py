"""Uploads: what the server sees, and all that it sees."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from veilrec.base.params import Message, Params

__all__ = ["Exchange", "Posts", "Sent", "Uploads"]


class Sent(NamedTuple):
    """Server → devices."""

    all: Params  # the same for everyone, without a client axis
    each: Params  # client axis first


class Posts(NamedTuple):
    """What consenting users have posted openly: the latest of each."""

    owner: Tensor  # [posts] client times seats plus seat
    values: Params  # name → [posts, …]

    @classmethod
    def none(cls, device: str | torch.device = "cpu") -> Posts:
        """Nobody has posted anything."""
        return cls(torch.zeros(0, dtype=torch.int64, device=device), {})

    def merge(self, newer: Posts) -> Posts:
        """Both, where a later post replaces the same owner's earlier one; ordered by owner."""
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
    """What one chunk of a cohort sends in one round, after every defence has had its say.

    Attributes:
        cohort: ``[c]`` client ids.
        values: By name, client axis first. A part whose rows are items is `Rows`: only what was touched.
        examples: ``[c]`` how much data stands behind each upload, where the protocol reads it; else None.
        posts: What consenting users of this chunk posted openly.
        loss: ``[c]`` mean training loss. It stays on the devices: for progress bars, never for attacks.
        sums: Of weights that nobody looks at one by one, the sum over the chunk in place of `values`. A
            deployed device sends its own like all others: it is the simulation that saves the copies.
    """

    cohort: Tensor
    values: Message
    examples: Tensor | None = None
    posts: Posts = field(default_factory=Posts.none)
    loss: Tensor | None = None
    sums: Params = field(default_factory=dict)

    @property
    def message(self) -> Message:
        """All that travels under a name of the schema, but for sums."""
        return self.values if self.examples is None else {**self.values, "examples": self.examples}


@dataclass(frozen=True)
class Exchange:
    """One chunk of one round as the server lived it."""

    round: int
    sent: Sent
    received: Uploads
