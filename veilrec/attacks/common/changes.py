"""Changes: what every weight of an upload says, user by user and side by side, folded where it is wide.

Paper: APM §3.3: ΔΘ = (Θ − Θ_u)/μ, all weights one after another.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from veilrec.attack import Public, Seen
from veilrec.attacks.common.sketch import Sketch, distortion, whole
from veilrec.attacks.common.uploaded import users_of
from veilrec.base.params import Rows, Scope, part_of
from veilrec.wire.uploads import Exchange

__all__: list[str] = []  # no entry of the catalogue

FEW = 64  # users on whom the loss of a sketch is measured


class Changes(NamedTuple):
    """Every weight's change, side by side and once: what is read of a part is a view of it."""

    features: Tensor  # [users, kept]
    place: dict[str, tuple[int, int]]  # the columns of each weight: from, to
    width: dict[str, int]  # before folding
    loss: dict[str, float]

    def columns(self, names: Sequence[str]) -> Tensor:
        """``[users, …]`` columns of some weights, in the schema's order; a copy unless they are adjacent."""
        spans = [self.place[name] for name in names]
        if all(before[1] == after[0] for before, after in pairwise(spans)):
            return self.features[:, spans[0][0] : spans[-1][1]]
        return torch.cat([self.features[:, start:end] for start, end in spans], 1)


class Folding:
    """A maker of rows: the changes of some weights side by side, each folded where it is wide.

    Attributes:
        place: The columns of each weight: from, to.
        width: Its columns before folding.
        losses: The median relative error that folding brought to distances, by weight.
    """

    def __init__(self, public: Public, names: Sequence[str], columns: int) -> None:
        specs = {name: public.weights[name] for name in names}
        shapes = {n: s.shape if s.table is None else (s.table, *s.shape) for n, s in specs.items()}
        self.public, self.specs, self.shapes, self.columns = public, specs, shapes, columns
        self.width = {name: torch.Size(shape).numel() for name, shape in shapes.items()}
        ends = [0, *accumulate(min(wide, columns) for wide in self.width.values())]
        self.place = dict(zip(specs, pairwise(ends), strict=True))
        self.kept, self.losses = ends[-1], dict[str, float]()
        self._sketches: dict[str, Sketch | None] = {}

    def rows(self, exchange: Exchange) -> Tensor:
        """``[c, kept]`` one row for each client of a chunk."""
        return torch.cat([self._folded(exchange, name).float().cpu() for name in self.specs], 1)

    def _folded(self, exchange: Exchange, name: str) -> Tensor:
        change, table = _change(self.public, exchange, name), self.specs[name].table
        if name not in self._sketches:
            wide, device = self.width[name] > self.columns, exchange.received.cohort.device
            sketch = Sketch.of(name, self.shapes[name], self.columns, device) if wide else None
            self._sketches[name], self.losses[name] = sketch, loss(change, sketch, table)
        own = self._sketches[name]
        return whole(change, table) if own is None else own.fold(change)


def changes(seen: Seen, public: Public, columns: int) -> Changes:
    """One pass over the uploads: every weight's change, folded where it is wide."""
    folding = Folding(public, list(public.weights), columns)
    features = torch.zeros(public.n_users, folding.kept)
    for exchange in seen.probe():
        features[users_of(public, exchange)] = folding.rows(exchange)
    return Changes(features, folding.place, folding.width, folding.losses)


def kept_changes(
    seen: Seen, public: Public, columns: int, most: Sequence[int]
) -> list[tuple[Tensor, Tensor]]:
    """The mean change over the newest uploads of each user in the rounds of training that were kept.

    For each number of uploads in `most` ``[users, kept]`` features, and ``[users]`` how many there were. Of
    tables nothing is read, nor of weights that some round lacks.
    """
    assert seen.kept is not None
    names = [name for name in public.weights if seen.kept.holds(name)]
    folding = Folding(public, names, columns)
    found = [(torch.zeros(public.n_users, folding.kept), torch.zeros(public.n_users)) for _ in most]
    for round in reversed(seen.kept.rounds) if names else ():
        for exchange in seen.kept.chunks(round):
            users, rows = users_of(public, exchange), folding.rows(exchange)
            for (total, count), enough in zip(found, most, strict=True):
                wanted = count[users] < enough
                total[users[wanted]] += rows[wanted]
                count[users[wanted]] += 1
    return [(total / count.clamp(min=1)[:, None], count) for total, count in found]


def loss(change: Tensor | Rows, sketch: Sketch | None, table: int | None = None) -> float:
    """The median relative error that a sketch brings to distances between the first users of a chunk."""
    if sketch is None:
        return 0.0
    some = Rows(change.row[:FEW], change.value[:FEW]) if isinstance(change, Rows) else change[:FEW]
    return distortion(whole(some, table), sketch.fold(some))


def _change(public: Public, exchange: Exchange, name: str) -> Tensor | Rows:
    """One weight's upload as evidence: a gradient, a change of weights, or the device's own weights."""
    value = exchange.received.values[name]
    if public.gradients or public.model.parts[part_of(name)].scope is not Scope.SHARED:
        return value
    sent, rate = exchange.sent.all[name], public.rate or 1.0
    if isinstance(value, Rows):
        return Rows(value.row, (sent[value.row.clamp(min=0)] - value.value) / rate)
    return (sent - value) / rate
