"""Arms: runs that differ by nothing but their seed, and which arms may stand in one table."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from veilrec.metrics.alike import attackers_of, threat_of
from veilrec.metrics.groups import ASIDE, defended, labels
from veilrec.metrics.groups import flat as trained
from veilrec.report.measures import Measure, pool, read
from veilrec.result import Result

__all__ = ["Arm", "Family", "families", "flat"]

Named = tuple[str, Result]


@dataclass(frozen=True, eq=False)
class Arm:
    """Runs that differ by nothing but their seed.

    Attributes:
        label: What sets them apart from the others, in a few words.
        number: Its place, which is its colour and its mark.
        runs: The results by name.
    """

    label: str
    number: int
    runs: tuple[Named, ...]

    @property
    def shape(self) -> int:
        """Which of eight marks: another one for the same colour, when colours begin anew."""
        return (self.number + self.number // 8) % 8

    @property
    def results(self) -> list[Result]:
        """The results, one for each seed."""
        return [result for _, result in self.runs]

    @property
    def first(self) -> Result:
        """Any of them, for what is the same in all."""
        return self.runs[0][1]

    @cached_property
    def seeds(self) -> dict[Any, Result]:
        """The results by seed."""
        return {seed_of(result): result for result in self.results}

    @property
    def defended(self) -> bool:
        """Whether any defence acts."""
        return defended(self.first.settings)

    @property
    def collapsed(self) -> int:
        """In how many seeds the model is below the popularity floor: such an arm is not ranked."""
        return sum(result.utility.collapsed for result in self.results)

    @cached_property
    def useful(self) -> dict[Any, Measure]:
        """The metric that selected, by seed."""
        found = {seed: utility_of(result) for seed, result in self.seeds.items()}
        return {seed: measure for seed, measure in found.items() if measure}

    @cached_property
    def utility(self) -> Measure | None:
        """The metric that selected, over all seeds."""
        return pool(list(self.useful.values())) if self.useful else None

    @property
    def floor(self) -> float | None:
        """What popularity reaches by that metric."""
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

    @cached_property
    def audits(self) -> list[str]:
        """The protocols of attack that any run was judged by."""
        return list(dict.fromkeys(name for arm in self.arms for r in arm.results for name in r.privacy))

    def attributes(self, audit: str) -> list[str]:
        """What that audit asked for, in any run."""
        found = (r.privacy.get(audit, {}).get("attributes") or {} for arm in self.arms for r in arm.results)
        return list(dict.fromkeys(name for attributes in found for name in attributes))

    def title(self, audit: str, attribute: str) -> str:
        """An attribute by name, with its audit where there are several."""
        return f"{attribute} · {audit}" if len(self.audits) > 1 else attribute


def families(results: Sequence[Named]) -> tuple[list[Family], list[str]]:
    """The arms that compare, together; and a sentence for each run that was left out."""
    cells: dict[str, list[Named]] = {}
    left: list[str] = []
    for name, result in results:
        cell = cells.setdefault(_alike(result), [])
        twin = next((other for other, known in cell if seed_of(known) == seed_of(result)), None)
        if twin is None:
            cell.append((name, result))
        else:
            left.append(f"{name} is left out: it has the settings and the seed of {twin}.")
    groups: dict[str, list[list[Named]]] = {}
    for cell in cells.values():
        groups.setdefault(_comparable(cell[0][1]), []).append(cell)
    return [Family(_arms(group)) for group in groups.values()], left


def utility_of(result: Result) -> Measure | None:
    """The metric that selected, on test items."""
    select = result.utility.select
    return read(result.utility.test.get(select), result.utility_replicates.get(select) or ())


def seed_of(result: Result) -> Any:
    """The seed of a run."""
    return result.settings.get("seed")


def flat(settings: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    """Nested settings by dotted name: ``{"plan.rounds": 100, "defence.0.name": "laplace", …}``."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        key = f"{where}{name}"
        if isinstance(value, list) and value and all(isinstance(entry, Mapping) for entry in value):
            value = {str(k): entry for k, entry in enumerate(value)}
        found |= flat(value, f"{key}.") if isinstance(value, Mapping) and value else {key: value}
    return found


def _alike(result: Result) -> str:
    """Equal for two runs that differ by nothing but their seed, and by what changes no number."""
    settings = trained({name: value for name, value in result.settings.items() if name not in ASIDE})
    threats = {
        name: [threat_of(audit), {a: attackers_of(e) for a, e in (audit.get("attributes") or {}).items()}]
        for name, audit in result.privacy.items()
    }
    return _comparable(result) + json.dumps([settings, threats], sort_keys=True, default=str)


def _comparable(result: Result) -> str:
    utility, split = result.utility, (result.settings.get("data") or {}).get("split_seed", 0)
    return json.dumps([result.data_fingerprint, split, utility.protocol, utility.select, utility.users])


def _arms(cells: Sequence[Sequence[Named]]) -> tuple[Arm, ...]:
    called = labels([cell[0][1].settings for cell in cells])
    return tuple(
        Arm(label, number, tuple(cell))
        for number, (label, cell) in enumerate(zip(called, cells, strict=True))
    )
