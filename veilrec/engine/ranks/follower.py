"""A follower among the ranks: it runs the devices that live with it, as the leader asks."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from veilrec.base.params import Message
from veilrec.base.plan import Forwards
from veilrec.engine.evaluation import Evaluation
from veilrec.engine.fleet import Terms
from veilrec.engine.in_process import BLOCK, InProcess
from veilrec.engine.ranks.homes import homes, parted
from veilrec.engine.ranks.links import Link
from veilrec.engine.ranks.messages import packed, tensors, unpacked
from veilrec.protocol import Counterpart
from veilrec.wire import codec
from veilrec.wire.halves import exchange_bytes, fold_bytes, letter_of
from veilrec.wire.uploads import Exchange, Letter

__all__ = ["follow"]


def follow(link: Link, fleet: InProcess) -> dict[str, Any]:
    """Run the devices that are at home on this rank until the leader says that the run is over, and how."""
    near = parted(fleet, homes(fleet, link.size), link.rank)
    follower = Follower(link, near)
    with near.working():
        while True:
            head, parts = unpacked(link.receive())
            if head["do"] == "end":
                return head
            follower.answer(head, parts)


class Follower:
    """A rank beside the leader, which does what it is asked for."""

    def __init__(self, link: Link, fleet: InProcess) -> None:
        self.link, self.fleet = link, fleet
        self._asking = threading.Lock()

    def answer(self, head: dict[str, Any], parts: Sequence[bytes]) -> None:
        """Do what is asked."""
        getattr(self, "_" + head.pop("do"))(*parts, **head)

    def _begin(self) -> None:
        self.fleet.begin()

    def _round(self, letter: bytes, cohort: bytes, forwards: Forwards, **scope: Any) -> None:
        sent, relay = letter_of(letter), Relay(self.link, scope["read"])
        terms = Terms(forwards, [relay], scope["trains"])
        fold = self.fleet.round(sent, tensors(cohort)["cohort"], terms)
        schema = self.fleet.protocol.partial_schema(self.fleet.model, sent)
        self._done(fold_bytes(replace(fold, seen={}), schema))

    def _probe(self, letter: bytes, cohort: bytes, again: int, **scope: Any) -> None:
        relay = Relay(self.link, scope["read"])
        for exchange in self.fleet.probe(letter_of(letter), scope["read"], again):
            relay(exchange)
        self._done()

    def _evaluate(self, letter: bytes, which: str, judge: Mapping[str, Any]) -> None:
        sent, number = letter_of(letter), self.fleet.clients.number

        def send(cohort: Tensor) -> Letter:
            return sent.only(torch.searchsorted(number, cohort))

        chosen: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in judge.items()}
        found = self.fleet.evaluate(Counterpart(send, self._scores), which, Evaluation(**chosen))
        values = {**found.values, "user": self.fleet.clients.people[found.user]}
        self._done(codec.encode({**values}))

    def _scores(self, query: Message, items: Tensor | None) -> Tensor:
        """The server's answer to what devices ask, from any of the threads."""
        asked: Message = query if items is None else {**query, "/items": items}
        with self._asking:
            self.link.send(packed({"is": "query"}, codec.encode(asked)))
            return tensors(unpacked(self.link.receive())[1][0])["scores"]

    def _put(self, cohort: bytes, values: bytes) -> None:
        mine = torch.searchsorted(self.fleet.clients.number, tensors(cohort)["cohort"])
        self.fleet.devices.put(mine, tensors(values))

    def _held(self) -> None:
        for some in self.fleet.devices.clients().split(BLOCK):
            number = self.fleet.clients.number[some]
            parts = codec.encode({"cohort": number}), codec.encode({**self.fleet.devices.get(some)})
            self.link.send(packed({"is": "held"}, *parts))
        self._done()

    def _done(self, *parts: bytes) -> None:
        self.link.send(packed({"is": "done"}, *parts))


@dataclass(frozen=True)
class Relay:
    """A watch that shows the leader's watches what they would see, chunk by chunk.

    Attributes:
        link: To the leader.
        reads: The values that any of them looks at; None for all.
    """

    link: Link
    reads: Collection[str] | None

    def __call__(self, exchange: Exchange) -> None:
        """Send one chunk of one round, unless the run has ended meanwhile."""
        self.link.check()
        self.link.send(packed({"is": "exchange"}, exchange_bytes(exchange, self.reads)))
