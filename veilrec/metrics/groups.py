"""Groups: runs that differ only by seed, with a label that says what sets them apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from veilrec.errors import BadInput
from veilrec.metrics.epsilons import Epsilon, epsilon_of
from veilrec.metrics.leaks import Leak, Run, leak_of
from veilrec.metrics.measures import Measure, read, together
from veilrec.result import Result

__all__ = [
    "ASIDE",
    "Group",
    "Scored",
    "defences",
    "defended",
    "flat",
    "grouped",
    "labels",
    "scored",
    "seed_of",
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
    runs: Mapping[Any, Run]

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
        return defended(self.first.settings)

    @property
    def collapsed(self) -> int:
        """The number of runs below the popularity floor: a group with any is not ranked."""
        return sum(result.utility.collapsed for result in self.results)

    def useful(self, metric: str) -> dict[Any, Measure]:
        """A metric of usefulness by seed, where it was measured."""
        return {seed: one for seed, result in self.seeds.items() if (one := useful_in(result, metric))}

    @cached_property
    def epsilon(self) -> Epsilon:
        """The guarantee of all runs together."""
        return epsilon_of(self.results)


@dataclass(frozen=True, eq=False)
class Scored(Group):
    """A group with the numbers that were asked for.

    Attributes:
        settings: What sets the group apart, by dotted key.
        utility: By the metric that was asked for.
        leaks: By attribute.
    """

    settings: Mapping[str, Any]
    utility: Measure
    leaks: Mapping[str, Leak]


def grouped(runs: Sequence[Run]) -> list[tuple[str, dict[str, Any], dict[int, Run]]]:
    """Runs by their settings without the seed: label, what sets them apart, and the runs by seed."""
    found: dict[str, dict[int, Run]] = {}
    whole: dict[str, dict[str, Any]] = {}
    for run in runs:
        told = flat({k: v for k, v in run.result.settings.items() if k not in ASIDE})
        key, seed = repr(sorted(told.items())), int(seed_of(run.result))
        mine = found.setdefault(key, {})
        if seed in mine:
            what = f"the same settings and seed as {mine[seed].name}"
            raise BadInput(run.name, what, "name each run once")
        mine[seed], whole[key] = run, told
    names = dict.fromkeys(name for told in whole.values() for name in told)
    differ = [name for name in names if len({repr(told.get(name)) for told in whole.values()}) > 1]
    apart = {key: {name: told[name] for name in differ if name in told} for key, told in whole.items()}
    called = labels([next(iter(mine.values())).result.settings for mine in found.values()])
    return [(label, apart[key], mine) for label, (key, mine) in zip(called, found.items(), strict=True)]


def scored(label: str, told: Mapping[str, Any], runs: dict[int, Run], metric: str, audit: str) -> Scored:
    """The numbers of some runs as one."""
    results = [run.result for run in runs.values()]
    names = dict.fromkeys(n for r in results for n in r.privacy.get(audit, {}).get("attributes", {}))
    leaks = {name: leak for name in names if (leak := leak_of(runs, audit, name)) is not None}
    useful = [one for result in results if (one := useful_in(result, metric))]
    return Scored(label, runs, told, together(useful), leaks)


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


def defended(settings: Mapping[str, Any]) -> bool:
    """Whether a defence or an eraser acts in these runs."""
    return any(name.casefold() not in UNDEFENDED for name in defences(settings))
