"""Phases: what a run holds in each, part by part, and which setting each part grows with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from veilrec.base.limits.fits import Need, refuse
from veilrec.base.limits.machine import Room

__all__ = ["PAST", "Needs", "Phase"]


PAST = "reading the data"


@dataclass(frozen=True)
class Phase:
    """A phase of a run, and all that is held in it at once."""

    name: str
    parts: tuple[Need, ...]

    @property
    def bytes(self) -> int:
        """All parts together."""
        return sum(part.bytes for part in self.parts)


@dataclass(frozen=True)
class Needs:
    """What a run needs.

    Attributes:
        phases: In their order.
        disk: What will lie on the disk in the end, and while it runs.
        facts: Sizes: clients, items, rounds and others, by name.
        room: What this process may have in all.
        notes: What could not be estimated, as sentences.
    """

    phases: tuple[Phase, ...]
    disk: tuple[Need, ...]
    facts: Mapping[str, Any]
    room: Room
    notes: tuple[str, ...] = field(default=())

    @property
    def peak(self) -> Phase:
        """The phase that holds most."""
        return max(self.phases, key=lambda phase: phase.bytes)

    def check(self) -> None:
        """Refuse a run that cannot fit. What was held until now has fitted, whatever else the process did.

        Raises:
            BadInput: Naming the setting to lower, and to what.
        """
        worst = max(self.ahead, key=lambda phase: phase.bytes)
        refuse(worst.name, worst.parts, self.room)

    @property
    def ahead(self) -> tuple[Phase, ...]:
        """The phases that are still to come."""
        return tuple(phase for phase in self.phases if phase.name != PAST)

    def told(self) -> dict[str, Any]:
        """All of it in the kinds that JSON has."""
        return {
            **self.facts,
            "phases": [
                {
                    "name": phase.name,
                    "bytes": phase.bytes,
                    "parts": {one.name: one.bytes for one in phase.parts},
                }
                for phase in self.phases
            ],
            "peak": {"phase": self.peak.name, "bytes": self.peak.bytes},
            "room": {"bytes": self.room.bytes, "limit": self.room.limit},
            "disk": {
                "bytes": sum(one.bytes for one in self.disk),
                "parts": {p.name: p.bytes for p in self.disk},
            },
            "notes": list(self.notes),
        }
