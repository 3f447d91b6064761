"""Facts of a run that are neither usefulness nor leakage: how large its data are, what erasing took."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from veilrec.metrics.measures import average
from veilrec.metrics.words import ABSENT
from veilrec.result import Result
from veilrec.runs.session import ERASING

__all__ = ["FACTS", "Fact", "fact_of"]

Runs = Mapping[int, Result]  # by seed


class Fact(NamedTuple):
    """One kind of fact: what it is called, how it is read off a run, and how it is written."""

    label: str
    read: Callable[[Result], float | None]
    form: str

    def shown(self, value: float | None) -> str:
        """The fact as a table has it."""
        return ABSENT if value is None else self.form.format(value)


def _density(run: Result) -> float:
    return float(run.data["events"]) / (float(run.data["users"]) * float(run.data["items"]))


def _seconds(run: Result) -> float | None:
    """Of the processor for erasers; a defence that acts in training has taken all of it, by the clock."""
    if run.settings.get("eraser"):
        return run.timing.get(ERASING)
    defended = any(str(one.get("name", "")).casefold() != "none" for one in run.settings.get("defence", ()))
    return float(run.timing["train"]) if defended else None


FACTS = {
    "users": Fact("users", lambda run: float(run.data["users"]), "{:,.0f}"),
    "items": Fact("items", lambda run: float(run.data["items"]), "{:,.0f}"),
    "ratings": Fact("events", lambda run: float(run.data["events"]), "{:,.0f}"),
    "density": Fact("density", _density, "{:.2%}"),
    "seconds": Fact("CPU seconds", _seconds, "{:,.2f}"),
}


def fact_of(runs: Runs, name: str) -> float | None:
    """A fact over the runs of a method: their mean, or None where none has it."""
    return average(value for run in runs.values() if (value := FACTS[name].read(run)) is not None)
