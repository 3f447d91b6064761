"""Tables: every number that a table of a paper asks for, ours and theirs, method by method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from veilrec.errors import BadInput
from veilrec.lab.presets import PRESETS
from veilrec.metrics.alike import refuse_mixtures
from veilrec.metrics.measures import Measure, together
from veilrec.reproduction.cells import FinishedRuns
from veilrec.reproduction.contents import Table
from veilrec.reproduction.numbers import WORST, Quantity, floors_of, minus, value_of
from veilrec.reproduction.paper import Paper
from veilrec.reproduction.popularity import floor_of
from veilrec.result import Result

__all__ = ["Entry", "Page", "Row", "attacks", "beside", "page_of", "reported", "values_of"]


@dataclass(frozen=True)
class Entry:
    """One number of a method.

    Attributes:
        what: Which number.
        ours: The mean over seeds with its interval; None where no run has it.
        theirs: What the paper reports; None where it prints none.
        seeds: How many runs have it.
        mute: In how many of them the attacker said the same of everybody.
    """

    what: Quantity
    ours: Measure | None
    theirs: float | None
    seeds: int
    mute: int = 0

    @property
    def difference(self) -> float | None:
        """Ours minus theirs."""
        return None if self.ours is None or self.theirs is None else self.ours.value - self.theirs


@dataclass(frozen=True)
class Row:
    """One method of a table on a dataset.

    Attributes:
        method, label: Its key, and what it is called.
        extra: Whether it is ours alone.
        runs: Its finished runs by seed.
        entries: Its numbers.
        above: Usefulness minus popularity, on the same users; None where there is no run.
        against: The method whose cost is 1 for it, if any.
    """

    method: str
    label: str
    extra: bool
    runs: dict[int, Result]
    entries: dict[Quantity, Entry]
    above: Measure | None
    against: str = ""

    @property
    def collapsed(self) -> int:
        """The number of the row's runs that are below the popularity floor."""
        return sum(result.utility.collapsed for result in self.runs.values())


@dataclass(frozen=True)
class Page:
    """A table of a paper on one dataset.

    Attributes:
        name, table, dataset: Which.
        columns: The attack's numbers by attribute, in the order of the columns.
        rows: Its methods.
        floors: What blind guesses reach, by number and kind of guess.
        popularity: The floor of usefulness by metric; empty where nothing was run.
        seeds: How many are asked for.
        missing: Runs that are not there: ``pure/seed=2``.
    """

    name: str
    table: Table
    dataset: str
    columns: dict[str, list[Quantity]]
    rows: list[Row]
    floors: dict[Quantity, dict[str, float]]
    popularity: Mapping[str, float]
    seeds: int
    missing: list[str]

    @property
    def ran(self) -> list[Row]:
        """The rows of which some run is there."""
        return [row for row in self.rows if row.runs]

    def row(self, method: str) -> Row | None:
        """The row of a method."""
        return next((row for row in self.rows if row.method == method), None)


def page_of(paper: Paper, name: str, dataset: str, finished: FinishedRuns, *, extra: bool = True) -> Page:
    """A table on a dataset, from the runs that are there.

    Raises:
        BadInput: Where runs were made on other data, or scored by another protocol.
    """
    table = paper.tables[name]
    methods = table.rows if extra else list(table.methods)
    found = [run for method in methods for run in finished.named(dataset, method)]
    if found:
        refuse_mixtures(found)
    known = [attribute for attribute in table.attributes if paper.datasets[dataset].has(attribute)]
    columns = {attribute: _columns(paper, table, attribute) for attribute in known}
    rows = [_row(paper, name, dataset, method, columns, finished) for method in methods]
    results = [run.result for run in found]
    every = [what for some in columns.values() for what in some]
    return Page(
        name,
        table,
        dataset,
        columns,
        rows,
        {what: floors_of(results, what) for what in every},
        results[0].utility.floor if results else {},
        finished.seeds,
        [f"{row.method}/seed={s}" for row in rows for s in range(finished.seeds) if s not in row.runs],
    )


def _columns(paper: Paper, table: Table, attribute: str) -> list[Quantity]:
    found = []
    for audit, score in product(table.audits, paper.scores_of(table, attribute)):
        for attacker in table.attackers:
            if attacks(audit, attacker):
                found.append(Quantity(score, attribute, audit, attacker))
        for part in table.parts:
            found.append(Quantity(score, attribute, audit, part=part))
    return found


def attacks(audit: str, attacker: str) -> bool:
    """Whether an audit has an attacker of a name; one that somebody put together may have any."""
    found = PRESETS.get(audit.partition("@")[0])
    if found is None or attacker == WORST:
        return True
    return attacker in {name or entry for entry, one in found.attacks.items() for name in one.unfold()}


def beside(paper: Paper, columns: Sequence[Quantity]) -> list[Quantity]:
    """The same attacks by the other scores."""
    every = dict.fromkeys(what._replace(score=one) for what in columns for one in paper.beside)
    return [what for what in every if what not in columns]


def _row(
    paper: Paper,
    name: str,
    dataset: str,
    method: str,
    columns: dict[str, list[Quantity]],
    finished: FinishedRuns,
) -> Row:
    table = paper.tables[name]
    runs, extra = finished.runs(dataset, method), method in table.extra
    shown = [what for some in columns.values() for what in some]
    entries = {}
    for what in [*shown, *beside(paper, shown), *map(Quantity, paper.metrics_of(table))]:
        values = values_of(runs, what)
        ours = together(list(values.values()), what.score) if values else None
        theirs = None if extra else reported(paper, name, dataset, method, what)
        mute = sum(value.mute for value in values.values())
        entries[what] = Entry(what, ours, theirs, len(values), mute)
    above = _above(runs, paper.metric, finished.out / dataset)
    one = paper.methods[method]
    return Row(method, one.label, extra, runs, entries, above, one.against)


def values_of(runs: dict[int, Result], what: Quantity) -> dict[int, Measure]:
    """A number of each run that has it, by seed."""
    return {seed: value for seed, run in runs.items() if (value := value_of(run, what)) is not None}


def _above(runs: dict[int, Result], metric: str, folder: Path) -> Measure | None:
    """Usefulness minus popularity, paired by user where the floor's resamples are kept."""
    ours = values_of(runs, Quantity(metric))
    floor = {s: value for s, run in runs.items() if (value := floor_of(folder, run, metric)) is not None}
    return minus(ours, floor)


def reported(paper: Paper, name: str, dataset: str, method: str, what: Quantity) -> float | None:
    """The number that the paper prints, or None; an empty field of ``reported.csv`` fits everything.

    Raises:
        BadInput: Where rows with different values fit.
    """
    if what.score not in paper.reported:
        return None
    one = paper.methods[method]
    wanted = {"dataset": paper.datasets[dataset].label, **paper.reported[what.score]}
    wanted |= one.reported or {"method": one.label}
    wanted |= _named(paper, what) if what.attribute else {}
    for table in paper.tables[name].reported or [name]:
        rows = [row for row in paper.figures if row["table"] == table and _fits(row, wanted)]
        if len({float(row["value"]) for row in rows}) > 1:
            where = paper.folder / "reported.csv"
            raise BadInput(where, f"{len(rows)} rows of {table} fit {wanted}", "tell them apart")
        if rows:
            return float(rows[0]["value"])
    return None


def _named(paper: Paper, what: Quantity) -> dict[str, str]:
    """The columns by which an attack's number is found."""
    attribute, audit = paper.attributes[what.attribute], paper.audits[what.audit]
    by = paper.parts[what.part] if what.part else paper.attackers[what.attacker]
    return {
        **(attribute.reported or {"attribute": attribute.label}),
        **(audit.reported or {"setting": audit.label}),
        **(by.reported or {"attacker": by.label}),
    }


def _fits(row: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    return all(row.get(column, "") in (value, "") for column, value in wanted.items())
