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
from veilrec.engine.evaluation import Evaluation, Scored
from veilrec.engine.fleet import Terms
from veilrec.engine.in_process import InProcess
from veilrec.engine.ranks.held import answer
from veilrec.engine.ranks.links import Link
from veilrec.engine.ranks.messages import moved, packed, tensors, unpacked
from veilrec.protocol import Counterpart
from veilrec.wire import codec
from veilrec.wire.halves import exchange_bytes, fold_bytes, letter_of
from veilrec.wire.uploads import Exchange, Letter

__all__ = ["follow"]


def follow(link: Link, near: InProcess) -> dict[str, Any]:
    """Run the devices of this rank until the leader says that the run is over, and how."""
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
        sent, relay = self._letter(letter), Relay(self.link, scope["read"])
        fold = self.fleet.round(sent, self._cohort(cohort), Terms(forwards, [relay], scope["trains"]))
        schema = self.fleet.protocol.partial_schema(self.fleet.model, sent)
        self._done(fold_bytes(replace(fold, seen={}), schema))

    def _probe(self, letter: bytes, cohort: bytes, again: int, **scope: Any) -> None:
        relay = Relay(self.link, scope["read"])
        for exchange in self.fleet.probe(self._letter(letter), scope["read"], again):
            relay(exchange)
        self._done()

    def _touched(self, letter: bytes, cohort: bytes) -> None:
        found = self.fleet.touched(self._letter(letter), self._cohort(cohort))
        self._done(codec.encode({"touched": found}))

    def _evaluate(self, letter: bytes, which: str, judge: Mapping[str, Any]) -> None:
        sent, number = self._letter(letter), self.fleet.clients.number

        def send(cohort: Tensor) -> Letter:
            return sent.only(torch.searchsorted(number, cohort))

        self._tell(self.fleet.evaluate(Counterpart(send, self._scores), which, _judge(judge)))

    def _floor(self, counts: bytes, judge: Mapping[str, Any]) -> None:
        counted = tensors(counts)["counts"].to(self.fleet.keys.value.device)
        self._tell(self.fleet.floor(_judge(judge), counted))

    def _tell(self, found: Scored) -> None:
        """The metrics of this rank's users, by their numbers in the whole log."""
        self._done(codec.encode({**found.values, "user": self.fleet.clients.people.cpu()[found.user]}))

    def _scores(self, query: Message, items: Tensor | None) -> Tensor:
        """The server's answer to what devices ask, from any of the threads."""
        asked: Message = query if items is None else {**query, "/items": items}
        with self._asking:
            self.link.send(packed({"is": "query"}, codec.encode(asked)))
            scores = tensors(unpacked(self.link.receive())[1][0])["scores"]
            return scores.to(self.fleet.keys.value.device)

    def _held(self, values: bytes, what: str, **rest: Any) -> None:
        self._done(codec.encode({**answer(self.fleet.devices, what, tensors(values), **rest)}))

    def _letter(self, data: bytes) -> Letter:
        return moved(letter_of(data, self.fleet.form), self.fleet.keys.value.device)

    def _cohort(self, data: bytes) -> Tensor:
        return tensors(data)["cohort"].to(self.fleet.keys.value.device)

    def _done(self, *parts: bytes) -> None:
        self.link.send(packed({"is": "done"}, *parts))


def _judge(told: Mapping[str, Any]) -> Evaluation:
    chosen: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in told.items()}
    return Evaluation(**chosen)


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
