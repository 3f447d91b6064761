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


def changes(seen: Seen, public: Public, columns: int) -> Changes:
    """One pass over the uploads: every weight's change, folded where it is wide."""
    specs = public.weights
    shapes = {n: spec.shape if spec.table is None else (spec.table, *spec.shape) for n, spec in specs.items()}
    width = {name: torch.Size(shape).numel() for name, shape in shapes.items()}
    ends = [0, *accumulate(min(wide, columns) for wide in width.values())]
    place = dict(zip(specs, pairwise(ends), strict=True))
    features = torch.zeros(public.n_users, ends[-1])
    sketches: dict[str, Sketch | None] = {}
    losses: dict[str, float] = {}
    for exchange in seen.probe():
        users, device = users_of(public, exchange), exchange.received.cohort.device
        for name, spec in specs.items():
            change = _change(public, exchange, name)
            if name not in sketches:
                wide = width[name] > columns
                sketches[name] = Sketch.of(name, shapes[name], columns, device) if wide else None
                losses[name] = loss(change, sketches[name], spec.table)
            sketch, (start, end) = sketches[name], place[name]
            row = whole(change, spec.table) if sketch is None else sketch.fold(change)
            features[users, start:end] = row.float().cpu()
    return Changes(features, place, width, losses)


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
