"""The leader of the ranks: the one fleet that a run sees.

Each process reads the whole log and holds what the devices of its own users keep; homes stay the same for a
run. The leader has the server, the watches and everything that is written, and asks the others as a server
asks a fleet: a letter goes out as bytes, and the fold of its answers comes back. Folds are merged in the
order of the ranks, so that it does not matter who answers first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from veilrec.base.keys import Keys
from veilrec.base.params import Message, Params
from veilrec.base.plan import Forwards
from veilrec.engine import fused
from veilrec.engine.evaluation import Evaluation, Scored
from veilrec.engine.fleet import InProcess, Trains, Watch, found
from veilrec.engine.ranks.homes import homes
from veilrec.engine.ranks.links import LEADER, Link
from veilrec.engine.ranks.messages import packed, scope, tensors, unpacked
from veilrec.engine.ranks.spread import Spread
from veilrec.engine.respond import Answer, Chunk
from veilrec.engine.store import Store
from veilrec.engine.workers import Workers
from veilrec.protocol import Counterpart
from veilrec.wire import codec
from veilrec.wire.halves import exchange_of, fold_of, letter_bytes
from veilrec.wire.uploads import Exchange, Fold, Letter, Posts

__all__ = ["Ranks"]


@dataclass
class Ranks(InProcess):
    """The fleet of all ranks, on the leader's side. Make one with `Ranks.lead`.

    Attributes:
        link: The other ranks.
        home: ``[clients]`` the rank of each device.
        near: The leader's own devices.
    """

    link: Link = field(kw_only=True)
    home: Tensor = field(kw_only=True)
    near: InProcess = field(kw_only=True)

    @classmethod
    def lead(cls, fleet: InProcess, link: Link) -> Ranks:
        """A fleet that held all devices, from now on with the other ranks."""
        home = homes(fleet, link.size)
        near = fleet.shard((home == LEADER).nonzero().squeeze(1))
        own = {one.name: getattr(fleet, one.name) for one in fields(fleet)}
        return cls(**own, link=link, home=home, near=near)

    def begin(self, folder: Path | None = None) -> Store:
        """Devices as they are before the first round, on every rank."""
        for rank in self.away:
            self.link.send(packed({"do": "begin"}), rank)
        self.near.begin()
        self._devices = Spread(self)
        return self._devices

    @property
    def away(self) -> range:
        """The ranks beside the leader."""
        return range(1, self.link.size)

    def working(self) -> Any:
        """A while in which the leader's own threads are at hand."""
        return self.near.working()

    def round(
        self,
        letter: Letter,
        cohort: Tensor,
        forwards: Forwards = "each",
        watch: Sequence[Watch] = (),
        trains: Trains = None,
    ) -> Fold:
        """One round of all ranks; what their uploads look like to watches is told to those of the leader."""
        inner: Forwards = forwards if forwards == "each" else "all"  # sums are merged before they leave
        read = fused.read_by(watch)
        head = {"do": "round", "forwards": inner, **scope(read, trains)}
        asked = [rank for rank in self.away if self._tell(rank, head, letter, cohort)]
        folds, mine = [], self._of(LEADER, cohort)
        if len(mine):
            sent = letter.only(torch.searchsorted(cohort, mine))
            folds.append(self.near.round(sent, mine, inner, [*watch, self._listen], trains))
        for rank in asked:
            for exchange, rest in self._answers(rank, letter, cohort):
                for see in watch if exchange else ():
                    see(exchange)  # type: ignore[arg-type]
                if rest:
                    folds.append(fold_of(rest, self.protocol, self.model, letter, self.announced))
        return self._merged(folds, forwards, len(cohort), watch)

    def work(
        self,
        pool: Workers,
        letter: Letter,
        clients: Tensor,
        keys: Keys,
        trains: Trains = None,
        read: Collection[str] | None = None,
    ) -> Iterator[tuple[Chunk, Answer]]:
        """What devices answer to a letter, with nothing folded or kept: as a probe wants it."""
        numbers = self.clients.number[clients]
        head = {"do": "work", "keys": keys.value.tolist(), **scope(read, trains)}
        asked = [rank for rank in self.away if self._tell(rank, head, letter, numbers)]
        mine = self._of(LEADER, numbers)
        sent = letter.only(torch.searchsorted(numbers, mine))
        yield from self.near.work(pool, sent, self.near._places(mine), keys, trains, read)
        for rank in asked:
            for exchange, _ in self._answers(rank, letter, numbers):
                if exchange is not None:
                    some = self._places(exchange.received.cohort)
                    chunk = Chunk(self.clients, some, exchange.sent, {}, keys, self.first_keys(some))
                    yield chunk, Answer(exchange.received, {})

    def evaluate(self, server: Counterpart, which: str = "test", judge: Evaluation | None = None) -> Scored:
        """Per-user metrics of all ranks, in the order of the users in the whole log."""
        judge = judge or self.evaluation
        head = {"do": "evaluate", "which": which, "judge": asdict(judge)}
        for rank in self.away:
            letter = server.send(self.clients.number[self.home == rank])
            self.link.send(packed(head, letter_bytes(letter)), rank)
        one = self.near.evaluate(server, which, judge)
        parts = [{**one.values, "user": self.near.clients.people[one.user]}]
        parts += [self._scored(rank, server) for rank in self.away]
        user, order = torch.cat([part.pop("user") for part in parts]).sort()
        return Scored(user, {name: torch.cat([part[name] for part in parts])[order] for name in parts[0]})

    def end(self, told: Mapping[str, Any]) -> None:
        """Tell the other ranks that the run is over, and how it ended."""
        for rank in self.away:
            self.link.send(packed({"do": "end", **told}), rank)

    def receive(self, rank: int) -> tuple[dict[str, Any], list[bytes]]:
        """The next message of a rank."""
        return unpacked(self.link.receive(rank))

    def _listen(self, exchange: Exchange) -> None:
        """Between two chunks: whether another rank has failed."""
        self.link.check()

    _listen.reads = ()  # type: ignore[attr-defined]  # of an upload

    def _of(self, rank: int, numbers: Tensor) -> Tensor:
        """Those of some clients that are at home on a rank."""
        return numbers[self.home[self._places(numbers).cpu()].to(numbers.device) == rank]

    def _tell(self, rank: int, head: Mapping[str, Any], letter: Letter, cohort: Tensor) -> bool:
        """Send a rank its part of a letter; False where nobody there takes part."""
        mine = self._of(rank, cohort)
        if len(mine):
            sent = letter.only(torch.searchsorted(cohort, mine))
            self.link.send(packed(head, letter_bytes(sent), codec.encode({"cohort": mine})), rank)
        return bool(len(mine))

    def _answers(self, rank: int, letter: Letter, cohort: Tensor) -> Iterator[tuple[Exchange | None, bytes]]:
        """What a rank answers: exchange after exchange, and at the end what is left, such as a fold."""
        schema = self.schema(letter)
        while True:
            head, parts = self.receive(rank)
            if head["is"] == "done":
                yield None, parts[0] if parts else b""
                return
            yield exchange_of(parts[0], cohort, letter, schema), b""

    def _merged(self, folds: Sequence[Fold], forwards: Forwards, n: int, watch: Sequence[Watch]) -> Fold:
        partial: Message = {}
        posts, row = Posts.none(), dict[str, float](clients=0, loss=0.0)
        for fold in folds:
            partial = self.protocol.merge(partial, fold.partial)
            posts = posts.merge(fold.posts)
            row["clients"] += int(fold.row["clients"])
            row["loss"] += fold.row["loss"]
        return Fold(partial, posts, row, found(watch), _groups(forwards, n))

    def _scored(self, rank: int, server: Counterpart) -> Params:
        """The metrics of a rank's users; meanwhile the server scores what is asked there."""
        while True:
            head, parts = self.receive(rank)
            told = tensors(parts[0])
            if head["is"] == "done":
                return told
            items = told.pop("/items", None)
            self.link.send(packed({}, codec.encode({"scores": server.scores({**told}, items)})), rank)


def _groups(forwards: Forwards, n: int) -> tuple[int, ...]:
    """How many devices stand behind each message that leaves all ranks together."""
    if forwards == "each":
        return ()
    size = n if forwards == "all" else min(n, int(forwards))
    whole = n // size
    return (*[size] * (whole - 1), n - size * (whole - 1))
