"""The account of a device: the rounds that it has answered, the questions that it asked, and what they cost.

It lies in the store and is written with the answer, before that leaves: what a server says of its own counts
for nothing here, but that some answers did not reach it. Their ε is spent all the same.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from veilrec.base.params import Params
from veilrec.errors import Corrupted, Exhausted
from veilrec.node.contents import ASKED, ATTEMPT, MISSED, POSTED, ROUND, UNITS
from veilrec.privacy.accounting import Spent, spend
from veilrec.privacy.ledger import Ledger

__all__ = ["Account"]


@dataclass(frozen=True)
class Account:
    """A ledger of one device, answer by answer.

    Attributes:
        round: ``[n]`` the rounds answered, as letters number them, from 0: each once, as they came.
        attempt: ``[n]`` the attempt that was answered.
        units: ``[n, charges]`` what each answer held, as `Ledger.units` counts it.
        missed: ``[n]`` whether the server said that the answer did not count.
        posted: ``[n]`` whether a post went with it.
        asked: How many questions for recommendations were asked.
    """

    round: Tensor
    attempt: Tensor
    units: Tensor
    missed: Tensor
    posted: Tensor
    asked: int = 0

    @classmethod
    def of(cls, own: Params, charges: int) -> Account:
        """The account in a store, under so many charges; an empty one where nothing was answered yet.

        Raises:
            Corrupted: Where it was kept under others.
        """
        if ROUND not in own:
            none, never = torch.zeros(0, dtype=torch.int64), torch.zeros(0, dtype=torch.bool)
            return cls(none, none, none.new_zeros(0, charges), never, never)
        if own[UNITS].shape[1] != charges:
            raise Corrupted(
                f"store: a ledger of {own[UNITS].shape[1]} charges, where its recipe has {charges}"
            )
        return cls(own[ROUND], own[ATTEMPT], own[UNITS], own[MISSED], own[POSTED], int(own[ASKED]))

    def tensors(self) -> Params:
        """The account as a store holds it."""
        found = {ROUND: self.round, ATTEMPT: self.attempt, UNITS: self.units, MISSED: self.missed}
        return found | {POSTED: self.posted, ASKED: torch.tensor(self.asked)}

    def has(self, round: int) -> bool:
        """Whether a round, from 0, was answered."""
        return bool((self.round == round).any())

    def answered(self, round: int, attempt: int, units: Tensor) -> Account:
        """The account after one answer more, of so many units ``[charges]``."""
        no = torch.zeros(1, dtype=torch.bool)
        return replace(
            self,
            round=torch.cat([self.round, torch.tensor([round])]),
            attempt=torch.cat([self.attempt, torch.tensor([attempt])]),
            units=torch.cat([self.units, units[None]]),
            missed=torch.cat([self.missed, no]),
            posted=torch.cat([self.posted, no]),
        )

    def noted(self, missed: Collection[int]) -> Account:
        """The account once the server has said that the answers of some rounds, from 1, did not count."""
        told = torch.isin(self.round + 1, torch.tensor([*missed], dtype=torch.int64))
        return replace(self, missed=self.missed | told)

    def sent(self) -> Account:
        """The account once what the user posts has gone with the last answer."""
        return replace(self, posted=torch.cat([self.posted[:-1], torch.ones(1, dtype=torch.bool)]))

    def same(self, other: Account) -> bool:
        """Whether two accounts say the same."""
        mine, theirs = self.tensors(), other.tensors()
        return all(torch.equal(value, theirs[name]) for name, value in mine.items())

    def spent(self, ledger: Ledger) -> Spent:
        """The ε of all answers and questions together."""
        return self._filled(ledger).spent("both")[0]

    def afford(self, ledger: Ledger, before: Account) -> None:
        """Refuse what the budget does not pay for.

        Raises:
            Exhausted: Where this account exceeds it; `before` is the one without the last thing.
        """
        if ledger.budget and not (more := self.spent(ledger)).within(ledger.budget):
            spent = float(before.spent(ledger).epsilon)
            what = f"ε = {spent:.6g} is spent and this would make it {float(more.epsilon):.6g}"
            raise Exhausted(f"plan.budget: of {ledger.budget:g}, {what}; nothing more leaves this device")

    def summary(self, ledger: Ledger) -> dict[str, Any]:
        """All of it in the words of a result, and answer by answer."""
        told = self._filled(ledger).summary()
        every = self.spent(ledger) if ledger.charges or ledger.question else None
        each = spend(ledger.charges, self.units.tolist(), alike=ledger.alike)
        rounds = [self._row(place, each[place] if ledger.charges else None) for place in range(len(each))]
        return {
            "answered": len(rounds),
            "missed": int(self.missed.sum()),
            "asked": self.asked,
            "spent": None if every is None else _told(every),
            **told,
            "rounds": rounds,
        }

    def _row(self, place: int, cost: Spent | None) -> dict[str, Any]:
        return {
            "round": int(self.round[place]) + 1,
            "attempt": int(self.attempt[place]),
            "counted": not bool(self.missed[place]),
            "posted": bool(self.posted[place]),
            "spent": None if cost is None else _told(cost),
        }

    def _filled(self, ledger: Ledger) -> Ledger:
        """A ledger of one client, with what this account has counted."""
        ledger.uploads = torch.tensor([len(self.round)])
        ledger.units = self.units.sum(0, keepdim=True)
        ledger.largest = self.units.amax(0) if len(self.units) else torch.zeros_like(ledger.largest)
        ledger.asked = torch.tensor([self.asked])
        return ledger


def _told(spent: Spent) -> dict[str, Any]:
    return {"epsilon": float(spent.epsilon), "delta": spent.delta, "how": spent.how}
