"""``veilrec list`` and ``veilrec config show``: what there is, and what a recipe comes down to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veilrec.cli.arguments import DataDir, Json, Plugins, RecipePath, Seed, Sets, print_json

if TYPE_CHECKING:
    from rich.console import Group

__all__ = ["config", "list_entries"]

PAPERS = "papers"

config = typer.Typer(help="See what a recipe comes down to.", no_args_is_help=False)


def list_entries(
    kind: Annotated[
        str,
        typer.Argument(
            help="models, protocols, defences, erasers, attacks, datasets or papers; by default all."
        ),
    ] = "",
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """List what there is, with the options of each entry."""
    from veilrec.recipe import catalogue

    if kind == PAPERS:
        _list_papers(as_json)
        return
    kinds = [kind] if kind else list(catalogue.KINDS)
    found = {name: [_entry(name, e, v) for e, v in catalogue.entries(name).items()] for name in kinds}
    if as_json:
        print_json(found[kind] if kind else found)
        return
    _print(found)
    if not kind:
        _list_papers(as_json)


def _list_papers(as_json: bool) -> None:
    """The papers whose tables can be reproduced."""
    from veilrec.cli.show.sheets import print_papers
    from veilrec.reproduction.paper import Paper, papers

    found = {name: Paper.load(name) for name in papers()}
    if not as_json:
        print_papers(found)
        return
    told = [
        {"name": name, "title": p.title, "reference": p.reference, "tables": list(p.tables)}
        for name, p in found.items()
    ]
    print_json(told)


def _entry(kind: str, name: str, entry: Any) -> dict[str, Any]:
    """All that is known about an entry, for JSON."""
    from veilrec.base.limits.bounds import bounds_of
    from veilrec.recipe import catalogue
    from veilrec.recipe.settings import REQUIRED, describe, plain

    plugin = catalogue.plugin_of(entry)
    told = {
        option: {
            "allowed": describe(o.annotation),
            "bounds": str(bounds_of(o.annotation) or ""),
            "default": None if o.default is REQUIRED else plain(o.default),
            "required": o.default is REQUIRED,
            "meaning": o.doc,
        }
        for option, o in catalogue.options(entry).items()
    }
    return {
        "name": name,
        "summary": catalogue.summary(entry),
        "paper": catalogue.paper(entry),
        "options": told,
        "python": f"{entry.__module__}.{entry.__name__}" if plugin is None else entry.__name__,
        "plugin": None if plugin is None else str(plugin.path),
    }


def _print(found: Mapping[str, list[dict[str, Any]]]) -> None:
    from veilrec.cli.show.tables import console, table
    from veilrec.recipe.sections import LISTED, NAMED

    out = console()
    named = {"datasets": "[data]", **{kind: f"[{section}]" for section, (kind, _) in NAMED.items()}}
    named |= {kind: f"[[{section}]]" for section, kind in LISTED.items()}
    for kind, entries in found.items():
        title = f"{kind}, as {named[kind]} in a recipe"
        shown = table(kind, "what it is", "options and their defaults", title=title)
        for entry in entries:
            shown.add_row(entry["name"], _about(entry), _options(entry["options"]))
        out.print(shown if entries else f"{title}\n\n  none yet\n")


def _about(entry: Mapping[str, Any]) -> Group:
    """The summary, and below it the paper and the plugin."""
    from rich.console import Group
    from rich.text import Text

    paper = entry["paper"] if not entry["paper"].startswith("none") else ""
    notes = [note for note in (paper, f"from {entry['plugin']}" if entry["plugin"] else "") if note]
    return Group(Text(entry["summary"]), *(Text(note, style="dim") for note in notes))


def _options(options: Mapping[str, Any]) -> str:
    from veilrec.recipe.settings import shown

    lines = []
    for name, option in options.items():
        default = (
            "(needed)"
            if option["required"]
            else "–"
            if option["default"] is None
            else shown(option["default"])
        )
        bounds = f" ({option['bounds']})" if option["bounds"] else ""
        lines.append(f"{name} = {default}{bounds}")
    return "\n".join(lines)


@config.command("show")
def show(
    recipe: RecipePath,
    set_: Sets = None,
    seed: Seed = None,
    data_dir: DataDir = None,
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """Print the recipe with every value that holds, and where each comes from."""
    from veilrec.recipe import Recipe

    loaded = Recipe.load(recipe, set_ or (), seed=seed, data_dir=data_dir)
    if as_json:
        print_json({"values": loaded.values, "origins": loaded.origins})
        return
    print(loaded.toml(), end="")


@config.callback()
def _config() -> None:
    """Keep `config show` two words, although it is the only command."""
