"""``veilrec data``: the datasets that are there, what they look like, and how others get in."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veilrec.cli.arguments import DataDir, Json
from veilrec.errors import BadInput

if TYPE_CHECKING:
    from veilrec.datasets.delimited import Options, Reading, Sources

__all__ = ["app"]

app = typer.Typer(help="See, get and import datasets.", no_args_is_help=True)
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
Column = Annotated[str | None, typer.Option(metavar="COLUMN", show_default=False)]


@app.command("list")
def list_datasets(data_dir: DataDir = None, as_json: Json = False) -> None:
    """List the datasets that are known, and where they are."""
    rows = [*_known(data_dir), *_stored(data_dir)]
    if as_json:
        _print_json(rows)
        return
    from veilrec.cli.data_views import print_datasets

    print_datasets(rows)


@app.command("show")
def show(
    name: Annotated[str, typer.Argument(help="A dataset of `veilrec data list`.", show_default=False)],
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Show a dataset: counts, long tail, attributes, first rows, and what was dropped on loading."""
    from veilrec.datasets.describe import describe
    from veilrec.recipe.assembly import load

    about = describe(load({"name": name, "split_seed": 0}, data_dir))
    if as_json:
        _print_json(about)
        return
    from veilrec.cli.data_views import print_log

    print_log(about)


@app.command("get")
def get(
    name: Annotated[str, typer.Argument(help="A published dataset, as in ml-100k.", show_default=False)],
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Download a published dataset and check it against its published checksum."""
    from veilrec.datasets import places

    if (known := places.published(name)) is not None:
        sys.stderr.write(f"{known.address}\nTerms: {known.terms}\n")
    path = places.get(name, data_dir)
    _print_json({"name": name, "path": str(path)}) if as_json else print(path)


@app.command("import")
def import_dataset(
    file: Annotated[
        Path, typer.Argument(help="CSV, TSV, .inter, a zip or a folder of these.", show_default=False)
    ],
    name: Annotated[str | None, typer.Option(help="What to call it; by default the file's name.")] = None,
    user: Annotated[str | None, typer.Option(metavar="COLUMN", help="Column of users: name or number.")] = None,
    item: Annotated[str | None, typer.Option(metavar="COLUMN", help="Column of items.")] = None,
    rating: Annotated[str | None, typer.Option(metavar="COLUMN", help="Column of ratings; - for none.")] = None,
    time: Annotated[str | None, typer.Option(metavar="COLUMN", help="Column of times; - for none.")] = None,
    attributes: Annotated[Path | None, typer.Option(metavar="FILE", help="A file with one row a user.")] = None,
    attribute: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="An attribute to take, of --attributes or of the log; repeatable."),
    ] = None,
    borders: Annotated[
        list[str] | None, typer.Option(metavar="NAME=A,B", help="Cut numbers into groups, as in age=35,45.")
    ] = None,
    titles: Annotated[Path | None, typer.Option(metavar="FILE", help="A file with one row an item.")] = None,
    sep: Annotated[str | None, typer.Option(help="Separator of the log: ',', 'tab', '::', …")] = None,
    header: Annotated[bool | None, typer.Option(help="Whether the first line has the names.")] = None,
    encoding: Annotated[str | None, typer.Option(help="By default UTF-8.")] = None,
    time_format: Annotated[str | None, typer.Option(help="How dates are written, as in %d.%m.%Y.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Refuse what would be dropped.")] = False,
    replace: Annotated[bool, typer.Option("--replace", help="Replace a dataset of the same name.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show how it is understood; store nothing.")] = False,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Read a log with its guesses shown, then store it as a dataset that recipes can name."""
    from veilrec.datasets.delimited import Options

    if yes and dry_run:
        raise BadInput("--yes", "contradicts --dry-run", "give one of the two")
    columns = {"user": user, "item": item, "rating": rating, "time": time}
    options = Options(
        columns, attribute or (), _borders(borders or ()), sep, header, encoding, time_format, strict
    )
    sources, options = _sources(file, attributes, titles, options)
    folder = _folder(name or _default_name(sources.name), data_dir)
    about = _read(sources, options, folder, as_json=as_json, ask=not (yes or dry_run), store=not dry_run, replace=replace)
    ...
