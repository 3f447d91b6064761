"""``veilrec report``: finished runs as one page that a person can read, and as numbers for machines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from veilrec.cli.arguments import DataDir, Plugins, Runs, load_plugins
from veilrec.errors import BadInput

__all__ = ["report", "user_maps", "write_report"]


def report(
    runs: Runs,
    out: Annotated[Path, typer.Option("-o", "--out", metavar="FILE", help="The page.")] = Path("report.html"),
    title: Annotated[str, typer.Option(help="Of the page.")] = "",
    with_user_map: Annotated[
        bool, typer.Option("--with-user-map", help="Also map the users' vectors. The page then shows people.")
    ] = False,
    tsne: Annotated[bool, typer.Option("--tsne", help="Map by t-SNE instead of PCA.")] = False,
    csv: Annotated[Path | None, typer.Option(metavar="FILE", help="The numbers as CSV.")] = None,
    json_: Annotated[
        Path | None, typer.Option("--json-file", metavar="FILE", help="The numbers as JSON.")
    ] = None,
    data_dir: DataDir = None,
    plugin: Plugins = None,
) -> None:
    """Make one self-contained page out of finished runs; it opens offline and asks nobody for anything."""
    load_plugins(plugin)
    from veilrec.recipe.cells import runs_in

    places = [found for run in runs for found in runs_in(run)]
    if tsne and not with_user_map:
        raise BadInput("--tsne", "there is no map", "add --with-user-map")
    maps = user_maps(places, data_dir, tsne=tsne) if with_user_map else None
    write_report(places, out, title=title, maps=maps, csv=csv, json_=json_)
    print(f"Report: {out}")


def write_report(
    places: list[Path],
    out: Path,
    *,
    title: str = "",
    maps: dict[str, Any] | None = None,
    csv: Path | None = None,
    json_: Path | None = None,
) -> None:
    """The page of some runs, and their numbers where asked for."""
    from veilrec.base.files import atomic
    from veilrec.report import render, table, to_csv
    from veilrec.result import Result

    results = [(str(place), Result.load(place)) for place in places]
    pages = {out: render(results, title=title, maps=maps)}
    rows = table(results) if csv or json_ else []
    pages |= {csv: to_csv(rows)} if csv else {}
    pages |= {json_: json.dumps(rows, indent=2, ensure_ascii=False)} if json_ else {}
    for path, text in pages.items():
        with atomic(path, secret=maps is not None) as sink:
            sink.write(text.encode())


def user_maps(places: list[Path], data_dir: Path | None = None, *, tsne: bool = False) -> dict[str, Any]:
    """The users of each run in two dimensions; each run is opened again for it."""
    from veilrec.cli import finished
    from veilrec.engine.probe import user_vectors
    from veilrec.runs.user_map import user_map

    found = {}
    for place in places:
        opened = finished.reopen(place, None, data_dir)
        vectors = user_vectors(opened.federation, opened.state)
        found[str(place)] = user_map(vectors, opened.run.data, "tsne" if tsne else "pca")
    return found
