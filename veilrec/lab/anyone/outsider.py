"""The outsider: who holds one vector of every user and some users' labels, and nothing else."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from veilrec.attack import Attack, Seen
from veilrec.attacks.attribute import AttributeInference
from veilrec.attacks.common.classifiers import CLASSIFIERS
from veilrec.errors import BadInput, nearest
from veilrec.interactions import id_hashes, lots
from veilrec.lab.lab import People, audit
from veilrec.lab.match_ids import Audience
from veilrec.lab.presets import WORST
from veilrec.lab.soundness.columns import places_of
from veilrec.lab.threat import Threat

__all__ = ["Outsider", "Progress", "labels_of", "learners_of"]

SEES = "one vector of every user, and nothing else"
SECRET = 128  # bits of what is known about the users, below which it could be guessed
Progress = Callable[[str, int, int], None]


def learners_of(names: Sequence[str], where: str = "--classifier") -> tuple[str, ...]:
    """Attackers by name, each once; the families of our own protocol where none is named.

    >>> learners_of(["mlp", "mlp"])
    ('mlp',)
    """
    for name in names:
        if name not in CLASSIFIERS:
            raise BadInput(where, f'no classifier "{name}"', nearest(name, CLASSIFIERS))
    return tuple(dict.fromkeys(names)) or WORST


@dataclass(frozen=True)
class Outsider:
    """Attackers of bare vectors under one protocol.

    Attributes:
        known: The share of users whose label they have.
        repeats: Draws of those users, and of what attackers draw.
        learners: Who learns, by names of classifiers; empty for all our families.
        seed: Of the draws.
    """

    known: float = 0.2
    repeats: int = 3
    learners: Sequence[str] = ()
    seed: int = 0
    attacks: AttributeInference = field(init=False, repr=False, compare=False)
    threat: Threat = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        attacks = AttributeInference("embeddings", classifiers=learners_of(self.learners))
        object.__setattr__(self, "attacks", attacks)
        threat = Threat(known=self.known, repeats=self.repeats, by_part=False, membership=False)
        object.__setattr__(self, "threat", threat)

    def attack(self, audience: Audience, tell: Progress | None = None) -> dict[str, Any]:
        """What they find out, as results keep it; `people` is a mark of whom they attacked."""
        people, secret = self.people(audience)
        seen = Seen.of_vectors(torch.from_numpy(audience.vectors), audience.columns)
        found = audit(seen, people, self.threat, {"embeddings": self.attacks}, self.seed, tell)
        return {**found, "sees": SEES, "people": _mark(people) if secret else ""}

    def named(self, name: str) -> Attack:
        """One of the attackers, as a verdict names it."""
        return self.attacks.unfold()[name]

    def people(self, audience: Audience) -> tuple[People, bool]:
        """The truth, and whether the same people have the same resamples whatever their vectors are.

        Two audits of the same people are compared in pairs, so what resamples are drawn by must not change
        with the vectors. It must not be guessed either: where all that is known about so few people could
        be, the vectors are mixed in, and there is no pairing.
        """
        labels, values = labels_of(audience)
        known = [*labels.values(), *values.values()]
        secret = _bits(known) >= SECRET
        words = known if secret else [*known, torch.from_numpy(audience.vectors)]
        people = People(
            labels=labels,
            tags=id_hashes(audience.ids),
            classes=audience.classes,
            values=values,
            lots=lots(audience.ids, *words),
            places=places_of(audience.ids),
        )
        return people, secret


def labels_of(audience: Audience) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Classes and amounts by attribute, by name."""
    labels = {name: torch.from_numpy(audience.labels[name]) for name in sorted(audience.labels)}
    return labels, {name: torch.from_numpy(audience.values[name]) for name in sorted(audience.values)}


def _bits(columns: Iterable[Tensor]) -> float:
    """How many bits somebody must guess who knows how often each value occurs, and nothing else."""
    bits = 0.0
    for column in columns:
        counts = np.unique(column.numpy(), return_counts=True)[1]
        share = counts / len(column)
        bits -= len(column) * float((share * np.log2(share)).sum())
    return bits


def _mark(people: People) -> str:
    """A mark of people and of what is known about them: a hash of what their resamples are drawn by."""
    assert people.lots is not None
    return hashlib.sha256(b"people" + people.lots.numpy().tobytes()).hexdigest()[:16]
