"""``veilrec demo``: the whole line on an embedded world, with no arguments, no data and no network."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veilrec.cli.arguments import Json, Quiet, load_plugins
from veilrec.errors import BadInput

if TYPE_CHECKING:
    from veilrec.result import Result

__all__ = ["demo"]

MARKER, MAKER = "demo.json", "veilrec demo"
PERSON = "u0042"
BASE: dict[str, Any] = {
    "data": {"name": "synthetic"},
    "protocol": {"sends": "gradients", "server": "adam", "server_lr": 0.02},
    "plan": {"rounds": 60, "cohort": 0.5, "batch": 4096, "optimiser": "adam", "lr": 0.05},
    "evaluation": {"candidates": 99, "ks": [5, 10]},
}
FACTORS = {"name": "FedMF", "dim": 32}
NETWORK = {"name": "FedNCF", "kind": "neumf", "dim": 32, "head": [32, 16], "tower_dim": 16}
EXPLAINED = """\
hr@10: how often the film that a person watched last is among ten recommended, out of that film and 99 others.
Popularity shows everyone the same films; a model that is not above it has learned nothing personal.
Up and down: what one device sends and receives in a round it takes part in.
"""


def demo(
    out: Annotated[
        Path,
        typer.Option("--out", metavar="DIR", help="Where its runs go; an earlier demo there is replaced."),
    ] = Path("runs/demo"),
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train on an embedded world of synthetic people and see what comes out; no data, no network."""
    load_plugins(None)
    recipes = _recipes()
    _make_room(out, list(recipes))
    from veilrec.cli.work import Job, one

    results = {
        name: one(recipe, out / name, Job(quiet=quiet), f"{place} of {len(recipes)}: {name}")
        for place, (name, recipe) in enumerate(recipes.items(), 1)
    }
    if as_json:
        from dataclasses import asdict

        print(
            json.dumps(
                {name: asdict(result) for name, result in results.items()}, indent=2, ensure_ascii=False
            )
        )
        return
    _print(results, out)


def _recipes() -> dict[str, Any]:
    """FedMF under each defence that asks for nothing, and FedNCF without one, by folder."""
    from veilrec import catalogue
    from veilrec.recipe import Recipe
    from veilrec.settings import REQUIRED

    defences = [
        name
        for name, entry in catalogue.entries("defences").items()
        if all(option.default is not REQUIRED for option in catalogue.options(entry).values())
    ]
    cells = [(FACTORS, name) for name in defences] + [(NETWORK, "none")]
    return {
        f"{model['name']}-{name}": Recipe.of({**BASE, "model": model, "defence": [{"name": name}]}, "demo")
        for model, name in cells
    }


def _make_room(out: Path, runs: list[str]) -> None:
    """Clear the folder of an earlier demo, and of nothing else."""
    if out.exists() and not out.is_dir():
        raise BadInput(out, "not a folder", "choose another one with --out")
    there = sorted(path.name for path in out.iterdir()) if out.is_dir() else []
    if there:
        earlier = _earlier(out)
        others = [name for name in there if name not in {MARKER, *earlier}]
        if MARKER not in there or others:
            raise BadInput(
                out, f"holds {(others or there)[0]}, which no demo left there", "choose another --out"
            )
        from veilrec.runs.lock import held_by

        for name in earlier.intersection(there):
            if holder := held_by(out / name):
                raise BadInput(out / name, f"locked by {holder}", "wait for that process or stop it")
            shutil.rmtree(out / name)
    out.mkdir(parents=True, exist_ok=True)
    (out / MARKER).write_text(json.dumps({"made by": MAKER, "runs": runs}), encoding="utf-8")


def _earlier(out: Path) -> set[str]:
    """The runs of an earlier demo, if the folder says that there was one."""
    try:
        marker = json.loads((out / MARKER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return set()
    if not isinstance(marker, Mapping) or marker.get("made by") != MAKER:
        return set()
    return {str(name) for name in marker.get("runs", ())}


def _print(results: Mapping[str, Result], out: Path) -> None:
    from veilrec.cli import finished
    from veilrec.cli.tables import amount, console, minutes, table

    screen, first = console(), next(iter(results.values()))
    data = first.data
    screen.print(
        f"\n{data['users']:,} people who do not exist, {data['items']:,} films, {data['events']:,} viewings. "
        "Each person is a device of their own: the log stays on it, and gradients leave it.\n",
        style="bold",
    )
    heads = ("hr@10", "ndcg@10", "up", "down", "time")
    shown = table("model", "defence", *heads, right=heads)
    shown.add_row("popularity", "", *_scores(first.utility.floor), "", "", "", style="dim")
    for result in results.values():
        ways = [amount(result.traffic[way]["mean"]) for way in ("up", "down")]
        model, defences = result.settings["model"]["name"], result.settings["defence"]
        guard = " + ".join(entry["name"] for entry in defences)
        shown.add_row(model, guard, *_scores(result.utility.test), *ways, minutes(result.timing["total"]))
    screen.print(shown)
    screen.print(EXPLAINED)
    name = next(iter(results))
    opened = finished.reopen(out / name)
    screen.print(_watched(opened.run.data), style="bold")
    best = table("", "film", right=("",))
    for entry in finished.recommend(opened, PERSON, 5):
        best.add_row(str(entry["rank"]), entry["title"])
    screen.print(best)
    _next(out / name)


def _scores(utility: Mapping[str, float]) -> list[str]:
    return [f"{utility[name]:.3f}" for name in ("hr@10", "ndcg@10")]


def _watched(log: Any) -> str:
    index = list(log.user_ids).index(PERSON)
    latest = [log.texts[item] for item in log.item[log.user == index].tolist()[-3:]]
    return f"{PERSON} watched {latest[2]}, {latest[1]} and {latest[0]} last, and would be shown:"


def _next(run: Path) -> None:
    from veilrec.cli.tables import console

    console().print(
        f"Try next:\n"
        f"  veilrec recommend {run} --user u0007\n"
        f"  veilrec evaluate {run} --candidates 0\n"
        f"  veilrec run {run / 'recipe.toml'} --set model.dim=8 --out runs/smaller\n"
        f"  veilrec list",
        soft_wrap=True,
    )
