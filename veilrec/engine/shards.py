"""Shards: several fleets as one, each with devices of its own; what passes between them is bytes.

It is the reference for fleets on several processes or machines, and does in one process what those do: each
shard has the log of its own users alone, answers a letter with its fold, and the folds are merged.

All shards are on the devices' side: where one sum of a round is to leave it (``forwards = "all"``), that is
the merged one, and a shard's own sum goes no further than to the other shards. Sums over so many devices
leave from each shard by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor

from veilrec.base.keys import Keys
from veilrec.base.params import Message
from veilrec.base.plan import Forwards, Plan
from veilrec.defence import Defence
from veilrec.engine.evaluation import Evaluation, Scored
from veilrec.engine.fleet import Fleet, InProcess, Roster, Trains, Watch, found
from veilrec.engine.groups import check
from veilrec.protocol import Counterpart
from veilrec.wire.halves import fold_bytes, fold_of, letter_bytes, letter_of
from veilrec.wire.uploads import Finder, Fold, Letter, Posts

__all__ = ["Shards"]


@dataclass
class Shards(Fleet):
    """Several fleets that together hold all clients, each client once.

    Attributes:
        fleets: The shards; `InProcess.shard` makes one.
        order: In which their folds are merged.
        notes: What letters say of the run (`halves.notes`): each shard refuses those of another.
        bytes_up: How long the folds of the last round were.
    """

    fleets: Sequence[InProcess]
    order: Sequence[int] = ()
    notes: Mapping[str, str] = field(default_factory=dict)
    bytes_up: list[int] = field(default_factory=list)

    @property
    def plan(self) -> Plan:
        """That of every shard, as are the keys, the model, the protocol and the defence."""
        return self.fleets[0].plan

    @property
    def keys(self) -> Keys:
        """What all randomness of the run is drawn from."""
        return self.fleets[0].keys

    @property
    def defence(self) -> Defence:
        """What every shard's devices run beside the protocol."""
        return self.fleets[0].defence

    @property
    def validates(self) -> bool:
        """Whether anybody has a validation item."""
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
        """One round of all shards that have clients in the cohort.

        Each has a copy of every watch that finds something, and sends what that found; other watches are
        shared.
        """
        folds, self.bytes_up = [], []
        shares = self._shares(cohort, forwards)
        for fleet, mine in shares:
            sent = letter_of(letter_bytes(letter.only(mine), self.notes), self.notes)
            own = [blank(one) if isinstance(one, Finder) else one for one in watch]
            fold = fleet.round(sent, cohort[mine], forwards, own, trains)
            folds.append(self._carried(fleet, fold, sent))
        for one in [one for one in watch if isinstance(one, Finder)]:
            for fold in folds:
                one.merge(dict(fold.seen[one.tag]))
        return replace(self._merged(folds, forwards), seen=found(watch))

    def _shares(self, cohort: Tensor, forwards: Forwards) -> list[tuple[InProcess, Tensor]]:
        """Each shard that has clients in the cohort, with their places in it.

        Raises:
            BadInput: Where those are too few for what is to leave.
        """
        every = [self.fleets[place] for place in self.order or range(len(self.fleets))]
        places = [torch.isin(cohort, fleet.clients.number).nonzero().squeeze(1) for fleet in every]
        shares = [(fleet, mine) for fleet, mine in zip(every, places, strict=True) if len(mine)]
        for least in [len(cohort)] if isinstance(forwards, str) else [len(mine) for _, mine in shares]:
            check(forwards, least, "a shard's round has")
        return shares

    def _carried(self, fleet: InProcess, fold: Fold, sent: Letter) -> Fold:
        """A fold as it comes out of its bytes."""
        data = fold_bytes(fold, fleet.protocol.partial_schema(fleet.model, sent))
        self.bytes_up.append(len(data))
        return fold_of(data, fleet.protocol, fleet.model, sent, fleet.announced)

    def _merged(self, folds: Sequence[Fold], forwards: Forwards) -> Fold:
        """One fold of several, but for what was seen."""
        partial: Message = {}
        posts, row, groups = Posts.none(), {"clients": 0.0, "loss": 0.0}, list[int]()
        for fold in folds:
            partial = self.fleets[0].protocol.merge(partial, fold.partial)
            posts = posts.merge(fold.posts)
            row = {name: row[name] + fold.row[name] for name in row}
            groups += fold.groups
        groups = [sum(groups)] if forwards == "all" else groups
        return Fold(partial, posts, row, groups=tuple(groups))

    def evaluate(self, server: Counterpart, which: str = "test", judge: Evaluation | None = None) -> Scored:
        """Per-user metrics of all shards, in the order of the users in the whole log."""
        scored = [fleet.evaluate(server, which, judge) for fleet in self.fleets]
        users = [f.clients.people[one.user] for f, one in zip(self.fleets, scored, strict=True)]
        user, order = torch.cat(users).sort()
        values = {name: torch.cat([one.values[name] for one in scored])[order] for name in scored[0].values}
        return Scored(user, values)

    @contextmanager
    def working(self) -> Iterator[None]:
        """A while in which every shard has its threads at hand."""
        with ExitStack() as stack:
            for fleet in self.fleets:
                stack.enter_context(fleet.working())
            yield


def blank(watch: Finder) -> Finder:
    """A copy of a watch that has found nothing yet."""
    twin = deepcopy(watch)
    twin.restore({name: torch.zeros_like(value) for name, value in watch.state().items()})
    return twin
