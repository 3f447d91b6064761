"""``veilrec demo``: the whole line on an embedded world, with no arguments, no data and no network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veilrec.cli.arguments import Json, Quiet, load_plugins, print_json

if TYPE_CHECKING:
    from veilrec.result import Result

__all__ = ["demo"]

REPORT, AUDIT = "report.html", "custom"
PERSON, SHOWN = "u0042", "hr@10"
BASE: dict[str, Any] = {
    "data": {"name": "synthetic", "users": 500},
    "model": {"name": "FedMF", "dim": 16},
    "protocol": {"sends": "gradients", "server": "adam", "server_lr": 0.02},
    "plan": {"rounds": 60, "cohort": 0.5, "batch": 4096, "optimiser": "adam", "lr": 0.05},
    "evaluation": {"candidates": 99, "ks": [5, 10]},
    "threat": {"attributes": ["gender", "age", "region"]},
    "attack": [
        {"name": "AttributeInference", "reads": reads, "classifiers": ["logistic", "mlp", "tree", "knn"]}
        for reads in ("updates", "profile")
    ],
}
DEFENCES: dict[str, list[dict[str, Any]]] = {
    "undefended": [{"name": "none"}],
    "laplace": [{"name": "Laplace", "what": "gradients", "clip": 0.002, "scale": 0.001, "rows": "all"}],
    "early-stop": [{"name": "EarlyStop", "rounds": 20}],
}
EXPLAINED = """\
hr@10: how often the film that a person watched last is among ten recommended, out of that film and 99 others.
Popularity shows everyone the same films; a model that is not above it has learned nothing personal.
AUC of an attribute: how often the worst of four families of attackers tells people of two classes apart; it
sees one upload of everybody and knows the attribute of every fifth person. 0.50 is chance.
Whether a user touched an item: the same for "did this person watch this film", from one upload of theirs.
"""


def demo(
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            metavar="DIR",
            file_okay=False,
            help="Where its runs go; those that are there are shown again.",
        ),
    ] = Path("runs/demo"),
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train on an embedded world, attack what the server saw, write a report; no data, no network."""
    load_plugins(None)
    from veilrec.cli.report import write_report
    from veilrec.cli.work import RunOptions, one
    from veilrec.recipe import Recipe

    job, results = RunOptions(resume=True, quiet=quiet), {}
    for place, (name, defence) in enumerate(DEFENCES.items(), 1):
        recipe = Recipe.of({**BASE, "defence": defence}, "demo")
        results[name] = one(recipe, out / name, job, f"{place} of {len(DEFENCES)}: {name}")
    write_report([out / name for name in DEFENCES], out / REPORT, title="veilrec demo")
    if as_json:
        print_json({name: asdict(result) for name, result in results.items()})
        return
    _print(results, out)


def _print(results: Mapping[str, Result], out: Path) -> None:
    """Usefulness and leakage beside each other, what the first run gives away, and what a person is shown."""
    from veilrec.cli import finished
    from veilrec.cli.compare import print_table
    from veilrec.cli.show.leaks import print_verdicts
    from veilrec.cli.show.summaries import print_list
    from veilrec.cli.show.tables import console
    from veilrec.metrics.comparison import compare
    from veilrec.metrics.leaks import NamedRun

    screen, (name, first) = console(), next(iter(results.items()))
    screen.print(
        f"\n{first.data['users']:,} people who do not exist, {first.data['items']:,} films, "
        f"{first.data['events']:,} viewings. "
        "Each person is a device of their own: the log stays on it, and gradients leave it.\n",
        style="bold",
    )
    print_table(compare([NamedRun(run, result) for run, result in results.items()], metric=SHOWN))
    screen.print(f"\n{EXPLAINED}\n{name}:", style="bold")
    print_verdicts(first.privacy[AUDIT])
    screen.print()
    print_list(PERSON, finished.recommend(finished.reopen(out / name), PERSON, 3))
    _next(out, name)


def _next(out: Path, run: str) -> None:
    from veilrec.cli.show.tables import console

    console().print(
        f"The report: {out / REPORT}\n\n"
        f"Try next:\n"
        f"  veilrec attack {out / run} --preset pard\n"
        f"  veilrec compare {' '.join(str(out / name) for name in DEFENCES)}\n"
        f"  veilrec recommend {out / run} --user u0007\n"
        f"  veilrec run {out / run / 'recipe.toml'} --set model.dim=8 --out runs/smaller\n"
        f"  veilrec list",
        soft_wrap=True,
    )
