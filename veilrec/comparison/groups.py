"""Groups: runs that differ only by seed, with a label that says what sets them apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from veilrec.comparison.measures import Leak, Measure, Run, epsilon_of, interval, leak_of, usefulness
from veilrec.errors import BadInput

__all__ = ["Group", "flat", "group_of", "grouped"]

ASIDE = {"attack", "record", "seed", "seeds", "sweep", "threat"}  # sections that change no training
IDLE = {"data.path", "plan.workers", "plugin.path"}
UNDEFENDED = {"none", "undefended"}


@dataclass(frozen=True)
class Group:
    """Runs that differ only by seed.

    Attributes:
        label: What sets the group apart, in words.
        settings: The same by dotted key.
        runs: By seed.
        utility: Of the metric that was asked for.
        leaks: By attribute.
        epsilon: The largest composed ε over its runs, or None where nothing is guaranteed.
        defended: Whether it has any defence.
        collapsed: How many of its runs are below the popularity floor; its leaks are then not ranked.
    """

    label: str
    settings: Mapping[str, Any]
    runs: Mapping[int, Run]
    utility: Measure
    leaks: Mapping[str, Leak]
    epsilon: float | None
    defended: bool
    collapsed: int


def grouped(runs: Sequence[Run]) -> list[tuple[str, dict[str, Any], dict[int, Run]]]:
    """Runs by their settings without the seed: label, what sets them apart, and the runs by seed."""
    found: dict[str, dict[int, Run]] = {}
    whole: dict[str, dict[str, Any]] = {}
    for run in runs:
        told = flat({k: v for k, v in run.result.settings.items() if k not in ASIDE})
        key, seed = repr(sorted(told.items())), int(run.result.settings.get("seed", 0))
        mine = found.setdefault(key, {})
        if seed in mine:
            what = f"the same settings and seed as {mine[seed].name}"
            raise BadInput(run.name, what, "name each run once")
        mine[seed], whole[key] = run, told
    names = dict.fromkeys(name for told in whole.values() for name in told)
    differ = [name for name in names if len({repr(told.get(name)) for told in whole.values()}) > 1]
    apart = {key: {name: told[name] for name in differ if name in told} for key, told in whole.items()}
    return [(_label(whole[key], apart[key]), apart[key], mine) for key, mine in found.items()]


def group_of(label: str, told: Mapping[str, Any], runs: dict[int, Run], metric: str, audit: str) -> Group:
    """The numbers of some runs as one."""
    results = [run.result for run in runs.values()]
    names = dict.fromkeys(n for r in results for n in r.privacy.get(audit, {}).get("attributes", {}))
    leaks = {name: leak_of(runs, audit, name) for name in names}
    epsilons = [epsilon_of(result) for result in results]
    return Group(
        label,
        told,
        runs,
        interval([float(r.utility.test[metric]) for r in results], [usefulness(r, metric) for r in results]),
        {name: leak for name, leak in leaks.items() if leak is not None},
        None if None in epsilons else max(e for e in epsilons if e is not None),
        not _defences(results[0].settings) <= UNDEFENDED,
        sum(result.utility.collapsed for result in results),
    )


def flat(value: Any, lead: str = "") -> dict[str, Any]:
    """Nested settings by dotted key, without those that change no result."""
    if isinstance(value, Mapping):
        items = [(str(key), entry) for key, entry in value.items()]
    elif isinstance(value, list | tuple) and any(isinstance(entry, Mapping) for entry in value):
        items = [(str(place), entry) for place, entry in enumerate(value)]
    else:
        return {} if lead in IDLE else {lead: value}
    found: dict[str, Any] = {}
    for key, entry in items:
        found |= flat(entry, f"{lead}.{key}" if lead else key)
    return found


def _label(settings: Mapping[str, Any], apart: Mapping[str, Any]) -> str:
    """The defences, then whatever else sets a group apart: ``laplace (scale 0.1)``."""
    defences = [str(v) for k, v in settings.items() if k.startswith("defence.") and k.endswith(".name")]
    head = " + ".join(defences) or "no defence"
    rest = {k: v for k, v in apart.items() if not (k.startswith("defence.") and k.endswith(".name"))}
    ends = [key.rpartition(".")[2] for key in rest]
    told = [
        f"{end if ends.count(end) == 1 else key} {value}"
        for (key, value), end in zip(rest.items(), ends, strict=True)
    ]
    return f"{head} ({', '.join(told)})" if told else head


def _defences(settings: Mapping[str, Any]) -> set[str]:
    return {str(entry.get("name", "")).casefold() for entry in settings.get("defence", ())}
