"""Shards: several fleets as one, each with devices of its own; what passes between them is bytes.

It is the reference for fleets on several processes or machines, and does in one process what those do: each
shard has the log of its own users alone, answers a letter with its fold, and the folds are merged.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path

import torch
from torch import Tensor

from veilrec.base.keys import Keys
from veilrec.base.params import Message
from veilrec.engine.evaluation import Evaluation, Scored
from veilrec.engine.fleet import ONE_BY_ONE, Fleet, Terms
from veilrec.engine.in_process import BLOCK, InProcess
from veilrec.eraser import VectorEraser
from veilrec.protocol import Counterpart
from veilrec.wire.halves import fold_bytes, fold_of, letter_bytes, letter_of
from veilrec.wire.uploads import Exchange, Fold, Letter, Posts

__all__ = ["Shards"]


@dataclass(kw_only=True)
class Shards(Fleet):
    """Several fleets that together hold all clients, each client once. Make them with `Shards.of`.

    Attributes:
        whole: A fleet of all clients, whose devices stay empty until `gather`.
        fleets: The shards.
        order: In which their folds are merged.
        bytes_up: How long the folds of the last round were.
    """

    whole: InProcess
    fleets: Sequence[InProcess]
    order: Sequence[int] = ()
    bytes_up: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, whole: InProcess, parts: Sequence[Tensor], order: Sequence[int] = ()) -> Shards:
        """The clients of a fleet dealt to several, so many ``[c]`` to each, ascending."""
        common = {one.name: getattr(whole, one.name) for one in fields(Fleet)}
        return cls(**common, whole=whole, fleets=[whole.shard(part) for part in parts], order=order)

    def begin(self, folder: Path | None = None) -> None:
        for place, fleet in enumerate(self.fleets):
            fleet.begin(None if folder is None else folder / str(place))

    def round(self, letter: Letter, cohort: Tensor, terms: Terms = ONE_BY_ONE) -> Fold:
        folds, self.bytes_up = [], []
        for fleet, sent, mine in self._sent(letter, cohort):
            folds.append(self._carried(fleet, fleet.round(sent, mine, terms), sent))
        return self._merged(folds)

    def _sent(self, letter: Letter, cohort: Tensor) -> Iterator[tuple[InProcess, Letter, Tensor]]:
        """Each shard with clients in a cohort, the letter as it comes out of its bytes, and whom it asks."""
        for place in self.order or range(len(self.fleets)):
            mine = torch.isin(cohort, self.fleets[place].clients.number)
            if bool(mine.any()):
                sent = letter_of(letter_bytes(letter.only(mine.nonzero().squeeze(1))))
                yield self.fleets[place], sent, cohort[mine]

    def _carried(self, fleet: InProcess, fold: Fold, sent: Letter) -> Fold:
        """A fold as it comes out of its bytes."""
        data = fold_bytes(fold, fleet.protocol.partial_schema(fleet.model, sent))
        self.bytes_up.append(len(data))
        return fold_of(data, fleet.protocol, fleet.model, sent, fleet.announced)

    def _merged(self, folds: Sequence[Fold]) -> Fold:
        """One fold of several; what was seen lies with the watches, which all shards share here."""
        partial: Message = {}
        posts, row, groups = Posts.none(), {"clients": 0.0, "loss": 0.0}, list[int]()
        for fold in folds:
            partial = self.protocol.merge(partial, fold.partial)
            posts = posts.merge(fold.posts)
            row = {name: row[name] + fold.row[name] for name in row}
            groups += fold.groups
        return Fold(partial, posts, row, folds[-1].seen if folds else {}, tuple(groups))

    def probe(
        self, letter: Letter, read: Collection[str] | None = None, again: int = 0
    ) -> Iterator[Exchange]:
        for fleet, sent, _ in self._sent(letter, self.roster.able):
            yield from fleet.probe(sent, read, again)

    def evaluate(self, server: Counterpart, which: str = "test", judge: Evaluation | None = None) -> Scored:
        found = [fleet.evaluate(server, which, judge) for fleet in self.fleets]
        users = [f.clients.people[one.user] for f, one in zip(self.fleets, found, strict=True)]
        user, order = torch.cat(users).sort()
        values = {name: torch.cat([one.values[name] for one in found])[order] for name in found[0].values}
        return Scored(user, values)

    @contextmanager
    def working(self) -> Iterator[None]:
        with ExitStack() as stack:
            for fleet in self.fleets:
                stack.enter_context(fleet.working())
            yield

    def erase(self, eraser: VectorEraser, keys: Keys) -> None:
        for fleet in self.fleets:
            fleet.erase(eraser, keys)

    def gather(self) -> InProcess:
        self.whole.begin()
        for fleet in self.fleets:
            for some in fleet.devices.clients().split(BLOCK):
                self.whole.devices.put(fleet.clients.number[some], fleet.devices.get(some))
        return self.whole

    def spread(self) -> None:
        held = self.whole.devices
        for fleet in self.fleets:
            fleet.devices.clear()
            for some in (held.slot[fleet.clients.number] >= 0).nonzero().squeeze(1).split(BLOCK):
                fleet.devices.put(some, held.get(fleet.clients.number[some]))
