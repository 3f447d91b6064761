"""The work of ``veilrec run``: one experiment, or all those of a sweep, with progress."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from veilrec.cli.progress import showing
from veilrec.recipe import Recipe
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


def many(recipe: Recipe, out: Path, job: Job, *, as_json: bool) -> None:
    """Run every cell of a sweep and every seed."""
    raise NotImplementedError
