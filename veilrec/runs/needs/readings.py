"""Readings: what it takes to make what attackers learn from, and how wide it is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from veilrec.attack import Public
from veilrec.attacks.attribute import AttributeInference
from veilrec.attacks.common.changes import FEW
from veilrec.base.params import part_of
from veilrec.lab.threat import Threat
from veilrec.runs.needs.counts import Counts
from veilrec.runs.needs.trial import Tryout

__all__ = ["Made", "Readings"]

FLOAT = 4
FOLDED, FOLDED_ROW = 12, 36  # bytes a value while a weight is folded, and one of some rows of a table
COMPARED = 24  # bytes a value of the devices on whom the loss of folding is measured
HASHED = 16  # bytes a value of a weight that says where it is folded to


class Made(NamedTuple):
    """A reading: the bytes that it takes while it is made, and its columns."""

    bytes: int
    width: int


@dataclass
class Readings:
    """All readings of a run, each made once.

    Attributes:
        counts: The federation.
        trial: Makes those that are not just counted.
        public: What is uploaded.
    """

    counts: Counts
    trial: Tryout
    public: Public
    _made: dict[Any, Made] = field(default_factory=dict)

    @property
    def kept(self) -> int:
        """The bytes of all that were made so far."""
        return FLOAT * self.counts.users * sum(one.width for one in self._made.values())

    def of(self, one: AttributeInference, threat: Threat) -> Made:
        """The reading of an attacker."""
        grants = tuple(sorted(threat.grants))
        if one.reads == "updates":
            whole = self._once((grants, one.columns), lambda: self._updates(one.columns))
            return whole._replace(width=self._columns(one))
        key = (grants, one.reads, tuple(one.parts), one.columns)
        return self._once(key, lambda: self._tried(one, threat))

    def _once(self, key: Any, make: Any) -> Made:
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def _tried(self, one: AttributeInference, threat: Threat) -> Made:
        chunk = self.counts.chunks(frozenset())[-1]
        found = self.trial.reading(chunk, threat.grants, one.reads, one.parts, one.columns)
        return Made(found.making.of(len(chunk)), found.width)

    def _updates(self, columns: int) -> Made:
        """Every weight's change, one after another: of a chunk, and of the first one also what is lost."""
        chunks, sizes = self.counts.chunks(frozenset()), self.counts.fleet.clients.sizes
        folding, comparing, fleet = 0, 0, self.counts.fleet
        declared = fleet.defence.declares(fleet.model, fleet.protocol)
        whole = {noise.name for noise in declared if noise.rows == "all"}  # then every row goes up
        for name, spec in self.public.weights.items():
            one = max(1, torch.Size(spec.shape).numel())
            size = one * (spec.table or 1)
            for chunk in chunks:
                touched = self.counts.rows_of(sizes[int(chunk[0])]) if name not in whole else spec.table
                rows = 1 if spec.table is None else touched or 1
                each = (FOLDED if spec.table is None else FOLDED_ROW) * rows * one
                folding = max(folding, len(chunk) * each)
            if size > columns:
                comparing = max(comparing, COMPARED * min(FEW, len(chunks[0])) * size)
        every = AttributeInference("updates", columns=columns)
        hashed = HASHED * sum(size for size in self._sizes.values() if size > columns)
        return Made(max(folding, comparing) + hashed, self._columns(every))

    def _columns(self, one: AttributeInference) -> int:
        """The columns of the changes of some parts, or of all."""
        chosen = [size for name, size in self._sizes.items() if not one.parts or part_of(name) in one.parts]
        return sum(min(size, one.columns) for size in chosen)

    @property
    def _sizes(self) -> dict[str, int]:
        """The values of each weight that is uploaded."""
        return {
            name: torch.Size(spec.shape).numel() * (spec.table or 1)
            for name, spec in self.public.weights.items()
        }
