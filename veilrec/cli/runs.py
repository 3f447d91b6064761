"""``veilrec run``, ``evaluate`` and ``recommend``: make a run, judge it again, see what a user is shown."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veilrec.cli.arguments import (
    Data,
    DataDir,
    Device,
    Json,
    Plugins,
    Quiet,
    RecipePath,
    Run,
    Seed,
    Sets,
    follows,
    print_json,
)
from veilrec.errors import BadInput

if TYPE_CHECKING:
    from veilrec.cli.work import RunOptions
    from veilrec.runs.needs.phases import Needs

__all__ = ["evaluate", "recommend", "run"]

TAKES = "Take over this run's training: only erasers and attacks differ."
Trained = Annotated[Path | None, typer.Option("--trained", metavar="RUN", help=TAKES)]

AfterUnlearning = Annotated[
    bool,
    typer.Option(
        "--after-unlearning", help="Give the result of one that was made to forget: nothing is trained."
    ),
]


def run(
    recipe: RecipePath,
    set_: Sets = None,
    seed: Seed = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="The run directory; by default under runs/.")
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(
            "--budget", metavar="E", help="Stop before the uploads of a user cost more than this ε."
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a run that was stopped.")] = False,
    after_unlearning: AfterUnlearning = False,
    plan: Annotated[
        bool, typer.Option("--plan", help="Say what memory and disk it needs, and write nothing.")
    ] = False,
    device: Device = "cpu",
    data_dir: DataDir = None,
    plugin: Plugins = None,
    no_world: Annotated[
        bool, typer.Option("--no-world", help="Leave the data out of the run directory.")
    ] = False,
    trained: Trained = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run a recipe: train, select on validation, test once, and leave a run directory."""
    from veilrec.cli import work
    from veilrec.recipe import Recipe

    changes = [*(set_ or ()), *([] if budget is None else [f"plan.budget={budget}"])]
    loaded = Recipe.load(recipe, changes, seed=seed, data_dir=data_dir, has_data=not follows())
    job = work.RunOptions(device, resume, after_unlearning, not no_world, quiet, trained=trained)
    if plan:
        _tell_needs(recipe.name, work.needs(loaded, job), as_json)
        return
    if "seeds" in loaded.values or "sweep" in loaded.values:
        if trained is not None:
            raise BadInput("--trained", "the recipe makes several runs", "take one of its seeds and cells")
        place = out or Path("runs") / recipe.stem
        with work.sharing(job) as job:
            results = work.many(loaded, place, job)
        _tell_untrained(any(one.erased for _, one in results), job)
        if job.tells:
            _tell_all(results, place, as_json)
        return
    place = out or Path("runs") / f"{recipe.stem}-{loaded.seeds[0]}"
    with work.sharing(job) as job:
        result = work.one(loaded, place, job)
    _tell_untrained(bool(result.erased), job)
    if not job.tells:
        return
    if as_json:
        print_json(asdict(result))
        return
    from veilrec.cli.show.summaries import print_result

    print_result(result, place)


def _tell_untrained(erased: bool, job: RunOptions) -> None:
    """Say that a run that was made to forget is as it was."""
    if erased and job.after_unlearning:
        said = "nothing was trained: a run that was made to forget is finished, and cannot be trained on"
        print(said, file=sys.stderr)


def _tell_needs(name: str, found: list[tuple[dict[str, Any], Needs]], as_json: bool) -> None:
    if as_json:
        print_json({"runs": [{"settings": settings, **needs.told()} for settings, needs in found]})
        return
    from veilrec.cli.show.needs import print_needs

    print_needs(name, found)


def _tell_all(results: list[tuple[dict[str, Any], Any]], place: Path, as_json: bool) -> None:
    if as_json:
        told = [{"settings": settings, "result": asdict(result)} for settings, result in results]
        print_json({"out": str(place), "cells": told})
        return
    from veilrec.cli.show.summaries import print_cells

    print_cells(results, place)


def evaluate(
    run: Run,
    candidates: Annotated[
        int | None, typer.Option(min=0, help="Rank against so many untouched items; 0 for all of them.")
    ] = None,
    ks: Annotated[str | None, typer.Option(metavar="K,K,…", help="Lengths of the list, as in 5,10.")] = None,
    data: Data = None,
    data_dir: DataDir = None,
    plugin: Plugins = None,
    device: Device = "cpu",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Score a finished run again, from its directory alone; also with other candidates or lengths."""
    from veilrec.cli import finished
    from veilrec.cli.show.progress import showing
    from veilrec.cli.show.summaries import print_utility

    lengths = _lengths(ks)
    with showing("", quiet=quiet) as progress:
        progress.phase(f"opening {run}")
        opened = finished.reopen(run, data, data_dir, device)
        progress.phase("ranking every user's test item")
        utility = finished.judge(opened, candidates, lengths)
    if as_json:
        print_json({"run": str(run), "selected": opened.run.result.selected, **utility})
        return
    result = opened.run.result
    print(f"{run}, round {result.selected} of {result.rounds}:")
    print_utility(result.settings["model"]["name"], utility)


def _lengths(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise BadInput(f"--ks {text}", "no list of lengths", "write it as 5,10,20")
    return tuple(dict.fromkeys(int(part) for part in parts))


def recommend(
    run: Run,
    user: Annotated[str, typer.Option("--user", metavar="ID", help="The user's original id.")],
    k: Annotated[int, typer.Option("-k", min=1, help="How many items.")] = 10,
    data: Data = None,
    data_dir: DataDir = None,
    plugin: Plugins = None,
    device: Device = "cpu",
    as_json: Json = False,
) -> None:
    """Show what a user would be recommended: items they have not touched, best first."""
    from veilrec.cli import finished
    from veilrec.cli.show.summaries import print_list

    listed: list[dict[str, Any]] = finished.recommend(finished.reopen(run, data, data_dir, device), user, k)
    if as_json:
        print_json({"run": str(run), "user": user, "items": listed})
        return
    print_list(user, listed)
