"""Shards: several fleets as one, each with devices of its own; what passes between them is bytes.

It is the reference for fleets on several processes or machines, and does in one process what those do: each
shard has the log of its own users alone, answers a letter with its fold, and the folds are merged.

All shards are on the devices' side: where one sum of a round is to leave it (``forwards = "all"``), that is
the merged one, and a shard's own sum goes no further than to the other shards. Sums over so many devices
leave from each shard by itself.

Each shard has a copy of every watch that finds something, and sends what that found with its fold; other
watches are shared.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from veilrec.base.params import Message, Params
from veilrec.engine.devices.joined import Joined
from veilrec.engine.evaluation import Evaluation, Scored
from veilrec.engine.fleet import ONE_BY_ONE, Fleet, Terms
from veilrec.engine.groups import check
from veilrec.engine.in_process import InProcess, found
from veilrec.protocol import Counterpart
from veilrec.wire.halves import fold_bytes, fold_of, letter_bytes, letter_of
from veilrec.wire.uploads import Exchange, Finder, Fold, Letter, Posts

__all__ = ["Shards"]


@dataclass(kw_only=True)
class Shards(Fleet):
    """Several fleets that together hold all clients, each client once. Make them with `Shards.of`.

    Attributes:
        fleets: The shards.
        order: In which their folds are merged.
        notes: What letters say of the run (`wire.notes`): each shard refuses those of another.
        bytes_up: How long the folds of the last round were.
    """

    fleets: Sequence[InProcess]
    order: Sequence[int] = ()
    notes: Mapping[str, str] = field(default_factory=dict)
    bytes_up: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, whole: InProcess, parts: Sequence[Tensor], order: Sequence[int] = ()) -> Shards:
        """The clients of a fleet dealt to several, so many ``[c]`` to each, ascending."""
        common = {one.name: getattr(whole, one.name) for one in fields(Fleet)}
        return cls(**common, fleets=[whole.shard(part) for part in parts], order=order)

    def begin(self, folder: Path | None = None) -> None:
        for fleet in self.fleets:
            fleet.begin()
        self.devices = self._joined(folder)

    @cached_property
    def devices(self) -> Joined:
        """What the devices of all shards keep, where it lies."""
        return self._joined()

    def _joined(self, folder: Path | None = None) -> Joined:
        parts = [(fleet.clients.number, fleet.devices) for fleet in self.fleets]
        return Joined(parts, self.empty(folder))

    def round(self, letter: Letter, cohort: Tensor, terms: Terms = ONE_BY_ONE) -> Fold:
        folds, self.bytes_up = [], []
        shares = list(self._sent(letter, cohort))
        for n in [len(cohort)] if isinstance(terms.forwards, str) else [len(mine) for *_, mine in shares]:
            check(terms.forwards, n, "a shard's round has")
        for fleet, sent, mine in shares:
            own = [blank(one) if isinstance(one, Finder) else one for one in terms.watch]
            fold = fleet.round(sent, mine, terms._replace(watch=own))
            folds.append(self._carried(fleet, fold, sent, found(own)))
        for one in [one for one in terms.watch if isinstance(one, Finder)]:
            for fold in folds:
                one.merge(dict(fold.seen[one.tag]))
        merged = self._merged(folds)
        groups = (sum(merged.groups),) if terms.forwards == "all" else merged.groups
        self.devices.changed(cohort)
        return replace(merged, seen=found(terms.watch), groups=groups)

    def _sent(self, letter: Letter, cohort: Tensor) -> Iterator[tuple[InProcess, Letter, Tensor]]:
        """Each shard with clients in a cohort, the letter as it comes out of its bytes, and whom it asks."""
        for place in self.order or range(len(self.fleets)):
            mine = torch.isin(cohort, self.fleets[place].clients.number)
            if bool(mine.any()):
                data = letter_bytes(letter.only(mine.nonzero().squeeze(1)), self.notes)
                sent = letter_of(data, self.form, self.notes)
                yield self.fleets[place], sent, cohort[mine]

    def _carried(self, fleet: InProcess, fold: Fold, sent: Letter, seen: Mapping[str, Params]) -> Fold:
        """A fold as it comes out of its bytes; what watches have found is as large as `seen`."""
        data = fold_bytes(fold, fleet.protocol.partial_schema(fleet.model, sent))
        self.bytes_up.append(len(data))
        return fold_of(data, fleet.protocol, fleet.model, sent, fleet.announced, seen)

    def _merged(self, folds: Sequence[Fold]) -> Fold:
        """One fold of several, but for what was seen."""
        partial: Message = {}
        posts, row, groups = Posts.none(), {"clients": 0.0, "loss": 0.0}, list[int]()
        for fold in folds:
            partial = self.protocol.merge(partial, fold.partial)
            posts = posts.merge(fold.posts)
            row = {name: row[name] + fold.row[name] for name in row}
            groups += fold.groups
        return Fold(partial, posts, row, groups=tuple(groups))

    def probe(
        self, letter: Letter, read: Collection[str] | None = None, again: int = 0
    ) -> Iterator[Exchange]:
        for fleet, sent, _ in self._sent(letter, self.roster.able):
            yield from fleet.probe(sent, read, again)

    def evaluate(self, server: Counterpart, which: str = "test", judge: Evaluation | None = None) -> Scored:
        return self._whole([fleet.evaluate(server, which, judge) for fleet in self.fleets])

    def floor(self, judge: Evaluation | None = None, counts: Tensor | None = None) -> Scored:
        counts = self.counts if counts is None else counts
        return self._whole([fleet.floor(judge, counts) for fleet in self.fleets])

    def touched(self, letter: Letter, cohort: Tensor) -> Tensor:
        found = torch.zeros_like(cohort)
        for fleet, sent, mine in self._sent(letter, cohort):
            found[torch.searchsorted(cohort, mine)] = fleet.touched(sent, mine)
        return found

    def _whole(self, each: Sequence[Scored]) -> Scored:
        """The metrics of all shards' users, in the order of the whole log."""
        users = [f.clients.people[one.user] for f, one in zip(self.fleets, each, strict=True)]
        user, order = torch.cat(users).sort()
        values = {name: torch.cat([one.values[name] for one in each])[order] for name in each[0].values}
        return Scored(user, values)

    @contextmanager
    def working(self) -> Iterator[None]:
        with ExitStack() as stack:
            for fleet in self.fleets:
                stack.enter_context(fleet.working())
            yield


def blank(watch: Finder) -> Finder:
    """A copy of a watch that has found nothing yet."""
    twin = deepcopy(watch)
    twin.restore({name: torch.zeros_like(value) for name, value in watch.state().items()})
    return twin
