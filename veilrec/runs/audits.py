"""Audits: what a federation's uploads give away in a state, by our own protocol and by those of papers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from veilrec.attack import Attack
from veilrec.interactions import Interactions
from veilrec.probe import see
from veilrec.protocol import State
from veilrec.rounds import Federation
from veilrec.runs.lab import Audit, People, audit
from veilrec.runs.presets import OWN, PRESETS, preset
from veilrec.runs.touches import membership
from veilrec.runs.trials import goals_of
from veilrec.threat import Threat
from veilrec.transcript import Transcript

__all__ = ["CUSTOM", "Examiner"]

CUSTOM = "custom"  # the name of a protocol that somebody put together
Progress = Callable[[str, int, int, Mapping[str, float] | None], None]


@dataclass(frozen=True)
class Examiner:
    """Runs audits on a federation.

    Attributes:
        data: The log; its attributes are the truth that attacks are judged by.
        audits: What is run.
        seed: Of known users and attackers.
    """

    data: Interactions
    audits: Sequence[Audit]
    seed: int = 0

    @classmethod
    def of(
        cls, data: Interactions, threat: Threat | None, attacks: Mapping[str, Attack], seed: int
    ) -> Examiner:
        """The audits that an experiment asks for: none without a threat, our own without attacks."""
        if threat is None:
            return cls(data, (), seed)
        own = Audit(CUSTOM, threat, attacks) if attacks else replace(PRESETS[OWN], threat=threat)
        return cls(data, (own, *(preset(name, threat.attributes) for name in threat.also)), seed)

    def check(self) -> None:
        """Find out before any training whether there is anything to attack.

        Raises:
            BadInput: Where an attribute is unknown, or too few users have a label.
        """
        people = People.of(self.data)
        there = torch.ones(self.data.n_users, dtype=torch.bool)
        for one in self.audits if self.data.attributes or self.data.values else ():
            goals_of(people, one.threat, there)

    def examine(
        self, federation: Federation, state: State, round: int, kept: Path | None, progress: Progress
    ) -> dict[str, Any]:
        """Every audit's findings, by its name; nothing where the data has no attribute."""
        if not self.data.attributes and not self.data.values:
            return {}
        found, people = {}, People.of(self.data)
        for one in self.audits:
            transcript = Transcript.open(kept) if kept is not None and kept.is_file() else None
            seen = see(federation, state, one.threat.grants, transcript)

            def tell(name: str, done: int, total: int, title: str = one.name) -> None:
                progress(f"attack by {title}: {name}", done, total, None)

            report = audit(seen, people, one.threat, one.attacks, self.seed, tell)
            report["sees"] = f"one upload of every user on the state of round {round}, after every defence"
            if one.threat.membership:
                train = federation.clients.log
                touched = train.user.cpu(), train.item.cpu()
                report["membership"] = membership(seen, *touched, people, one.threat.resamples)
            found[one.name] = report
        return found
