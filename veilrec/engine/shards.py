"""Shards: several fleets as one, each with devices of its own; what passes between them is bytes.

It is the reference for fleets on several processes or machines, and does in one process what those do: each
shard has the log of its own users alone, answers a letter with its fold, and the folds are merged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from veilrec.base.keys import Keys
from veilrec.base.params import Message
from veilrec.base.plan import Forwards, Plan
from veilrec.defence import Defence
from veilrec.engine.evaluation import Evaluation, Scored
from veilrec.engine.fleet import Fleet, InProcess, Roster, Trains, Watch
from veilrec.protocol import Counterpart
from veilrec.wire.halves import fold_bytes, fold_of, letter_bytes, letter_of
from veilrec.wire.uploads import Fold, Letter, Posts

__all__ = ["Shards"]


@dataclass
class Shards(Fleet):
    """Several fleets that together hold all clients, each client once.

    Attributes:
        fleets: The shards; `InProcess.shard` makes one.
        order: In which their folds are merged.
        bytes_up: How long the folds of the last round were.
    """

    fleets: Sequence[InProcess]
    order: Sequence[int] = ()
    bytes_up: list[int] = field(default_factory=list)

    @property
    def plan(self) -> Plan:
        """The plan, which every shard has, as it has the keys, the model, the protocol and the defence."""
        return self.fleets[0].plan

    @property
    def keys(self) -> Keys:
        """The keys of the run, those of every shard."""
        return self.fleets[0].keys

    @property
    def defence(self) -> Defence:
        """The defence that the devices of every shard run."""
        return self.fleets[0].defence

    @property
    def validates(self) -> bool:
        """Whether any user of any shard has a validation item."""
        return any(fleet.validates for fleet in self.fleets)

    @property
    def able(self) -> Tensor:
        """``[c]`` the numbers of the clients that have events."""
        return self.roster.able

    def begin(self, folder: Path | None = None) -> None:
        """Devices as they are before the first round, in every shard."""
        for place, fleet in enumerate(self.fleets):
            fleet.begin(None if folder is None else folder / str(place))

    @property
    def roster(self) -> Roster:
        """All clients, in the order of the whole log."""
        number = torch.cat([fleet.clients.number for fleet in self.fleets])
        tags = torch.cat([fleet.clients.tags for fleet in self.fleets])
        able = torch.cat([fleet.roster.able for fleet in self.fleets])
        return Roster(tags[number.argsort()], able.sort().values)

    def round(
        self,
        letter: Letter,
        cohort: Tensor,
        forwards: Forwards = "each",
        watch: Sequence[Watch] = (),
        trains: Trains = None,
    ) -> Fold:
        """One round of all shards that have clients in the cohort."""
        folds, self.bytes_up = [], []
        for place in self.order or range(len(self.fleets)):
            fleet = self.fleets[place]
            mine = torch.isin(cohort, fleet.clients.number)
            if bool(mine.any()):
                sent = letter_of(letter_bytes(letter.only(mine.nonzero().squeeze(1))))
                fold = fleet.round(sent, cohort[mine], forwards, watch, trains)
                folds.append(self._carried(fleet, fold, sent))
        return self._merged(folds)

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
            partial = self.fleets[0].protocol.merge(partial, fold.partial)
            posts = posts.merge(fold.posts)
            row = {name: row[name] + fold.row[name] for name in row}
            groups += fold.groups
        return Fold(partial, posts, row, folds[-1].seen if folds else {}, tuple(groups))

    def evaluate(self, server: Counterpart, which: str = "test", judge: Evaluation | None = None) -> Scored:
        """Per-user metrics of all shards, in the order of the users in the whole log."""
        found = [fleet.evaluate(server, which, judge) for fleet in self.fleets]
        users = [f.clients.people[one.user] for f, one in zip(self.fleets, found, strict=True)]
        user, order = torch.cat(users).sort()
        values = {name: torch.cat([one.values[name] for one in found])[order] for name in found[0].values}
        return Scored(user, values)

    @contextmanager
    def working(self) -> Iterator[None]:
        """A while in which every shard has its threads at hand."""
        with ExitStack() as stack:
            for fleet in self.fleets:
                stack.enter_context(fleet.working())
            yield
