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
REPORT, AUDIT = "report.html", "custom"
PERSON = "u0042"
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
Watched: the same for "did this person watch this film", from that person's upload alone.
"""


def demo(
    out: Annotated[
        Path,
        typer.Option("--out", metavar="DIR", help="Where its runs go; an earlier demo there is replaced."),
    ] = Path("runs/demo"),
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train on an embedded world, attack what the server saw, write a report; no data, no network."""
    load_plugins(None)
    recipes = _recipes()
    _make_room(out, list(recipes))
    from veilrec.cli.work import Job, one

    results = {
        name: one(recipe, out / name, Job(quiet=quiet), f"{place} of {len(recipes)}: {name}")
        for place, (name, recipe) in enumerate(recipes.items(), 1)
    }
    _report(out, list(recipes))
    if as_json:
        from dataclasses import asdict

        print(
            json.dumps(
                {name: asdict(result) for name, result in results.items()}, indent=2, ensure_ascii=False
            )
        )
        return
    _print(results, out)


def _report(out: Path, runs: list[str]) -> None:
    """The page of all runs."""
    from veilrec.cli.report import write_report

    write_report([out / name for name in runs], out / REPORT, title="veilrec demo")


def _recipes() -> dict[str, Any]:
    """The same model without a defence and with two, by folder."""
    from veilrec.recipe import Recipe

    return {name: Recipe.of({**BASE, "defence": guards}, "demo") for name, guards in DEFENCES.items()}


def _make_room(out: Path, runs: list[str]) -> None:
    """Clear the folder of an earlier demo, and of nothing else."""
    if out.exists() and not out.is_dir():
        raise BadInput(out, "not a folder", "choose another one with --out")
    there = sorted(path.name for path in out.iterdir()) if out.is_dir() else []
    if there:
        earlier = _earlier(out)
        others = [name for name in there if name not in {MARKER, REPORT, *earlier}]
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
    from veilrec.cli.show.leaks import print_verdicts
    from veilrec.cli.show.tables import console, table

    screen, first = console(), next(iter(results.values()))
    data = first.data
    screen.print(
        f"\n{data['users']:,} people who do not exist, {data['items']:,} films, {data['events']:,} viewings. "
        "Each person is a device of their own: the log stays on it, and gradients leave it.\n",
        style="bold",
    )
    _table(results)
    screen.print(EXPLAINED)
    name = next(iter(results))
    screen.print(f"{name}:", style="bold")
    print_verdicts(results[name].privacy[AUDIT])
    opened = finished.reopen(out / name)
    screen.print(f"\n{_watched(opened.run.data)}", style="bold")
    best = table("", "film", right=("",))
    for entry in finished.recommend(opened, PERSON, 3):
        best.add_row(str(entry["rank"]), entry["title"])
    screen.print(best)
    _next(out, name)


def _table(results: Mapping[str, Result]) -> None:
    """Usefulness, leakage and traffic of each run, beside popularity and chance."""
    from veilrec.cli.show.leaks import measure
    from veilrec.cli.show.tables import console, table
    from veilrec.metrics.words import amount

    first = next(iter(results.values()))
    attributes = list(first.privacy[AUDIT]["attributes"])
    heads = ("hr@10", *(f"{name} AUC" for name in attributes), "watched", "up")
    shown = table("defence", *heads, right=heads)
    chance = ["0.500"] * (len(attributes) + 1)
    shown.add_row("popularity, chance", f"{first.utility.floor['hr@10']:.3f}", *chance, "", style="dim")
    for name, result in results.items():
        found = result.privacy[AUDIT]
        leaks = [measure(found["attributes"][a]["verdict"]["auc"], digits=2) for a in attributes]
        watched = found["membership"][found["membership"]["worst"]]["value"]
        cells = [f"{result.utility.test['hr@10']:.3f}", *leaks, f"{watched:.2f}"]
        shown.add_row(name, *cells, amount(result.traffic["up"]["mean"]))
    console().print(shown)


def _watched(log: Any) -> str:
    index = list(log.user_ids).index(PERSON)
    latest = [log.texts[item] for item in log.item[log.user == index].tolist()[-3:]]
    return f"{PERSON} watched {latest[2]}, {latest[1]} and {latest[0]} last, and would be shown:"


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
