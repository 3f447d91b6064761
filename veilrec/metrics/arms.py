"""Arms: runs that differ by nothing but their seed, and which arms may stand in one table."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from veilrec.metrics.alike import attackers_of, threat_of
from veilrec.metrics.groups import ASIDE, Group, flat, labels, seed_of
from veilrec.metrics.leaks import Run
from veilrec.metrics.measures import Measure, pool, read
from veilrec.result import Result

__all__ = ["Arm", "Family", "families"]

Named = tuple[str, Result]


@dataclass(frozen=True, eq=False)
class Arm(Group):
    """A group as a report draws it.

    Attributes:
        number: Its place, which is its colour and its mark.
    """

    number: int

    @property
    def shape(self) -> int:
        """The number of its mark, of eight: another one when colours begin anew."""
        return (self.number + self.number // 8) % 8

    @cached_property
    def useful(self) -> dict[Any, Measure]:
        """The metric that selected, by seed."""
        found = {seed: _utility(result) for seed, result in self.seeds.items()}
        return {seed: measure for seed, measure in found.items() if measure}

    @cached_property
    def utility(self) -> Measure | None:
        """The metric that selected, over all seeds."""
        return pool(list(self.useful.values())) if self.useful else None

    @property
    def floor(self) -> float | None:
        """The value of popularity by that metric."""
        return self.first.utility.floor.get(self.first.utility.select)


@dataclass(frozen=True)
class Family:
    """Arms whose numbers compare: the same data and split, the same utility protocol, users and metric."""

    arms: tuple[Arm, ...]

    @property
    def first(self) -> Result:
        """Any result, for what is the same in all."""
        return self.arms[0].first

    @property
    def metric(self) -> str:
        """The metric that selected."""
        return self.first.utility.select

    @property
    def data(self) -> str:
        """The name of the data."""
        return str(self.first.data.get("name", "data"))

    @property
    def noisy(self) -> bool:
        """Whether any run declares noise: else there is no ε to show."""
        return any(arm.epsilon.coordinate for arm in self.arms)

    @cached_property
    def audits(self) -> list[str]:
        """The protocols of attack that any run was judged by."""
        return list(dict.fromkeys(name for arm in self.arms for r in arm.results for name in r.privacy))

    def attributes(self, audit: str) -> list[str]:
        """Attributes that an audit asked for, in any run."""
        found = (r.privacy.get(audit, {}).get("attributes") or {} for arm in self.arms for r in arm.results)
        return list(dict.fromkeys(name for attributes in found for name in attributes))

    def title(self, audit: str, attribute: str) -> str:
        """An attribute by name, with its audit where there are several."""
        return f"{attribute} · {audit}" if len(self.audits) > 1 else attribute


def families(results: Sequence[Named]) -> tuple[list[Family], list[str]]:
    """The arms that compare, together; and a sentence for each run that was left out."""
    cells: dict[str, dict[Any, Run]] = {}
    left: list[str] = []
    for name, result in results:
        cell, seed = cells.setdefault(_alike(result), {}), seed_of(result)
        if seed in cell:
            left.append(f"{name} is left out: it has the settings and the seed of {cell[seed].name}.")
        else:
            cell[seed] = Run(name, result)
    groups: dict[str, list[dict[Any, Run]]] = {}
    for cell in cells.values():
        groups.setdefault(_comparable(_first(cell)), []).append(cell)
    return [Family(_arms(group)) for group in groups.values()], left


def _first(cell: Mapping[Any, Run]) -> Result:
    return next(iter(cell.values())).result


def _utility(result: Result) -> Measure | None:
    """The metric that selected, on test items."""
    select = result.utility.select
    return read(result.utility.test.get(select), result.utility_replicates.get(select) or ())


def _alike(result: Result) -> str:
    """Equal for two runs that differ by nothing but their seed, and by what changes no number."""
    settings = flat({name: value for name, value in result.settings.items() if name not in ASIDE})
    threats = {
        name: [threat_of(audit), {a: attackers_of(e) for a, e in (audit.get("attributes") or {}).items()}]
        for name, audit in result.privacy.items()
    }
    return _comparable(result) + json.dumps([settings, threats], sort_keys=True, default=str)


def _comparable(result: Result) -> str:
    utility, split = result.utility, (result.settings.get("data") or {}).get("split_seed", 0)
    return json.dumps([result.data_fingerprint, split, utility.protocol, utility.select, utility.users])


def _arms(cells: Sequence[Mapping[Any, Run]]) -> tuple[Arm, ...]:
    called = labels([_first(cell).settings for cell in cells])
    return tuple(Arm(label, cell, k) for k, (label, cell) in enumerate(zip(called, cells, strict=True)))
