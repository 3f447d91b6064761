"""The ledger: what formal privacy a run has spent, user by user, and when a budget is used up."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor

from veilrec.base.params import Params
from veilrec.defence import Defence
from veilrec.engine.fleet import Fleet
from veilrec.errors import BadInput
from veilrec.model import Recommender
from veilrec.privacy.accounting import Charge, Spent, spend
from veilrec.privacy.mechanism import Mechanism, counted
from veilrec.privacy.statement import lacks, tell
from veilrec.protocol import Protocol, State
from veilrec.rounds import Federation
from veilrec.wire.codec import Spec
from veilrec.wire.uploads import Exchange

__all__ = ["Ledger", "check"]


class Ledger:
    """Counts what each client has sent under noise; give it to `Federation.rounds` as a watch.

    A client that holds several users spends for all of them: its upload is theirs. In a simulation the
    questions are those of looks at held-out items.

    Attributes:
        declared: What the defence says of its noise.
        bare: Values of any type that leave without noise whose worth is declared, but for `counts`.
        loose: Defences that change uploads after the noise and declare nothing.
        posts: What consenting users post openly, if there are any.
        counts: What devices tell as one whole number, that of their examples for instance.
        asks: What devices ask with, where the server scores: a question is charged for by itself.
        budget: An ε that nobody may exceed; 0 for none.
        counted: Of several noises on one weight of an upload the one that is charged.
        charges: What the units cost that are counted.
        uploads: ``[clients]`` uploads so far.
        units: ``[clients, charges]`` units so far: coordinates, or uploads where norms are clipped.
        largest: ``[charges]`` the most units of each that one upload held.
        asked: ``[clients]`` questions so far, where the server scores.
        secret: Whether the noise is the operating system's, as on a real device.
    """

    tag = "ledger"
    reads = ()  # no values of an upload, only how many rows there are

    def __init__(
        self,
        declared: Sequence[Mechanism],
        n_clients: int,
        *,
        bare: Sequence[str] = (),
        loose: Sequence[str] = (),
        posts: Sequence[str] = (),
        counts: Sequence[str] = (),
        asks: Sequence[str] = (),
        budget: float = 0.0,
        secret: bool = False,
    ) -> None:
        self.declared, self.bare, self.loose = tuple(declared), tuple(bare), tuple(loose)
        self.asks = tuple(asks)
        self.posts, self.counts, self.budget = tuple(posts), tuple(counts), budget
        self.counted = counted([m for m in self.declared if m.name not in self.asks])
        self.charges = tuple(dict.fromkeys(_charge(m) for m in self.counted))
        self.uploads = torch.zeros(n_clients, dtype=torch.int64)
        self.units = torch.zeros(n_clients, len(self.charges), dtype=torch.int64)
        self.largest = torch.zeros(len(self.charges), dtype=torch.int64)
        self.asked = torch.zeros(n_clients, dtype=torch.int64)
        self.secret = secret

    @classmethod
    def of(cls, federation: Federation | Fleet) -> Ledger:
        """The ledger of a federation, or of its devices' side alone, before the first round.

        Raises:
            BadInput: Where the defence does not fit the protocol, or a budget bounds nothing.
        """
        model, protocol, defence = federation.model, federation.protocol, federation.defence
        declared = (*protocol.declares(model), *defence.declares(model, protocol))
        entries = {**protocol.schema(model), **protocol.query_schema(model)}
        noisy = {mechanism.name for mechanism in declared}
        clear = {name: spec for name, spec in entries.items() if name not in noisy}
        counts = [name for name, spec in clear.items() if _is_count(spec)]
        ledger = cls(
            declared,
            len(federation.clients),
            bare=[name for name in clear if name not in counts],
            loose=_loose(defence, model, protocol),
            posts=_posts(federation),
            counts=counts,
            asks=tuple(protocol.query_schema(model)),
            budget=federation.plan.budget,
            secret=all(link.secret for link in defence.links),
        )
        if ledger.budget and not ledger.guarantee:
            what = f"no ε bounds an upload: {lacks(ledger)}"
            fix = "add noise to all that leaves, as laplace does, or drop the budget"
            raise BadInput("plan.budget", what, fix)
        return ledger

    @property
    def guarantee(self) -> bool:
        """Whether declared noise covers every value that leaves, also those of users who post."""
        return not lacks(self)

    def __call__(self, exchange: Exchange) -> None:
        """Count one chunk of one round."""
        cohort = exchange.received.cohort.cpu()
        self.uploads[cohort] += 1
        if not self.charges or not len(cohort):
            return
        here = [m for m in self.counted if not exchange.schema or m.name in exchange.schema]
        tables = {m.name for m in here if m.table is not None}
        rows = {name: exchange.received.row_counts(name).cpu() for name in tables}
        units = self._units(len(cohort), rows, here)
        self.units[cohort] += units
        self.largest = torch.maximum(self.largest, units.amax(0))

    def affords(self, federation: Federation, state: State | None = None) -> bool:
        """Whether everybody sampled for the next round, or the first, stays within the budget."""
        return not self.budget or all(spent.within(self.budget) for spent in self._after(federation, state))

    def look(self, held: Tensor) -> None:
        """Count a look at held-out items ``[clients, seats]``: who has any asks for recommendations once."""
        if self.asks:
            self.asked = self.asked + (held >= 0).any(1).cpu()

    def spent(self, on: Literal["uploads", "questions", "both"] = "uploads") -> list[Spent]:
        """The ε that each client has spent."""
        (charges, one), units = self._question, self.units.tolist()
        if on == "uploads" or (on == "both" and not charges):
            return spend(self.charges, units, alike=self.alike)
        asked = [[n * unit for unit in one] for n in self.asked.tolist()]
        if on == "questions":
            return spend(charges, asked, alike=True)
        both = [[*sent, *more] for sent, more in zip(units, asked, strict=True)]
        return spend((*self.charges, *charges), both, alike=self.alike)

    @cached_property
    def question(self) -> Spent | None:
        """What each question for recommendations costs beside the uploads; None where none has noise."""
        charges, units = self._question
        return spend(charges, [units])[0] if charges else None

    @cached_property
    def _question(self) -> tuple[tuple[Charge, ...], list[int]]:
        """The charges of a question, and its units of each."""
        asking = Ledger([m for m in self.declared if m.name in self.asks], 1)
        whole = {m.name: torch.tensor([m.table]) for m in asking.counted if m.table is not None}
        return asking.charges, asking._units(1, whole)[0].tolist()

    def summary(self) -> dict[str, Any]:
        """All of it as `result.json` holds it."""
        return tell(self)

    def merge(self, other: Params) -> None:
        """Add what another ledger, of other clients, has in its `state`."""
        self.uploads = self.uploads + other["uploads"]
        if self.asks:
            self.asked = self.asked + other["asked"]
        if self.charges:
            self.units = self.units + other["units"]
            self.largest = torch.maximum(self.largest, other["largest"])

    def state(self) -> Params:
        """All counters as tensors, for checkpoints between two rounds."""
        asked = {"asked": self.asked} if self.asks else {}
        units = {"units": self.units, "largest": self.largest} if self.charges else {}
        return {"uploads": self.uploads, **asked, **units}

    def restore(self, state: Params) -> None:
        """The reverse of `state`."""
        self.uploads = state["uploads"].clone()
        if "asked" in state:  # not in that of a run which began before questions were counted
            self.asked = state["asked"].clone()
        if self.charges:
            self.units, self.largest = state["units"].clone(), state["largest"].clone()

    @property
    def alike(self) -> bool:
        """Whether all uploads cost the same, so that what users have spent takes few values."""
        return not any(m.table is not None and m.rows == "touched" and m.by == "value" for m in self.counted)

    def _units(
        self, clients: int, rows: dict[str, Tensor], here: Sequence[Mechanism] | None = None
    ) -> Tensor:
        """``[c, charges]`` units of one upload each, given how many rows of each table it holds, ``[c]``.

        `here` are those of the mechanisms that this round's uploads are under; None for all that are counted.
        """
        units = torch.zeros(clients, len(self.charges), dtype=torch.int64)
        for mechanism in self.counted if here is None else here:
            column = self.charges.index(_charge(mechanism))
            if mechanism.by == "norm":
                units[:, column] = 1
            elif mechanism.table is None:
                units[:, column] += mechanism.width
            else:
                units[:, column] += rows[mechanism.name] * mechanism.width
        return units

    def _after(self, federation: Federation, state: State | None = None) -> list[Spent]:
        """The ε that those sampled for the next round will have spent at most, by the rows they will draw."""
        cohort = federation.sample(state.round if state else 0)
        touched = torch.zeros(0) if self.alike else _touched(federation, cohort, state)
        rows = {
            m.name: torch.full((len(cohort),), m.table or 0) if m.rows == "all" else touched
            for m in self.counted
            if m.table is not None and m.by == "value"
        }
        units = self.units[cohort.cpu()] + self._units(len(cohort), rows)
        return spend(self.charges, units.unique(dim=0).tolist(), alike=self.alike)


def check(federation: Federation) -> None:
    """Find out before a run whether its defence can be accounted for, and its budget pays for a round.

    Raises:
        BadInput: Where not; with the ε of one upload, if that is too much for the budget.
    """
    ledger = Ledger.of(federation)
    if not ledger.affords(federation):
        most = float(max(spent.epsilon for spent in ledger._after(federation)))
        what = f"{ledger.budget:g} is less than one upload costs, ε = {most:.6g}"
        raise BadInput("plan.budget", what, "give more, or send less under more noise")


def _is_count(spec: Spec) -> bool:
    """Whether an entry is one whole number: more of them, or a fraction, could say anything."""
    whole = not (spec.dtype.is_floating_point or spec.dtype.is_complex)
    return spec.kind == "count" and spec.shape == () and spec.table is None and whole


def _charge(mechanism: Mechanism) -> Charge:
    return Charge(mechanism.kind, mechanism.ratio, mechanism.place if mechanism.by == "norm" else -1)


def _loose(defence: Defence, model: Recommender, protocol: Protocol) -> list[str]:
    """Defences that change uploads after somebody's noise and declare nothing: what they add nobody knows.

    Where the noise came after an epoch, every change at the upload comes later, wherever its defence stands.
    """
    declared = [link.declares(model, protocol) for link in defence.links]
    early = [any(m.every == "epoch" for m in mechanisms) for mechanisms in declared]
    names = []
    for place, one in enumerate(defence.links):
        after_noise = any(declared[:place]) or any(early)
        after_epoch = any(early[:place]) and one.acts("after_epoch")
        if not declared[place] and (after_epoch or (after_noise and one.acts("on_upload"))):
            names.append(type(one).__name__)
    return names


def _posts(federation: Federation | Fleet) -> Sequence[str]:
    """The names that are posted without noise, where somebody may post."""
    posting = federation.defence.posts(federation.model)
    if posting is None or not bool(posting.willing(federation.clients.consents).any()):
        return ()
    return tuple(posting.schema)


def _touched(federation: Federation, cohort: Tensor, state: State | None) -> Tensor:
    """``[c]`` how many rows each client of the next round will touch, by the draws it will make."""
    state = state or federation.server.start(federation.keys.fold("server"))
    return federation.fleet.touched(federation.letter(state, cohort), cohort).cpu()
