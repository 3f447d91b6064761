"""Groups: what leaves the devices' side where single uploads do not, as sums over some devices or all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch

from veilrec.base.params import Message
from veilrec.base.plan import Forwards
from veilrec.errors import BadInput
from veilrec.wire import codec
from veilrec.wire.uploads import Uploads

__all__ = ["Groups", "check"]

Fold = Callable[[Message, Uploads], Message]
Merge = Callable[[Message, Message], Message]


@dataclass
class Groups:
    """Folds uploads group by group, in the order in which they come; each group is one message.

    Attributes:
        forwards: How many devices stand behind a message; the last group takes in those that are left over.
        fold, merge: The protocol's.
        partial: All messages that have left, merged.
        sizes: How many devices stood behind each.
    """

    forwards: Forwards
    fold: Fold
    merge: Merge
    partial: Message = field(default_factory=dict)
    sizes: list[int] = field(default_factory=list)
    _open: Message = field(default_factory=dict)
    _count: int = 0

    def take(self, uploads: Uploads) -> None:
        """The uploads of one chunk."""
        if not isinstance(self.forwards, str):
            self._cut(uploads, self.forwards)
        elif uploads.folded is not None:
            self.partial = self.merge(self.partial, uploads.folded)
        else:  # one by one, or one sum: the server folds what the fleet folds
            self.partial = self.fold(self.partial, uploads)
        if self.forwards == "all":
            self.sizes = [sum(self.sizes) + len(uploads.cohort)]

    def done(self) -> tuple[int, ...]:
        """The end of the round: how many devices stood behind each message; empty for one by one."""
        if self._count:
            self.partial = self.merge(self.partial, self._open)
            self.sizes = [*self.sizes[:-1], sum(self.sizes[-1:]) + self._count]
        return tuple(self.sizes)

    def _cut(self, uploads: Uploads, size: int) -> None:
        """A chunk that came as its fold is in one group, which is the larger for it."""
        if uploads.folded is not None:
            self._open = self.merge(self._open, uploads.folded)
            self._close(len(uploads.cohort), size)
            return
        begin, n = 0, len(uploads.cohort)
        while begin < n:
            end = min(n, begin + size - self._count)
            self._open = self.fold(self._open, some(uploads, begin, end))
            self._close(end - begin, size)
            begin = end

    def _close(self, more: int, size: int) -> None:
        """So many devices are in the open group: where those are enough, it leaves."""
        self._count += more
        if self._count >= size:
            self.partial = self.merge(self.partial, self._open)
            self.sizes.append(self._count)
            self._open, self._count = {}, 0


def check(forwards: Forwards, devices: int, who: str = "a round has") -> None:
    """Refuse a group that would be smaller than was promised.

    Raises:
        BadInput: Where there are too few devices; `who` says whose they are.
    """
    least = forwards if isinstance(forwards, int) else 2 if forwards == "all" else 0
    if devices < least:
        what = f"{who} {devices} device{'s' * (devices != 1)}, too few for a sum over {least}"
        raise BadInput("plan.forwards", what, "enlarge plan.cohort or the shards, or sum over fewer")


def some(uploads: Uploads, begin: int, end: int) -> Uploads:
    """The uploads of devices `begin` to `end` of a chunk, without posts and losses."""
    values = codec.one(uploads.values, slice(begin, end))
    none = uploads.posts._replace(owner=torch.zeros(0, dtype=torch.int64), values={})
    return replace(uploads, cohort=uploads.cohort[begin:end], values=values, posts=none, loss=None)
