"""The work of ``veilrec run``: one experiment, or all those of a sweep, with progress."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from veilrec.base.limits.heap import return_freed
from veilrec.cli.arguments import launched
from veilrec.cli.show.progress import showing
from veilrec.errors import BadInput
from veilrec.experiment import Experiment
from veilrec.interactions import Interactions
from veilrec.recipe import Recipe
from veilrec.recipe.cells import Cell, run_cells
from veilrec.result import Result

if TYPE_CHECKING:
    from veilrec.engine.ranks.links import Link
    from veilrec.runs.needs.phases import Needs

__all__ = ["ExperimentMaker", "RunOptions", "many", "needs", "one", "sharing"]

PATIENCE = 60.0  # seconds without a sign of life while a recipe is read; then it is the recipe's


@dataclass(frozen=True)
class RunOptions:
    """Options of a command that hold for one run as for many.

    Attributes:
        device, resume, after_unlearning, world, quiet: The options of the command.
        link: The other processes that share the work, where ``torchrun`` started several.
        trained: A finished run whose training is taken over.
    """

    device: str = "cpu"
    resume: bool = False
    after_unlearning: bool = False
    world: bool = True
    quiet: bool = False
    link: Link | None = None
    trained: Path | None = None

    @property
    def tells(self) -> bool:
        """Whether this process is the one that prints."""
        return self.link is None or self.link.leads


@contextmanager
def sharing(job: RunOptions) -> Iterator[RunOptions]:
    """A job with the processes that ``torchrun`` started; again after one was lost, it is resumed."""
    if not launched():
        yield job
        return
    from veilrec.engine.ranks.homes import gpu_of
    from veilrec.engine.ranks.links import joined

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    device = gpu_of(job.device, int(os.environ["LOCAL_RANK"]), count)
    with joined(PATIENCE) as link, warnings.catch_warnings():
        if not link.leads:
            warnings.simplefilter("ignore")
        return_freed()  # a run is shared where memory is short
        quiet = job.quiet or not link.leads
        yield replace(job, device=device, resume=job.resume or link.again, quiet=quiet, link=link)


def one(
    recipe: Recipe, out: Path | None, job: RunOptions, title: str = "", maker: ExperimentMaker | None = None
) -> Result:
    """Run a recipe that is a single experiment, with the log that a maker holds if it is of the same data."""
    select = recipe.values["evaluation"]["select"]
    with recipe.blaming(), showing(select, title, quiet=job.quiet) as progress:
        progress.phase(f"loading {recipe.values['data']['name']}")
        experiment = (maker or ExperimentMaker(job.device, reads=job.tells)).experiment(recipe)
        return experiment.run(
            out,
            resume=job.resume,
            after_unlearning=job.after_unlearning,
            recipe=recipe,
            progress=progress,
            world=job.world,
            link=job.link,
            trained=job.trained,
        )


def needs(recipe: Recipe, job: RunOptions) -> list[tuple[dict[str, Any], Needs]]:
    """What each cell of a sweep needs, or a recipe that is a single experiment; seeds need the same."""
    maker, found = ExperimentMaker(job.device), []
    with recipe.blaming(), showing("", quiet=job.quiet) as progress:
        progress.phase(f"loading {recipe.values['data']['name']}")
        for cell in maker.different(recipe.cells()):
            progress.phase(f"trying a few devices: {cell.name}")
            with cell.recipe.blaming():
                settings = {key: value for key, value in cell.settings.items() if key != "seed"}
                found.append((settings, maker.experiment(cell.recipe).needs()))
    return found


def many(recipe: Recipe, out: Path, job: RunOptions) -> list[tuple[dict[str, Any], Result]]:
    """Run every cell of a sweep and every seed: what sets each apart, and its result."""
    chosen, maker = recipe.cells(), ExperimentMaker(job.device, reads=job.tells)
    places = {cell.name: f"{place} of {len(chosen)}: {cell.name}" for place, cell in enumerate(chosen, 1)}
    with recipe.blaming(), showing(recipe.values["evaluation"]["select"], quiet=job.quiet) as progress:
        progress.phase(f"loading {recipe.values['data']['name']}")
        if job.tells:
            maker.check(chosen)

        def make(cell: Cell[Recipe]) -> Experiment:
            progress.begin(places[cell.name])
            return maker.experiment(cell.recipe)

        results = run_cells(
            chosen,
            make,
            out,
            resume=job.resume,
            progress=progress,
            world=job.world,
            link=job.link,
            after_unlearning=job.after_unlearning,
        )
    return [(cell.settings, results[cell.name]) for cell in chosen]


class ExperimentMaker:
    """Makes the experiments of a sweep; cells in a row that share their data share the log.

    Args:
        device: ``cpu`` or ``cuda``.
        reads: Whether this process reads the data. One that does not is sent that of its own devices.
    """

    def __init__(self, device: str, *, reads: bool = True) -> None:
        self.device, self.reads = device, reads
        self._held: tuple[str, Interactions] | None = None

    def experiment(self, recipe: Recipe) -> Experiment:
        """The experiment of a cell."""
        if not self.reads:
            return recipe.experiment(nobody(), device=self.device)
        key = json.dumps(recipe.values["data"], sort_keys=True)
        if self._held is None or self._held[0] != key:
            self._held = (key, recipe.data())
        return recipe.experiment(self._held[1], device=self.device)

    def check(self, chosen: list[Cell[Recipe]]) -> None:
        """Refuse, before anything is written, cells whose parts do not go together, or that cannot fit.

        Raises:
            BadInput: With the cell, where there are several.
        """
        several = len(list(self.different(chosen))) > 1
        for cell in self.different(chosen):
            with _naming(cell.name if several else ""), cell.recipe.blaming():
                self.experiment(cell.recipe).checked().fleet.check_candidates()

    def different(self, chosen: list[Cell[Recipe]]) -> Iterator[Cell[Recipe]]:
        """The cells that differ by more than their seed."""
        seen: set[str] = set()
        for cell in chosen:
            key = json.dumps({**cell.recipe.values, "seed": 0, "seeds": 0}, sort_keys=True)
            if key not in seen:
                seen.add(key)
                yield cell


@contextmanager
def _naming(cell: str) -> Iterator[None]:
    """Say of an error in which cell it is, before the way out."""
    try:
        yield
    except BadInput as error:
        if not cell:
            raise
        where, _, said = str(error).partition(": ")
        what, _, fix = said.partition("; ")
        raise BadInput(where, f"{what} (cell {cell})", fix) from error


def nobody() -> Interactions:
    """A log without users, for a process that reads none."""
    none = torch.zeros(0, dtype=torch.int64)
    return Interactions(user=none, item=none, n_users=0, n_items=0, user_ids=(), item_ids=())
