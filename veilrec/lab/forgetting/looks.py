"""Looks: one attribute read from one thing by several attackers, as a receipt keeps it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from veilrec.attack import Granted, Seen
from veilrec.attacks.attribute import AttributeInference
from veilrec.base.draws import Draws
from veilrec.base.keys import Keys
from veilrec.base.rows import padded, within
from veilrec.eraser import Request
from veilrec.errors import BadInput
from veilrec.lab.forgetting.case import Effort, Erasure
from veilrec.lab.lab import audit
from veilrec.lab.soundness.findings import checked
from veilrec.lab.threat import Threat
from veilrec.lab.trials import People, goals_of

__all__ = ["Looks"]

DIGITS = 4
FEWEST = (
    10  # who asked, of whom numbers are given: of fewer, a number or that there is none tells the classes
)
FEW = f"fewer than {FEWEST} asked: whatever is said of so few tells their classes"
UNFIT = "too few users, or too much alike, to be attacked"  # by class they are never counted
Look = dict[str, Any]


@dataclass(frozen=True)
class Looks:
    """All looks at one erasure.

    Attributes:
        erasure: That is looked at.
        effort: How hard attackers try.
        seed: Of known users and attackers.
    """

    erasure: Erasure
    effort: Effort
    seed: int = 0

    def vectors(self, name: str) -> list[Look]:
        """Vectors of those who asked, before and after, by the share of them whose label is known."""
        found = []
        for share in self.effort.shares:
            pair = {side: self._vectors(rows, name, share) for side, rows in self._sides.items()}
            found.append({"known": share, **pair})
        return found

    def difference(self, name: str) -> Look:
        """What is read by who holds vectors from before and after, beside those from before alone."""
        case, share = self.erasure, self.effort.shares[0]
        both = Granted(user_vectors=case.after, former_vectors=case.before)
        families = self.effort.beside
        return {
            "known": share,
            "former": self._one(Granted(user_vectors=case.before), "embeddings", name, share, families),
            "both": self._one(both, "difference", name, share, families),
        }

    def lists(self, name: str) -> list[Look]:
        """What lists tell, before and after."""
        case, known = self.erasure, "others" if self.erasure.some else self.effort.shares[-1]
        found = []
        for kind, pair in case.lists.items():
            told = {
                side: self._one(Granted(lists=shown), "lists", name, known, self.effort.beside)
                for side, shown in pair._asdict().items()
            }
            found.append({"lists": kind, "known": known, "length": pair.after.shape[1], **told})
        return found

    def history(self, name: str) -> Look | None:
        """What is read from the items that users touched."""
        if self.erasure.history is None:
            return None
        known = "others" if self.erasure.some else self.effort.shares[-1]
        rows = _side_by_side(*self.erasure.history, len(self.erasure.people.tags))
        found = self._one(Granted(lists=rows), "lists", name, known, self.effort.beside)
        return {"known": known, **found}

    def requesters(self, name: str) -> Look | None:
        """Those who asked, by attackers who know all others' labels; None where all asked."""
        case = self.erasure
        if not case.some:
            return None
        looks = {"before": case.before, "naive": case.after}
        found = {key: self._vectors(rows, name, "others") for key, rows in looks.items()}
        return {**found, "adaptive": self._adaptive(name)}

    def asked(self) -> Look | None:
        """Whether it can be told who asked, before and after; None where all did."""
        case, share = self.erasure, self.effort.shares[-1]
        if not case.some:
            return None
        names = {"asked": ["did not ask", "asked"]}
        who = People({"asked": case.asks.long()}, case.people.tags, names, lots=case.people.lots)
        sides = {
            side: self._one(Granted(user_vectors=rows), "embeddings", "asked", share, people=who)
            for side, rows in self._sides.items()
        }
        return {"known": share, **sides}

    def later(self, name: str) -> list[Look]:
        """Vectors of those who asked after further rounds of training."""
        share = self.effort.shares[-1]
        return [
            {"rounds": rounds, "known": share, **self._vectors(rows, name, share)}
            for rounds, rows in sorted(self.erasure.later.items())
        ]

    @property
    def _sides(self) -> dict[str, Tensor]:
        return {"before": self.erasure.before, "after": self.erasure.after}

    def _adaptive(self, name: str) -> Look:
        """By who first does with those who did not ask what was done with those who did."""
        case = self.erasure
        if case.eraser is None:
            return _missing("by which method the erasure was done is not known here")
        others = ~case.asks
        labels = {entry: case.people.labels[entry] for entry in case.attributes}
        lends = others if case.lends is None else case.lends & others
        request = Request(labels, asks=others, lends=lends, tags=case.people.tags)
        draws = Draws(Keys.seed(self.seed).fold("adaptive attacker"))
        try:
            own = case.eraser.forget(case.before, request, draws)
        except BadInput:
            return _missing("the eraser cannot be tried on those who did not ask")
        return self._vectors(torch.where(others[:, None], own, case.after), name, "others")

    def doubts(self) -> list[str]:
        """What in the vectors after it would make all these numbers mean something else."""
        case, there = self.erasure, torch.ones(len(self.erasure.people.tags), dtype=torch.bool)
        try:
            goals = goals_of(case.asking, Threat(tuple(case.attributes)), there)
        except BadInput:
            return []  # too few to attack: every look says so
        found = checked({"vectors": case.after}, case.asking, goals, there).findings
        return [str(one["sentence"]) for one in found]

    def _vectors(self, rows: Tensor, name: str, known: float | str) -> Look:
        return self._one(Granted(user_vectors=rows), "embeddings", name, known)

    def _one(
        self,
        granted: Granted,
        reads: str,
        name: str,
        known: float | str,
        families: Sequence[str] = (),
        people: People | None = None,
    ) -> Look:
        """The verdict of several attackers; or why there is none."""
        if people is None and self.erasure.some and int(self.erasure.asks.sum()) < FEWEST:
            return _missing(FEW)
        who = people or (self.erasure.people if known == "others" else self.erasure.asking)
        attack = AttributeInference(reads, classifiers=families or self.effort.families)  # type: ignore[arg-type]
        threat = self.effort.threat(known, name)
        try:
            found = audit(Seen.of_granted(granted), who, threat, {"": attack}, self.seed, sound=False)
        except BadInput:
            return _missing(UNFIT)
        return _told(found["attributes"][name])


def _missing(why: str) -> Look:
    return {"missing": why}


def _told(entry: dict[str, Any]) -> Look:
    """A verdict with the score of each family, its floor, and how far from chance it is."""
    verdict, area = entry["verdict"], entry["verdict"]["auc"]
    floor = verdict["shuffled"] or {}
    return {
        "auc": area,
        "leakage": round(abs(area["value"] - 0.5), DIGITS),
        "leaning": verdict["leaning"],
        "turned": verdict["leaning"] == "below",
        "attacker": verdict["attacker"].rpartition("/")[2],
        "floor": floor.get("value"),
        "floor_high": floor.get("high"),
        "known_users": entry["known"],
        "targets": entry["targets"],
        "families": {one["classifier"]: one["scores"]["auc"]["value"] for one in entry["attackers"]},
        "sentence": verdict["sentence"],
    }


def _side_by_side(user: Tensor, item: Tensor, users: int) -> Tensor:
    """``[users, most]`` the items of each user; -1 where there are fewer."""
    order = user.argsort(stable=True)
    count = torch.bincount(user, minlength=users)
    owner = user[order]
    return padded(item[order], owner, within(owner, count), count, blank=-1)
