"""Cells: the runs that tables are made of, and which of them are there as they are asked for."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from veilrec.base.plain import check_folder, writing
from veilrec.errors import BadInput, nearest
from veilrec.lab.presets import preset
from veilrec.metrics.alike import FREE
from veilrec.metrics.groups import ASIDE, flat
from veilrec.metrics.leaks import NamedRun
from veilrec.recipe import Recipe
from veilrec.recipe.settings import plain, shown
from veilrec.reproduction.contents import Table
from veilrec.reproduction.paper import Paper
from veilrec.result import Result
from veilrec.runs.integrity.manifest import is_finished

__all__ = ["FinishedRuns", "PaperCell", "cells_of", "other_audits", "other_settings"]

IDLE = ("plan.chunk", "plan.workers")  # they change no number


@dataclass(frozen=True)
class PaperCell:
    """One run: a method on a dataset with a seed.

    Attributes:
        dataset, method, seed: Which.
        data: What veilrec calls the dataset.
        file, sets: Its recipe, and what is changed in it.
        folder: Where it lies, finished or not.
        source: Where the run lies whose training it takes over; None where it trains by itself.
        seconds: Of the processor that it takes, where somebody has measured it.
    """

    dataset: str
    data: str
    method: str
    seed: int
    file: Path
    sets: tuple[str, ...]
    folder: Path
    source: Path | None = None
    seconds: float | None = None

    @property
    def name(self) -> str:
        """``ml-100k/pure/seed=0``."""
        return f"{self.dataset}/{self.method}/seed={self.seed}"

    @property
    def finished(self) -> bool:
        """Whether the result of the cell is there."""
        return is_finished(self.folder)

    @property
    def state(self) -> str:
        """``finished``, ``begun`` or ``to run``."""
        if self.finished:
            return "finished"
        return "begun" if self.folder.is_dir() and any(self.folder.iterdir()) else "to run"

    def check_place(self) -> None:
        """Refuse folders of its own that links stand for: they would lead out of the place of all runs.

        Raises:
            BadInput: With the link.
        """
        for folder in (*reversed(self.folder.parents[:2]), self.folder):  # DATASET/METHOD/seed=SEED
            with writing(folder):
                check_folder(folder)

    def recipe(self, data_dir: Path | None = None, *, has_data: bool = True) -> Recipe:
        """Its recipe, checked; with `has_data` false the dataset need not be there.

        Raises:
            BadInput: With file and line, for whatever will not do.
        """
        return Recipe.load(self.file, self.sets, seed=self.seed, data_dir=data_dir, has_data=has_data)


def cells_of(
    paper: Paper,
    tables: Mapping[str, Table],
    datasets: Sequence[str],
    seeds: int,
    out: Path,
    *,
    only: Sequence[str] = (),
    named: Sequence[str] = (),
    extra: bool = True,
) -> list[PaperCell]:
    """Every run that the tables need, once; seeds outermost, so that a whole table is there early.

    Raises:
        BadInput: Where a dataset or a method is unknown, or a table or method that is `named` by itself is
            not among what is chosen.
    """
    _refuse_unknown(paper, datasets, only)
    for name in named:
        if not any(tables[name].on(dataset) for dataset in datasets):
            what = f"{name} is not on {' or '.join(datasets)}"
            raise BadInput("--dataset", what, f"choose of: {', '.join(tables[name].datasets)}")
    wanted: dict[tuple[int, str, str], None] = {}
    kept = {*only, *(paper.methods[name].trained for name in only)}
    for seed in range(seeds):
        for dataset in datasets:
            for table in tables.values():
                rows = (table.rows if extra else table.methods) if table.on(dataset) else ()
                wanted |= dict.fromkeys((seed, dataset, name) for row in rows for name in _chain(paper, row))
    _refuse_absent(only, {row for _, _, row in wanted}, tables)
    chosen = [one for one in wanted if not only or one[2] in kept]
    return [_cell(paper, out, dataset, method, seed) for seed, dataset, method in chosen]


def _chain(paper: Paper, method: str) -> list[str]:
    """A method behind the one that it begins with, if any."""
    return [*filter(None, [paper.methods[method].trained]), method]


def _cell(paper: Paper, out: Path, dataset: str, method: str, seed: int) -> PaperCell:
    before, place = paper.methods[method].trained, out / dataset
    return PaperCell(
        dataset,
        paper.datasets[dataset].name or dataset,
        method,
        seed,
        paper.recipe(method),
        tuple(paper.changes(method, dataset)),
        place / method / f"seed={seed}",
        place / before / f"seed={seed}" if before else None,
        paper.seconds(method, dataset),
    )


def _refuse_unknown(paper: Paper, datasets: Sequence[str], only: Sequence[str]) -> None:
    for what, names, known in (("--dataset", datasets, paper.datasets), ("--only", only, paper.methods)):
        for name in names:
            if name not in known:
                raise BadInput(what, f'{paper.name} has no "{name}"', nearest(name, known))


def _refuse_absent(only: Sequence[str], rows: Collection[str], tables: Mapping[str, Table]) -> None:
    for name in only:
        if name not in rows:
            raise BadInput("--only", f'"{name}" is no row of {", ".join(tables)} here', nearest(name, rows))


class FinishedRuns:
    """Finished runs by dataset, method and seed, each read once from its folder.

    Attributes:
        out: The folder that holds all of them.
        seeds: How many seeds are asked for: 0, 1, …
    """

    def __init__(self, out: Path, seeds: int) -> None:
        self.out, self.seeds = out, seeds
        self._read: dict[Path, Result] = {}

    def runs(self, dataset: str, method: str) -> dict[int, Result]:
        """The results that are there, by seed.

        Raises:
            Corrupted: Where one is not what a run wrote.
        """
        found = {}
        for seed in range(self.seeds):
            folder = self.out / dataset / method / f"seed={seed}"
            if is_finished(folder):
                if folder not in self._read:
                    self._read[folder] = Result.load(folder)
                found[seed] = self._read[folder]
        return found

    def named(self, dataset: str, method: str) -> list[NamedRun]:
        """The same results with the paths of their runs."""
        place = self.out / dataset / method
        return [
            NamedRun(str(place / f"seed={seed}"), run) for seed, run in self.runs(dataset, method).items()
        ]


def other_settings(cell: PaperCell, result: Result) -> list[str]:
    """List settings of a finished run that its recipe has changed since: ``plan.lr was 0.1, is 0.5``.

    One that the run does not know, since veilrec has learned it later, is a difference where the recipe asks
    for it; its default is what the run was made with. One of the attack is not: that can be made again.
    """
    try:
        recipe = cell.recipe(has_data=False)
    except BadInput as error:
        return [f"its recipe cannot be read any more ({error})"]
    asked = {name for name, who in recipe.origins.items() if who != "default"}
    now, then = flat({k: v for k, v in recipe.values.items() if k not in ASIDE}), flat(dict(result.settings))
    here, there = ({_option(key) for key in some} for some in (now, then))
    held = here & (there | asked)  # what both know, and what the recipe asks for
    return [
        f"{key} was {_told(then, key)}, is {_told(now, key)}"
        for key in dict.fromkeys((*now, *then))
        if _option(key) in held and key not in IDLE
        if (key in now) != (key in then) or now[key] != then[key]
    ]


def other_audits(cell: PaperCell, result: Result) -> list[str]:
    """List audits that a recipe asks for and a finished run lacks, or made by another protocol of that name.

    They need no training: ``veilrec attack RUN --preset NAME`` makes them.
    """
    try:
        threat = cell.recipe(has_data=False).values["threat"]
    except BadInput:  # told with the settings that differ
        return []
    found = []
    for audit in (preset(name, threat["attributes"]) for name in threat["also"]):
        if audit.name not in result.privacy:
            found.append(f"audit {audit.name} was not made")
            continue
        now, then = plain(asdict(audit.threat)), result.privacy[audit.name].get("threat") or {}
        found += [
            f"{key} of audit {audit.name} was {shown(then[key])}, is {shown(value)}"
            for key, value in now.items()
            if key in then and then[key] != value and key not in FREE
        ]
    return found


def _option(key: str) -> str:
    """The setting that a key is of: ``protocol.server_lr`` of ``protocol.server_lr.item``."""
    parts = key.split(".")
    return ".".join(parts[: 3 if parts[1:2] and parts[1].isdigit() else 2])


def _told(settings: Mapping[str, Any], key: str) -> str:
    return shown(settings[key]) if key in settings else "nothing"
