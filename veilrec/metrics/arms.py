"""Arms: runs that differ by nothing but their seed; which may stand in one table, and under which terms."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from veilrec.metrics.alike import attackers_of, of_one_log, threat_of
from veilrec.metrics.groups import Group, cells_of, labels, trained
from veilrec.metrics.leaks import BEFORE, NamedRun, of_before, only_read
from veilrec.metrics.measures import Measure, gathered, pool
from veilrec.result import Result

__all__ = ["Arm", "Family", "FindingTerms", "families", "protocols", "terms"]

ORACLE = "oracle: chosen with the truth in hand"
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

    @property
    def metric(self) -> str:
        """The metric that selected."""
        return self.first.utility.select

    @cached_property
    def utility(self) -> Measure | None:
        """The metric that selected, over all seeds."""
        found = list(self.useful(self.metric).values())
        return pool(found, self.metric) if found else None

    @property
    def floor(self) -> float | None:
        """The value of popularity by that metric."""
        return self.first.utility.floor.get(self.metric)


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
        return self.arms[0].metric

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


class FindingTerms(NamedTuple):
    """The protocol under which a finding holds."""

    audit: str
    grants: list[str]
    oracle: bool
    readers: bool = False  # whether nobody learns, so that the verdict is the one who reads most
    before: bool = False  # whether the verdict is one of before

    def __str__(self) -> str:
        granted = f"granted: {', and '.join(self.grants)}" if self.grants else "nothing granted"
        chosen = "nobody learns: the one who reads most" if self.readers else "chosen without the truth"
        before = f"; {BEFORE}" if self.before else ""
        return f"Audit {self.audit}; {granted}; {ORACLE if self.oracle else chosen}{before}"


def terms(arm: Arm, audit: str) -> FindingTerms:
    """Grants to the attackers of an audit in any run of an arm, and whether the truth chose them."""
    found = [result.privacy[audit] for result in arm.results if audit in result.privacy]
    grants = dict.fromkeys(str(grant) for one in found for grant in one.get("grants") or ())
    entries = [entry for one in found for entry in (one.get("attributes") or {}).values()]
    readers = only_read(attacker for entry in entries for attacker in entry.get("attackers") or ())
    oracle, before = any(bool(one.get("oracle")) for one in found), any(map(of_before, found))
    return FindingTerms(audit, list(grants), oracle, readers, before)


def protocols(family: Family, audit: str) -> list[str]:
    """The protocols that arms were audited under by that name: one, unless they were not made alike."""
    there = [arm for arm in family.arms if any(audit in result.privacy for result in arm.results)]
    return list(dict.fromkeys(str(terms(arm, audit)) for arm in there))


def families(results: Sequence[Named]) -> tuple[list[Family], list[str]]:
    """The arms that compare, together; and a sentence for each run that was left out."""
    runs = of_one_log(NamedRun(name, result) for name, result in results)
    cells, doubles = cells_of(runs, _alike)
    left = [
        f"{run.name} is left out: it has the settings and the seed of {first.name}." for run, first in doubles
    ]
    groups = gathered((_comparable(_first(cell)), cell) for cell in cells)
    return [Family(_arms(group)) for group in groups.values()], left


def _first(cell: Mapping[Any, NamedRun]) -> Result:
    return next(iter(cell.values())).result


def _alike(result: Result) -> str:
    """Equal for two runs that differ by nothing but their seed, and by what changes no number."""
    threats = {
        name: [threat_of(audit), {a: attackers_of(e) for a, e in (audit.get("attributes") or {}).items()}]
        for name, audit in result.privacy.items()
    }
    return _comparable(result) + json.dumps([trained(result), threats], sort_keys=True, default=str)


def _comparable(result: Result) -> str:
    utility, split = result.utility, (result.settings.get("data") or {}).get("split_seed", 0)
    return json.dumps([result.data_fingerprint, split, utility.protocol, utility.select, utility.users])


def _arms(cells: Sequence[Mapping[Any, NamedRun]]) -> tuple[Arm, ...]:
    called = labels([_first(cell).settings for cell in cells])
    return tuple(Arm(label, cell, k) for k, (label, cell) in enumerate(zip(called, cells, strict=True)))
