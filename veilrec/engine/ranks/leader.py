"""The leader of the ranks: the one fleet that a run sees.

The leader reads the log, and sends each rank the data of its own users; homes stay the same for a run. It has
the server, the watches and everything that is written, and asks the others as a server asks a fleet: a letter
goes out as bytes, and the fold of its answers comes back. Folds are merged in the order of the ranks, so that
it does not matter who answers first. What devices keep stays where they live, and is read a few at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from veilrec.base.params import Message, Params
from veilrec.base.plan import Forwards
from veilrec.engine import fused
from veilrec.engine.devices.joined import Joined
from veilrec.engine.evaluation import Evaluation, Scored
from veilrec.engine.fleet import ONE_BY_ONE, Fleet, Terms
from veilrec.engine.groups import check
from veilrec.engine.in_process import InProcess, found
from veilrec.engine.ranks.held import Far
from veilrec.engine.ranks.homes import homes
from veilrec.engine.ranks.links import LEADER, Link
from veilrec.engine.ranks.messages import moved, packed, scope, tensors, unpacked
from veilrec.engine.ranks.shares import lean, send
from veilrec.protocol import Counterpart
from veilrec.wire import codec
from veilrec.wire.halves import exchange_of, fold_of, letter_bytes
from veilrec.wire.uploads import Exchange, Fold, Letter, Posts

__all__ = ["Ranks"]

Head = Mapping[str, Any]


@dataclass(kw_only=True)
class Ranks(Fleet):
    """The devices of all processes of a run, as its leader asks them. Make it with `Ranks.lead`.

    Attributes:
        link: The other ranks.
        home: ``[clients]`` the rank of each device.
        near: The leader's own devices.
    """

    link: Link
    home: Tensor
    near: InProcess

    @classmethod
    def lead(cls, whole: InProcess, link: Link) -> Ranks:
        """A fleet of all clients, from now on with the other ranks, which get the data of theirs."""
        clients = lean(whole.clients)
        home = homes(whole, link.size).to(clients.seats.device)
        for rank in range(1, link.size):
            send(link, rank, clients.only((home == rank).nonzero().squeeze(1)))
        mine = clients.only((home == LEADER).nonzero().squeeze(1))
        near = replace(whole, clients=mine, given=mine)
        common = {one.name: getattr(whole, one.name) for one in fields(Fleet)}
        return cls(**{**common, "clients": clients, "given": clients}, link=link, home=home, near=near)

    @property
    def away(self) -> range:
        """The ranks beside the leader."""
        return range(1, self.link.size)

    def begin(self, folder: Path | None = None) -> None:
        """Devices as they are before the first round; files lie where each rank has room for them."""
        for rank in self.away:
            self.link.send(packed({"do": "begin"}), rank)
        self.near.begin()
        self.devices = self._joined(folder)

    @cached_property
    def devices(self) -> Joined:
        """What the devices of all ranks keep, where it lies."""
        return self._joined()

    def _joined(self, folder: Path | None = None) -> Joined:
        number, device = self.clients.number, self.keys.value.device
        away = [(number[self.home == rank], Far(self.link, rank, device)) for rank in self.away]
        return Joined([(self.near.clients.number, self.near.devices), *away], self.empty(folder))

    def working(self) -> AbstractContextManager[Any]:
        """A while in which the leader's own threads are at hand; other ranks keep theirs for the run."""
        return self.near.working()

    def round(self, letter: Letter, cohort: Tensor, terms: Terms = ONE_BY_ONE) -> Fold:
        """One round of all ranks; the leader's watches see what other ranks' devices send as well."""
        check(terms.forwards, len(cohort))
        inner: Forwards = "each" if terms.forwards == "each" else "all"  # sums are merged before they leave
        head = {"do": "round", "forwards": inner, **scope(fused.read_by(terms.watch), terms.trains)}
        asked = [rank for rank in self.away if self._tell(rank, head, letter, cohort)]
        folds, mine = [], self._of(LEADER, cohort)
        if len(mine):
            near = terms._replace(forwards=inner, watch=[*terms.watch, self._listen])
            folds.append(self.near.round(self._sent(letter, cohort, mine), mine, near))
        for rank in asked:
            for exchange, rest in self._answers(rank, letter, cohort):
                for see in terms.watch if exchange else ():
                    see(exchange)  # type: ignore[arg-type]
                if rest:
                    folds.append(self._fold(rest, letter))
        self.devices.changed(cohort)
        return self._merged(folds, terms, len(cohort))

    def probe(
        self, letter: Letter, read: Collection[str] | None = None, again: int = 0
    ) -> Iterator[Exchange]:
        """Probe all clients of all ranks, the leader's first."""
        head, able = {"do": "probe", "again": again, **scope(read, None)}, self.roster.able
        asked = [rank for rank in self.away if self._tell(rank, head, letter, able)]
        answers = [self._answers(rank, letter, able) for rank in asked]
        try:
            yield from self.near.probe(self._sent(letter, able, self._of(LEADER, able)), read, again)
            for of_rank in answers:
                yield from (exchange for exchange, _ in of_rank if exchange is not None)
        finally:  # also where nobody wants the rest: what is under way must not be taken for later answers
            for of_rank in answers:
                for _ in of_rank:
                    pass

    def evaluate(self, server: Counterpart, which: str = "test", judge: Evaluation | None = None) -> Scored:
        """Per-user metrics of all ranks, in the order of the users in the whole log."""
        judge = judge or self.evaluation
        head = {"do": "evaluate", "which": which, "judge": asdict(judge)}

        def ask(rank: int) -> None:
            letter = server.send(self.clients.number[self.home == rank])
            self.link.send(packed(head, letter_bytes(letter)), rank)

        return self._judged(which, ask, lambda: self.near.evaluate(server, which, judge), server)

    def floor(self, judge: Evaluation | None = None, counts: Tensor | None = None) -> Scored:
        """Per-user metrics of popularity of all ranks, in the order of the users in the whole log."""
        judge, counted = judge or self.evaluation, self.counts if counts is None else counts
        order = packed({"do": "floor", "judge": asdict(judge)}, codec.encode({"counts": counted}))
        return self._judged(
            "test", lambda rank: self.link.send(order, rank), lambda: self.near.floor(judge, counted)
        )

    def touched(self, letter: Letter, cohort: Tensor) -> Tensor:
        """``[c]`` how many items each of some clients will touch: each rank draws for its own."""
        asked = [rank for rank in self.away if self._tell(rank, {"do": "touched"}, letter, cohort)]
        found, mine = torch.zeros_like(cohort), self._of(LEADER, cohort)
        if len(mine):
            near = self.near.touched(self._sent(letter, cohort, mine), mine)
            found[torch.searchsorted(cohort, mine)] = near
        for rank in asked:
            told = tensors(self._receive(rank)[1][0])["touched"].to(found.device)
            found[torch.searchsorted(cohort, self._of(rank, cohort))] = told
        return found

    def end(self, told: Head) -> None:
        """Tell the other ranks that the run is over, and how it ended."""
        for rank in self.away:
            self.link.send(packed({"do": "end", **told}), rank)

    def _of(self, rank: int, cohort: Tensor) -> Tensor:
        """Those of some clients that are at home on a rank."""
        return cohort[self.home[torch.searchsorted(self.clients.number, cohort)] == rank]

    def _sent(self, letter: Letter, cohort: Tensor, mine: Tensor) -> Letter:
        return letter.only(torch.searchsorted(cohort, mine))

    def _tell(self, rank: int, head: Head, letter: Letter, cohort: Tensor) -> bool:
        """Send a rank its part of a letter; False where nobody there takes part."""
        mine = self._of(rank, cohort)
        if len(mine):
            parts = letter_bytes(self._sent(letter, cohort, mine)), codec.encode({"cohort": mine})
            self.link.send(packed(head, *parts), rank)
        return bool(len(mine))

    def _receive(self, rank: int) -> tuple[dict[str, Any], list[bytes]]:
        return unpacked(self.link.receive(rank))

    def _answers(self, rank: int, letter: Letter, cohort: Tensor) -> Iterator[tuple[Exchange | None, bytes]]:
        """The answers of a rank: exchange after exchange, and at the end what is left, such as a fold."""
        schema = self.schema(letter)
        while True:
            head, parts = self._receive(rank)
            if head["is"] == "done":
                yield None, parts[0] if parts else b""
                return
            exchange = exchange_of(parts[0], cohort.cpu(), letter, schema, self.announced)
            yield moved(exchange, self.home.device), b""

    def _fold(self, data: bytes, letter: Letter) -> Fold:
        fold = fold_of(data, self.protocol, self.model, letter, self.announced)
        return moved(fold, self.home.device)

    def _merged(self, folds: Sequence[Fold], terms: Terms, n: int) -> Fold:
        partial: Message = {}
        posts, row = Posts.none(), dict[str, float](clients=0, loss=0.0)
        for fold in folds:
            partial = self.protocol.merge(partial, fold.partial)
            posts = posts.merge(fold.posts)
            row["clients"] += int(fold.row["clients"])
            row["loss"] += fold.row["loss"]
        return Fold(partial, posts, row, found(terms.watch), _groups(terms.forwards, n))

    def _judged(
        self,
        which: str,
        ask: Callable[[int], None],
        mine: Callable[[], Scored],
        server: Counterpart | None = None,
    ) -> Scored:
        """The metrics of the judged users of all ranks; the `server` may be asked for scores."""
        held = (self.clients.validation if which == "validation" else self.clients.test) >= 0
        judged = set(self.home[held.any(1)].tolist()) or {LEADER}  # who complains where nobody is judged
        asked = [rank for rank in self.away if rank in judged]
        for rank in asked:
            ask(rank)
        parts = []
        if LEADER in judged:
            one = mine()
            parts.append({**one.values, "user": self.near.clients.people.cpu()[one.user]})
        parts += [self._scored(rank, server) for rank in asked]
        user, order = torch.cat([part.pop("user") for part in parts]).sort()
        return Scored(user, {name: torch.cat([part[name] for part in parts])[order] for name in parts[0]})

    def _scored(self, rank: int, server: Counterpart | None) -> Params:
        """The metrics of a rank's users; meanwhile the server scores what is asked there."""
        while True:
            head, parts = self._receive(rank)
            told = tensors(parts[0])
            if head["is"] == "done" or server is None:
                return told
            query = moved(told, self.home.device)
            items = query.pop("/items", None)
            self.link.send(packed({}, codec.encode({"scores": server.scores({**query}, items)})), rank)

    def _listen(self, exchange: Exchange) -> None:
        """Between two chunks: whether another rank has failed."""
        self.link.check()

    _listen.reads = ()  # type: ignore[attr-defined]  # of an upload


def _groups(forwards: Forwards, n: int) -> tuple[int, ...]:
    """The number of devices behind each message that leaves all ranks together."""
    if forwards == "each":
        return ()
    size = n if forwards == "all" else min(n, int(forwards))
    whole = n // size
    return (*[size] * (whole - 1), n - size * (whole - 1))
