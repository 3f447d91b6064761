"""The work of ``veilrec run``: one experiment, or all those of a sweep, with progress."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from veilrec import recipe
from veilrec.cli.show.progress import Silence, showing
from veilrec.experiment import Experiment
from veilrec.interactions import Interactions
from veilrec.recipe import Recipe, cells
from veilrec.result import Result

__all__ = ["Job", "many", "one"]


@dataclass(frozen=True)
class Job:
    """How to run, whatever is run."""

    device: str = "cpu"
    resume: bool = False
    world: bool = True
    quiet: bool = False


def one(recipe: Recipe, out: Path | None, job: Job, title: str = "") -> Result:
    """Run a recipe that is a single experiment."""
    select = recipe.values["evaluation"]["select"]
    with recipe.blaming(), showing(select, title, quiet=job.quiet) as progress:
        progress.phase(f"loading {recipe.values['data']['name']}")
        experiment = recipe.experiment(device=job.device)
        return experiment.run(out, resume=job.resume, recipe=recipe, progress=progress, world=job.world)


def many(recipe: Recipe, out: Path, job: Job) -> list[tuple[dict[str, Any], Result]]:
    """Run every cell of a sweep and every seed: what sets each apart, and its result."""
    chosen, shelf = recipe.cells(), Shelf(job.device)
    with recipe.blaming(), showing(recipe.values["evaluation"]["select"], quiet=job.quiet) as progress:
        progress.phase(f"loading {recipe.values['data']['name']}")
        shelf.check(chosen)
        turns = []
        for place, cell in enumerate(chosen, 1):
            make = shelf.turn(cell, f"{place} of {len(chosen)}: {cell.name}", progress)
            turns.append(cells.Cell(cell.name, make, cell.settings, cell.recipe))
        results = cells.run_cells(turns, out, resume=job.resume, progress=progress, world=job.world)
    return [(cell.settings, results[cell.name]) for cell in chosen]


class Shelf:
    """Makes the experiments of a sweep; cells in a row that share their data share the log."""

    def __init__(self, device: str) -> None:
        self.device = device
        self._held: tuple[str, Interactions] | None = None

    def experiment(self, recipe: Recipe) -> Experiment:
        """The experiment of a cell."""
        key = json.dumps(recipe.values["data"], sort_keys=True)
        if self._held is None or self._held[0] != key:
            self._held = (key, recipe.data())
        return recipe.experiment(self._held[1], device=self.device)

    def check(self, chosen: list[recipe.Cell]) -> None:
        """Refuse, before anything is written, cells whose parts do not go together with their data."""
        seen: set[str] = set()
        for cell in chosen:
            parts = {name: cell.recipe.values[name] for name in ("data", "model", "defence", "evaluation")}
            key = json.dumps(parts, sort_keys=True)
            if key not in seen:
                seen.add(key)
                with cell.recipe.blaming():
                    _ = self.experiment(cell.recipe).federation().fleet.candidates()  # drawn, or refused

    def turn(self, cell: recipe.Cell, title: str, progress: Silence) -> Callable[[], Experiment]:
        """What makes a cell's experiment when its turn has come."""

        def make() -> Experiment:
            progress.begin(title)
            return self.experiment(cell.recipe)

        return make
