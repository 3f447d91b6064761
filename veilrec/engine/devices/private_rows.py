"""Private rows: what a device keeps of item tables of its own, as the local tables of a round, and back.

Such a table begins with zeros, or with draws from the device's keys where its part says so. A device keeps
the rows that it ever touched, with the optimiser's state for them: memory grows with what was touched, never
with all devices times all items. All tables of a device keep the same rows. In a round they are local tables
beside the shared ones, row for row, and as they began where a row is new; then what was trained is put among
what was kept.

Momentum and Adam are lazy: a row that is not in the local table of a round is not moved, and nor are its
moments. The count of steps is the device's, one for all rows of a table.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

import torch
from torch import Tensor
from torch.func import vmap

from veilrec.base.keys import Keys
from veilrec.base.params import KEPT, ROW, Params, Scope, part_of
from veilrec.base.rows import along, filled
from veilrec.engine.devices.kept import Devices
from veilrec.errors import BadInput
from veilrec.examples import Examples
from veilrec.model import Recommender, overrides

__all__ = [
    "check",
    "empty",
    "find",
    "load",
    "names_of",
    "put_away",
    "save",
    "size",
    "union",
    "whole",
    "widened",
]

STATES = 3  # a weight and the two moments of Adam
END = 1 << 62  # behind every row


def names_of(model: Recommender) -> list[str]:
    """The item tables of which each device has its own."""
    return [n for n in model.names(Scope.PRIVATE) if model.parts[part_of(n)].rows == "item"]


def check(model: Recommender) -> None:
    """Refuse item tables that are each device's own and yet uploaded: no noise is written for those."""
    for name, part in model.parts.items():
        if part.rows == "item" and part.scope is Scope.EXPOSED:
            raise BadInput("model", f"item table {name!r} is exposed", "item tables are shared or private")


def size(model: Recommender) -> int:
    """The most values of its own item tables that a device comes to hold while it trains."""
    return STATES * sum(model.get_parameter(name).numel() for name in names_of(model))


def empty(model: Recommender, cohort: Tensor) -> Params:
    """Name → ``[c, 0, …]`` the tables of devices that have touched nothing yet."""
    shapes = {name: model.get_parameter(name).shape[1:] for name in names_of(model)}
    return {n: torch.zeros(len(cohort), 0, *shape, device=cohort.device) for n, shape in shapes.items()}


def put_away(model: Recommender, own: Params) -> Params:
    """Rename fresh weights to the names under which they are kept; of tables no row is kept yet."""
    tables = names_of(model)
    if not tables:
        return own
    kept = {KEPT + n if _by_row(n, value, tables) else n: value for n, value in own.items()}
    return {**kept, ROW: own[tables[0]].new_zeros(len(own[tables[0]]), 0, dtype=torch.int64)}


def _by_row(name: str, value: Tensor, tables: Collection[str]) -> bool:
    """Whether it is a table, or the moments of one: its count of steps has no rows."""
    return name.rpartition("/")[2] in tables and value.dim() > 1


def load(model: Recommender, examples: Examples, kept: Params, first: Keys) -> tuple[Examples, Params]:
    """Put the local tables of a round in the place of the rows kept: name → ``[c, l, …]``.

    Rows that are new begin by the keys in `first`. The examples come back with the model's summary of the
    rows that stay behind.
    """
    if ROW not in kept:
        return examples, kept
    rows, row = examples.known.rows, kept[ROW]
    place = find(row, rows)
    own = {n.removeprefix(KEPT): _taken(v, place) if n.startswith(KEPT) else v for n, v in kept.items()}
    own.pop(ROW.removeprefix(KEPT))
    for name in _keyed(model):
        fresh = model.initial_rows(name, first.fold(name), rows).to(own[name].dtype)
        own[name] = torch.where(along((place < 0) & (rows >= 0), fresh), fresh, own[name])
    if overrides(model, Recommender, "summary_of_absent_rows"):
        behind = torch.where(find(rows, row) < 0, row, -1)
        values = {name: kept[KEPT + name] for name in names_of(model)}
        rest = vmap(model.summary_of_absent_rows)(behind, values)
        examples = replace(examples, known=examples.known._replace(rest=rest))
    return examples, own


def save(kept: Params, rows: Tensor, trained: Params) -> Params:
    """Merge ``rows [c, l]`` of the local tables of a round into the rows that devices keep."""
    after = {name: trained[name].detach() for name in kept if not name.startswith(KEPT)}
    if ROW not in kept:
        return after
    every = union(kept[ROW], rows)
    old, (client, local) = find(kept[ROW], every), (rows >= 0).nonzero(as_tuple=True)
    new = find(every, rows)[client, local]
    for name, value in kept.items():
        if name == ROW:
            after[name] = every
        elif name.startswith(KEPT):
            after[name] = _taken(value, old)
            after[name][client, new] = trained[name.removeprefix(KEPT)].detach()[client, local]
    return {name: after[name] for name in kept}


def whole(model: Recommender, devices: Devices, cohort: Tensor, names: Iterable[str], first: Keys) -> Params:
    """Weights that some devices hold, ``[c, …]``, their own item tables whole: for few devices at a time."""
    own, tables = list(names), names_of(model)
    rows = [name for name in own if name in tables]
    found = devices.get(cohort, [KEPT + n if n in rows else n for n in own] + [ROW] * bool(rows))
    return {n: widened(model, found, n, first) if n in rows else found[n] for n in own}


def widened(model: Recommender, kept: Params, name: str, first: Keys) -> Tensor:
    """``[c, length, …]`` a device's own table with every row, as it begins where the device keeps none."""
    value, length = kept[KEPT + name], len(model.get_parameter(name))
    if name in _keyed(model):
        every = torch.arange(length, device=value.device).expand(len(value), -1)
        base = model.initial_rows(name, first.fold(name), every).to(value.dtype)
    else:
        base = value.new_zeros(len(value), length, *value.shape[2:])
    return filled(base, kept[ROW], value)


def _keyed(model: Recommender) -> list[str]:
    """The devices' own item tables whose rows do not begin with zeros."""
    return [name for name in names_of(model) if model.parts[part_of(name)].keyed_rows]


def find(rows: Tensor, wanted: Tensor) -> Tensor:
    """``[c, n]`` where each client's ``rows [c, r]`` have what is wanted ``[c, n]``; -1 where they have not.

    Rows ascend, with -1 behind the last one.
    """
    if not rows.shape[1]:
        return torch.full_like(wanted, -1)
    ordered = torch.where(rows < 0, END, rows)
    place = torch.searchsorted(ordered, wanted.contiguous()).clamp(max=rows.shape[1] - 1)
    return torch.where((rows.gather(1, place) == wanted) & (wanted >= 0), place, -1)


def union(some: Tensor, more: Tensor) -> Tensor:
    """``[c, n]`` the rows of both ``[c, r]`` and ``[c, l]``, ascending, each once, -1 behind the last one."""
    both = torch.cat([some, more], 1)
    both = torch.where(both < 0, END, both).sort(1).values
    first = both < END
    first[:, 1:] &= both[:, 1:] != both[:, :-1]
    count = first.sum(1)
    there = torch.arange(int(count.max()) if len(count) else 0, device=count.device) < count[:, None]
    found = both.new_full(there.shape, -1)
    found[there] = both[first]
    return found


def _taken(values: Tensor, place: Tensor) -> Tensor:
    """``[c, n, …]`` rows of ``[c, r, …]`` by their places ``[c, n]``, zeros for a place of -1; a copy."""
    clients, r = values.shape[:2]
    if not r:
        return values.new_zeros(*place.shape, *values.shape[2:])
    index = place.clamp(min=0) + r * torch.arange(clients, device=place.device)[:, None]
    found = values.flatten(0, 1).index_select(0, index.reshape(-1)).reshape(*place.shape, *values.shape[2:])
    found[place < 0] = 0
    return found
