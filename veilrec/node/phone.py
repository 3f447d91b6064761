"""The phone: what one device does with a letter, at most once, and what it keeps of that."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from veilrec.base.keys import Keys
from veilrec.base.params import Message, Params, under
from veilrec.base.tensors import raw
from veilrec.clients import Clients
from veilrec.defence import secretly
from veilrec.engine import serving
from veilrec.engine.in_process import InProcess
from veilrec.engine.respond import Answer, Failed, respond
from veilrec.errors import BadInput, ClientFailed, VeilrecError
from veilrec.interactions import Interactions, Split
from veilrec.model import made
from veilrec.node import contents
from veilrec.node.account import Account
from veilrec.node.contents import ANSWER, LETTER, POST, QUESTION, REPLY, RUN, SEEDED, WEIGHTS
from veilrec.node.letters import Letterbox, Received
from veilrec.node.provisioning import known
from veilrec.node.store import OWN, RECIPE, NodeStore
from veilrec.privacy.ledger import Ledger
from veilrec.protocol import Counterpart
from veilrec.recipe import Recipe, assembly
from veilrec.wire import codec
from veilrec.wire.frame import shown
from veilrec.wire.notes import Notes, fingerprint
from veilrec.wire.uploads import Exchange

__all__ = ["Phone"]

ALONE = torch.tensor([0])


@dataclass
class Phone:
    """One phone at work. What it changes is written by `save`, all at once.

    Attributes:
        store: As it lies on the disk.
        fleet: The phone alone, as the engine runs it.
        seeded: Whether its noise is a simulation's.
        own: All that its store holds, as it will be.
        account: What it has spent.
    """

    store: NodeStore
    fleet: InProcess
    seeded: bool
    own: Params
    account: Account

    @classmethod
    def open(cls, folder: Path, *, seeded: bool | None = None) -> Phone:
        """The device of a store; with `seeded`, unless its noise is of the other kind."""
        store = NodeStore.open(folder)
        was = bool(store.own[SEEDED]) if SEEDED in store.own else None
        if None not in (seeded, was) and seeded != was:
            raise _other_noise(folder, seeded=bool(seeded))
        simulated = bool(was if seeded is None else seeded)
        fleet = _fleet(store, seeded=simulated)
        weights = under(store.own, WEIGHTS)
        contents.weights(weights, fleet.fresh(ALONE), store.card.items, folder / OWN)
        account = Account.of(store.own, len(Ledger.of(fleet).charges))
        return cls(store, fleet, simulated, dict(store.own), account)

    @property
    def letterbox(self) -> Letterbox:
        """The letterbox, which reads its letters."""
        return Letterbox(self.fleet, self.store.card.people, self.store.card.rounds)

    @cached_property
    def ledger(self) -> Ledger:
        """A ledger of this device alone, that has counted nothing."""
        return Ledger.of(self.fleet)

    def bytes_of(self, name: str) -> bytes:
        """Bytes that it keeps under a name."""
        return bytes(raw(self.own[name]))

    def read(self, message: bytes, *, asks: bool = False) -> Received:
        """A letter, unless it is of another run than the first, or of another recipe than the store's."""
        received = self.letterbox.read(message, asks=asks)
        told = received.notes
        if RUN in self.own and (run := self.bytes_of(RUN).decode()) != told.run:
            what = f"of another run, {_quoted(told.run)}; this device answers {_quoted(run)}"
            raise BadInput("message", what, "provision a store for that one")
        if told.recipe and told.recipe != fingerprint(self.store.recipe):
            raise BadInput("message", "of a run with another recipe", "provision a store for that one")
        return received

    def has(self, kind: str, received: Received) -> bool:
        """Whether the latest answer or question is one to this letter."""
        return kind + LETTER in self.own and self.bytes_of(kind + LETTER) == received.hash

    def repeats(self, received: Received) -> bool:
        """Whether a letter is the one that was answered last; which round that was binds no other one.

        Raises:
            BadInput: Where it is another of a round that was answered.
        """
        if self.has(ANSWER, received):
            return True
        round = received.letter.round
        if self.account.has(round):
            what = f"this device has answered round {round + 1}, and not this letter last"
            fix = "send one of another round; the letter of the last answer gets the same again"
            raise BadInput("message", what, fix)
        return False

    def respond(self, received: Received) -> None:
        """Answer a letter: train, and take down what leaves, what is kept and what it costs."""
        letter = received.letter
        self.fleet.devices.put(ALONE, self._held())
        found = self._answer(received)
        kept = {name: value[0] for name, value in found.kept.items()}
        if odd := [n for n, v in kept.items() if v.is_floating_point() and not bool(v.isfinite().all())]:
            raise BadInput("message", f"training on it leaves {odd[0]!r} not finite", "send sane weights")
        before, counted = self.account, Ledger.of(self.fleet)
        counted(Exchange(letter.round + 1, letter, found.uploads, self.fleet.schema(letter)))
        self.account = before.answered(letter.round, received.notes.attempt, counted.units[0])
        self.account.afford(self.ledger, before)
        self.own = known(self.fleet.clients, 0) | {WEIGHTS + name: value for name, value in kept.items()}
        self.own |= {SEEDED: torch.tensor(self.seeded), RUN: _tensor(received.notes.run.encode())}
        self._keep(ANSWER, received, codec.encode(codec.one(found.uploads.values, 0)))
        if posts := {**found.uploads.posts.values} if len(found.uploads.posts.owner) else {}:
            self.own[ANSWER + POST] = _tensor(codec.encode(codec.one({**posts}, 0)))

    def ask(self, received: Received) -> None:
        """Make the question that a letter is answered with, and take down what it costs."""
        server = Counterpart(lambda cohort: received.letter, _not_here)
        self.fleet.devices.put(ALONE, self._held())
        with self.fleet.working() as pool:
            query = serving.asker(self.fleet, server, pool, None if self.seeded else self.fleet.keys)(ALONE)
        before = self.account
        self.account = replace(before, asked=before.asked + 1)
        self.account.afford(self.ledger, before)
        self._keep(QUESTION, received, codec.encode(codec.one(query, 0)))

    def note(self, notes: Notes, *, posts: bool = False) -> None:
        """Take down what a letter says of earlier answers, and that a post leaves."""
        self.account = self.account.noted(notes.missed)
        if posts and ANSWER + POST in self.own:
            self.account = self.account.sent()

    def save(self) -> None:
        """Write what has changed, if anything has."""
        own = self.own | self.account.tensors()
        there = self.store.own
        if own.keys() != there.keys() or not all(torch.equal(value, there[n]) for n, value in own.items()):
            self.store.save(own)

    def _answer(self, received: Received) -> Answer:
        """What the engine's body makes of a letter."""
        fleet, letter = self.fleet, received.letter
        chunk = fleet.chunk(letter, ALONE, ALONE, fleet.keys)
        try:
            return respond(fleet.task(), chunk, fleet.schema(letter), fleet.announced)
        except Failed as failure:
            if isinstance(failure.cause, VeilrecError):
                raise failure.cause from failure
            name = fleet.clients.name(0)
            raise ClientFailed(name, letter.round + 1, failure.phase, failure.cause) from failure.cause

    def _held(self) -> Params:
        """What the device holds: what it has kept, and else what it begins with."""
        kept = {name: value[None] for name, value in under(self.own, WEIGHTS).items()}
        return self.fleet.fresh(ALONE) | kept

    def _keep(self, kind: str, received: Received, reply: bytes) -> None:
        self.own |= {kind + LETTER: _tensor(received.hash), kind + REPLY: _tensor(reply)}


def _fleet(store: NodeStore, *, seeded: bool) -> InProcess:
    """A fleet of one phone, with the keys of the large one or secret ones; prepared if it was not yet.

    Which items a pass draws as untouched must be as secret as noise: a server that could draw them again
    would know the others for touched.
    """
    parts = assembly.build(Recipe.load(store.folder / RECIPE, has_data=False).values)
    card, own = store.card, store.own
    log = Interactions(
        user=torch.zeros_like(own["item"]),
        item=own["item"],
        n_users=1,
        n_items=card.items,
        user_ids=[card.user],
        item_ids=[""] * card.items,  # a device has no need of the original ids
        rating=own.get("rating"),
        time=own.get("time"),
        attributes={name: label[None] for name, label in under(own, "attribute/").items()},
        classes=card.classes,
        values={name: value[None] for name, value in under(own, "value/").items()},
        features=own["features"][None] if "features" in own else None,
        feature_names=card.features,
    )
    nobody = torch.tensor([-1])
    given = {name: consent[None, None] for name, consent in under(own, "consent/").items()}
    clients = replace(Clients.phones(Split(log, nobody, nobody)), consents=given)
    width = own["features"].shape[-1] if "features" in own else 0
    model = made(parts["model"], card.items, 1, width)
    defence = parts["defence"] if seeded else secretly(parts["defence"])
    kinds = parts["protocol"], defence, parts["plan"]
    secret = None if seeded else Keys.secret()
    fresh = SEEDED not in own
    return InProcess.of(clients, model, *kinds, seed=parts["seed"], secret=secret, prepare=fresh)


def _other_noise(folder: Path, *, seeded: bool) -> BadInput:
    if seeded:
        return BadInput(folder, "its noise is the operating system's", "leave out --seeded")
    what = "its noise was drawn from the experiment's seed, which is not private"
    return BadInput(folder, what, "provision a new store, or answer with --seeded to compare")


def _not_here(query: Message, items: Tensor | None) -> Tensor:
    raise NotImplementedError("scores are the server's")


def _quoted(run: str) -> str:
    return f'"{shown(run)}"' if run else "one without a name"


def _tensor(data: bytes) -> Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.zeros(0, dtype=torch.uint8)
