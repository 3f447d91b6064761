"""``veilrec data``: the datasets that are there, what they look like, and how others get in."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veilrec.cli.arguments import (
    Borders,
    DataDir,
    Encoding,
    Escape,
    Header,
    Json,
    Separator,
    borders_of,
    print_json,
)
from veilrec.errors import BadInput, VeilrecError

if TYPE_CHECKING:
    from veilrec.datasets.delimited import Options, Sources, Understood

__all__ = ["app"]

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

app = typer.Typer(help="See, get and import datasets.", no_args_is_help=True)

Dataset = Annotated[
    str, typer.Argument(metavar="NAME", help="As `veilrec data list` has it.", show_default=False)
]
File = Annotated[
    Path,
    typer.Argument(
        metavar="FILE", help="CSV, TSV, .inter, a zip, or a folder of .inter.", show_default=False
    ),
]
Name = Annotated[str | None, typer.Option(help="What to call it; by default as the file.")]
Balance = Annotated[
    str, typer.Option(metavar="ATTRIBUTE", help="Leave users out until its classes are equally large.")
]
User = Annotated[str | None, typer.Option(metavar="COLUMN", help="Column of users: its name or number.")]
Item = Annotated[str | None, typer.Option(metavar="COLUMN", help="Column of items.")]
Rating = Annotated[str | None, typer.Option(metavar="COLUMN", help="Column of ratings; - for none.")]
Time = Annotated[str | None, typer.Option(metavar="COLUMN", help="Column of times; - for none.")]
People = Annotated[Path | None, typer.Option(metavar="FILE", help="A file with one row a user.")]
Attribute = Annotated[
    list[str] | None,
    typer.Option(metavar="COLUMN", help="An attribute to take, of --attributes or of the log; repeatable."),
]
Continuous = Annotated[
    list[str] | None, typer.Option(metavar="COLUMN", help="Numbers to take as they are; repeatable.")
]
Titles = Annotated[Path | None, typer.Option(metavar="FILE", help="A file with one row an item.")]
TimeFormat = Annotated[str | None, typer.Option(help="How dates are written, as in %d.%m.%Y.")]
Strict = Annotated[bool, typer.Option("--strict", help="Refuse what would otherwise be dropped.")]
Replace = Annotated[bool, typer.Option("--replace", help="Replace a dataset of the same name.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Store without asking.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show how it is understood, store nothing.")]


@app.command("list")
def list_datasets(data_dir: DataDir = None, as_json: Json = False) -> None:
    """List the datasets that are known, and where they are."""
    rows = [*_known(data_dir), *_stored(data_dir)]
    if as_json:
        print_json(rows)
        return
    from veilrec.cli.show.data import print_datasets

    print_datasets(rows)


@app.command("show")
def show(name: Dataset, balance: Balance = "", data_dir: DataDir = None, as_json: Json = False) -> None:
    """Show a dataset: counts, long tail, attributes, first rows, and what was dropped on loading."""
    from veilrec.cli.show.data import print_log
    from veilrec.datasets.common.describe import describe
    from veilrec.recipe.assembly import load

    about = describe(load({"name": name, "split_seed": 0, "balance": balance}, data_dir))
    print_json(about) if as_json else print_log(about)


@app.command("get")
def get(name: Dataset, data_dir: DataDir = None, as_json: Json = False) -> None:
    """Download a published dataset and check it against its published checksum."""
    from veilrec.datasets.common import places

    if (known := places.published(name)) is not None and known.md5:
        sys.stderr.write(f"From {known.address}\nTerms: {known.terms}\n")
    path = places.get(name, data_dir)
    print_json({"name": name, "path": str(path)}) if as_json else print(path)


@app.command("import")
def import_dataset(
    file: File,
    name: Name = None,
    user: User = None,
    item: Item = None,
    rating: Rating = None,
    time: Time = None,
    attributes: People = None,
    attribute: Attribute = None,
    borders: Borders = None,
    continuous: Continuous = None,
    titles: Titles = None,
    sep: Separator = None,
    header: Header = None,
    encoding: Encoding = None,
    escape: Escape = None,
    time_format: TimeFormat = None,
    strict: Strict = False,
    replace: Replace = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Read a log, show how it is understood, and store it as a dataset that recipes can name."""
    from veilrec.datasets.delimited import Options

    if yes and dry_run:
        raise BadInput("--yes", "contradicts --dry-run", "give one of the two")
    columns = {"user": user, "item": item, "rating": rating, "time": time}
    cuts = borders_of(borders)
    written = (sep, header, encoding, time_format, strict)
    options = Options(columns, attribute or (), cuts, *written, continuous=continuous or (), escape=escape)
    sources, options = _sources(file, attributes, titles, options)
    folder = _folder(name or _default_name(sources.name), data_dir, replace=replace)
    about = _take_in(
        sources, options, folder, replace=replace, dry_run=dry_run, ask=not (yes or as_json), quiet=as_json
    )
    if as_json:
        print_json(about)
    elif about["stored"]:
        print(f'Stored in {about["stored"]}; in a recipe: data.name = "{folder.name}"')
    else:
        sys.stderr.write("Nothing was stored.\n")


def _take_in(
    sources: Sources,
    options: Options,
    folder: Path,
    *,
    replace: bool,
    dry_run: bool,
    ask: bool,
    quiet: bool,
) -> dict[str, Any]:
    """Understand, read, show and store; what was found, for JSON."""
    import dataclasses

    from veilrec.cli.show.data import print_log, print_reading
    from veilrec.datasets.common.describe import describe
    from veilrec.datasets.delimited import from_reading, understood
    from veilrec.datasets.imported import write

    reading = understood(sources.log, options)
    if not quiet:
        print_reading(reading, options.attribute)
    log = dataclasses.replace(from_reading(sources, reading, options), name=folder.name)
    about = describe(log)
    if not quiet:
        print_log(about)
    keep = not dry_run and (
        not (ask and sys.stdin.isatty()) or typer.confirm("Store it?", default=True, err=True)
    )
    if keep:
        write(log, folder, overwrite=replace)
    return {**about, "reading": _reading(reading), "stored": str(folder) if keep else None}


def _sources(
    file: Path, attributes: Path | None, titles: Path | None, options: Options
) -> tuple[Sources, Options]:
    """The files to read: those of an atomic dataset together, else the ones named."""
    from veilrec.datasets.delimited import file_sources
    from veilrec.datasets.reading.archives import read
    from veilrec.datasets.recbole import atomic_sources, is_atomic, typed

    if not is_atomic(file):
        return file_sources(file, attributes, titles), options
    found = atomic_sources(file)
    people = read(attributes) if attributes else found.people
    items = read(titles) if titles else found.titles
    found = found._replace(people=people, titles=items)
    return found, typed(found, options)


def _default_name(stem: str) -> str:
    return re.sub(r"[^a-z0-9._-]+", "-", stem.lower()).strip("-._")[:64] or "log"


def _folder(name: str, data_dir: Path | None, *, replace: bool) -> Path:
    """The folder for a dataset of this name; a name that means another dataset is refused at once."""
    from veilrec.datasets.common import places
    from veilrec.recipe import catalogue

    if not NAME.fullmatch(name):
        raise BadInput("--name", f'"{name}" is no name', "use letters, digits, dots, dashes; at most 64")
    if any(
        catalogue.plain_name(name) == catalogue.plain_name(known) for known in catalogue.entries("datasets")
    ):
        raise BadInput("--name", f'"{name}" is a dataset of veilrec', "choose another --name")
    folder = places.places(data_dir)[0] / name
    for other in places.stored(data_dir).values():
        same = other.parent == folder.parent and catalogue.plain_name(other.name) == catalogue.plain_name(
            name
        )
        if same and not (replace and other == folder):
            raise BadInput(
                other, "there is a dataset of this name", "choose another --name, or pass --replace"
            )
    return folder


def _known(data_dir: Path | None) -> list[dict[str, Any]]:
    """The embedded world, what others publish, and what must be got by hand."""
    from veilrec.datasets.common import places

    rows = [_row("synthetic", (300, 200, 12_000), "embedded", "none: made up", found=True)]
    for name, known in places.PUBLISHED.items():
        path = places.located(name, data_dir)
        way = f"veilrec data get {name}" if known.md5 else known.address
        where = str(path) if path else f"not here: {way}"
        rows.append(_row(name, known.sizes, where, known.terms, found=path is not None))
    return rows


def _row(
    name: str, sizes: Sequence[int | None] | None, where: str, terms: str, *, found: bool
) -> dict[str, Any]:
    counts = dict(zip(("users", "items", "events"), sizes or (None,) * 3, strict=True))
    return {"name": name, **counts, "where": where, "terms": terms, "found": found}


def _stored(data_dir: Path | None) -> list[dict[str, Any]]:
    """The imported ones; a damaged one is listed as that."""
    from veilrec.datasets.common import places
    from veilrec.datasets.common.card import read_card

    rows = []
    for name, folder in places.stored(data_dir).items():
        card: Mapping[str, Any] = {}
        terms = "your own"
        try:
            card = read_card(folder)
        except VeilrecError as error:
            terms = f"damaged: {error}"
        sizes = [card.get(key) for key in ("users", "items", "events")]
        rows.append(_row(name, sizes, str(folder), terms, found=bool(card)))
    return rows


def _reading(reading: Understood) -> dict[str, Any]:
    return {
        "file": reading.source.where,
        "separator": reading.layout.shown,
        "header": reading.layout.header,
        "columns": dict(reading.roles),
        "unused": [name for name in reading.layout.names if name not in reading.roles.values()],
    }
