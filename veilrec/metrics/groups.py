"""Groups: runs that differ only by seed, with a label that says what sets them apart."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from veilrec.errors import BadInput
from veilrec.metrics.epsilons import Epsilon, epsilon_of
from veilrec.metrics.leaks import Leak, NamedRun, leak_of
from veilrec.metrics.measures import Measure, read, together
from veilrec.result import Result

__all__ = [
    "ASIDE",
    "Group",
    "cells_of",
    "defences",
    "flat",
    "grouped",
    "labels",
    "seed_of",
    "trained",
    "useful_in",
]

ASIDE = {"attack", "record", "seed", "seeds", "sweep", "threat"}  # sections that change no training
IDLE = {"data.path", "plan.workers", "plugin.path"}
UNDEFENDED = {"none", "undefended"}
MOST_TOLD = 3  # settings in a label
SPOKEN = {("apm", "low"): "ε from", ("apm", "high"): "ε to"}  # options whose name alone says too little


@dataclass(frozen=True, eq=False)
class Group:
    """Runs that differ by nothing but their seed.

    Attributes:
        label: What sets them apart from the others, in a few words.
        runs: By seed.
    """

    label: str
    runs: Mapping[Any, NamedRun]

    @property
    def results(self) -> list[Result]:
        """The results, one for each seed."""
        return [run.result for run in self.runs.values()]

    @property
    def seeds(self) -> dict[Any, Result]:
        """The results by seed."""
        return {seed: run.result for seed, run in self.runs.items()}

    @property
    def first(self) -> Result:
        """Any of them, for what is the same in all."""
        return self.results[0]

    @property
    def defended(self) -> bool:
        """Whether a defence or an eraser acts in these runs."""
        return any(name.casefold() not in UNDEFENDED for name in defences(self.first.settings))

    @property
    def collapsed(self) -> int:
        """The number of runs below the popularity floor: a group with any is not ranked."""
        return sum(result.utility.collapsed for result in self.results)

    def useful(self, metric: str) -> dict[Any, Measure]:
        """A metric of usefulness by seed, where it was measured."""
        return {seed: one for seed, result in self.seeds.items() if (one := useful_in(result, metric))}

    def mean(self, metric: str) -> Measure | None:
        """A metric of usefulness over all seeds; None where no run has it."""
        found = list(self.useful(metric).values())
        return together(found, metric) if found else None

    def leaks(self, audit: str) -> dict[str, Leak]:
        """The worst attacker's score over all seeds, by attribute; those that some run lacks are left out."""
        names = dict.fromkeys(n for r in self.results for n in r.privacy.get(audit, {}).get("attributes", {}))
        return {n: leak for n in names if (leak := leak_of(self.runs, audit, n)) is not None}

    @cached_property
    def epsilon(self) -> Epsilon:
        """The guarantee of all runs together."""
        return epsilon_of(self.results)


def cells_of(
    runs: Iterable[NamedRun], alike: Callable[[Result], str]
) -> tuple[list[dict[Any, NamedRun]], list[tuple[NamedRun, NamedRun]]]:
    """Runs that are alike, by seed; and those whose place was taken, each with the one that has it."""
    found: dict[str, dict[Any, NamedRun]] = {}
    doubles = []
    for run in runs:
        cell = found.setdefault(alike(run.result), {})
        first = cell.setdefault(seed_of(run.result), run)
        doubles += [(run, first)] if first is not run else []
    return list(found.values()), doubles


def grouped(runs: Sequence[NamedRun]) -> list[Group]:
    """Group runs by their settings without the seed.

    Raises:
        BadInput: Where two have the same settings and seed.
    """
    cells, doubles = cells_of(runs, lambda result: repr(sorted(trained(result).items())))
    for run, first in doubles:
        raise BadInput(run.name, f"the same settings and seed as {first.name}", "name each run once")
    called = labels([next(iter(cell.values())).result.settings for cell in cells])
    return [Group(label, cell) for label, cell in zip(called, cells, strict=True)]


def trained(result: Result) -> dict[str, Any]:
    """The settings of a run that training depends on, by dotted key; the seed is not among them."""
    return flat({k: v for k, v in result.settings.items() if k not in ASIDE})


def useful_in(result: Result, metric: str) -> Measure | None:
    """A metric of usefulness on test items, with its replicates where they were kept."""
    return read(result.utility.test.get(metric), result.utility_replicates.get(metric) or ())


def seed_of(result: Result) -> Any:
    """The seed of a run."""
    return result.settings.get("seed", 0)


def flat(value: Any, lead: str = "", *, every: bool = False) -> dict[str, Any]:
    """Nested settings by dotted key, without those that change no result, or `every` one of them.

    ``{"plan.rounds": 100, "defence.0.name": "laplace", …}``
    """
    if isinstance(value, Mapping) and (value or not (every and lead)):
        items = [(str(key), entry) for key, entry in value.items()]
    elif isinstance(value, list | tuple) and any(isinstance(entry, Mapping) for entry in value):
        items = [(str(place), entry) for place, entry in enumerate(value)]
    else:
        return {} if lead in IDLE and not every else {lead: value}
    found: dict[str, Any] = {}
    for key, entry in items:
        found |= flat(entry, f"{lead}.{key}" if lead else key, every=every)
    return found


def labels(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Label each run by its defence, after the model where models differ; and what sets namesakes apart."""
    models = [str((one.get("model") or {}).get("name", "")) for one in settings]
    names = [" + ".join(defences(one)) or "none" for one in settings]
    names = ["no defence" if name.casefold() in UNDEFENDED else name.replace("_", " ") for name in names]
    if len(set(models)) > 1:
        names = [f"{model}, {name}" for model, name in zip(models, names, strict=True)]
    flats = [flat({k: v for k, v in one.items() if k not in ASIDE}) for one in settings]
    told = [f"{name}{_apart(k, names, flats)}" for k, name in enumerate(names)]
    return [label if told.count(label) == 1 else f"{label} #{k + 1}" for k, label in enumerate(told)]


def _apart(k: int, names: Sequence[str], flats: Sequence[Mapping[str, Any]]) -> str:
    """`` (scale 0.02)``: the settings by which one differs from others of its name."""
    alike = [other for name, other in zip(names, flats, strict=True) if name == names[k]]
    differ = [key for key, value in flats[k].items() if any(other.get(key) != value for other in alike)]
    told = sorted((_told(key, flats[k]) for key in differ), key=lambda text: not text.startswith("ε"))
    rest = [f"and {len(told) - MOST_TOLD} more"] if len(told) > MOST_TOLD else []
    return f" ({', '.join(told[:MOST_TOLD] + rest)})" if told else ""


def _told(key: str, settings: Mapping[str, Any]) -> str:
    """``clip 0.5``: a setting in two words; 3.0 is 3."""
    where, _, option = key.rpartition(".")
    name = str(settings.get(f"{where}.name", "")).casefold() if where.startswith("defence.") else ""
    value = settings[key]
    number = isinstance(value, float) and value == round(value) and abs(value) < 1e15
    return f"{SPOKEN.get((name, option), option.replace('_', ' '))} {int(value) if number else value}"


def defences(settings: Mapping[str, Any]) -> list[str]:
    """The names of the defences, in order, then those of the erasers: whatever acts against inference."""
    found = [settings.get(section) or [] for section in ("defence", "eraser")]
    entries = [one for some in found for one in (some if isinstance(some, list | tuple) else [some])]
    names = [str(one.get("name", "")) if isinstance(one, Mapping) else str(one) for one in entries]
    return [name for name in names if name.casefold() not in UNDEFENDED] or names[:1]
