"""The contract of an attack: a transcript and a few known labels in, scores for everyone out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from veilrec.errors import BadInput
from veilrec.keys import Keys
from veilrec.transcript import Transcript

__all__ = ["Attack", "Threat"]


@dataclass(frozen=True)
class Threat:
    """Who attacks: what they want and whose labels they already have.

    Attributes:
        attribute: What the attacker is after.
        known: The share of users whose label the attacker has; drawn after training.
        stratified: Take that share of each class, so that no class is missing.
    """

    attribute: str = "gender"
    known: float = 0.2
    stratified: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.known < 1:
            raise BadInput("threat.known", f"{self.known} is no share", "give a number between 0 and 1")

    def draw(self, label: Tensor, tags: Tensor, keys: Keys) -> Tensor:
        """``label [users]`` with all but the known ones set to -1; `tags` are hashes of the users' ids."""
        order = keys.fold("known").fold(tags).uniform(dtype=torch.float64)  # [users]
        known = torch.zeros_like(label, dtype=torch.bool)
        group = label if self.stratified else label.clamp(max=0)
        for name in group[label >= 0].unique():
            members = (group == name).nonzero().squeeze(1)
            count = max(1, round(self.known * len(members)))
            known[members[order[members].argsort()[:count]]] = True
        return torch.where(known, label, -1)


class Attack(ABC):
    """An attack reads the transcript and the known labels and nothing else; it cannot import the data."""

    @abstractmethod
    def infer(self, seen: Transcript, known: Tensor, classes: int) -> Tensor:
        """Score every class for every user: ``known [users]``, -1 unknown, to ``[users, classes]``.

        Scores rather than labels, because a threshold is somebody else's choice; the guess is the highest.
        """
