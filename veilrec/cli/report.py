"""``veilrec report``: finished runs as one page that a person can read, and as numbers for machines."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from veilrec.cli.arguments import Runs
from veilrec.errors import BadInput

__all__ = ["report", "write_report"]


def report(
    runs: Runs,
    out: Annotated[Path, typer.Option("-o", "--out", metavar="FILE", help="The page.")] = Path("report.html"),
    title: Annotated[str, typer.Option(help="Of the page.")] = "",
    csv: Annotated[Path | None, typer.Option(metavar="FILE", help="The numbers as CSV.")] = None,
) -> None:
    """Make one self-contained page out of finished runs; it opens offline and asks nobody for anything."""
    from veilrec.recipe.cells import runs_in

    write_report([found for run in runs for found in runs_in(run)], out, title=title, csv=csv)
    print(f"Report: {out}")


def write_report(places: list[Path], out: Path, *, title: str = "", csv: Path | None = None) -> None:
    """The page of some runs, and their numbers where asked for; who writes last has read last."""
    from veilrec.base.files import atomic
    from veilrec.base.locks import writer_of
    from veilrec.base.plain import check_way
    from veilrec.report import render, table, to_csv
    from veilrec.result import Result

    if csv == out:
        raise BadInput("--csv", "names the page itself", "name another file")
    with ExitStack() as writers:
        for path in sorted([out, *([csv] if csv else [])]):
            check_way(path)
            writers.enter_context(writer_of(path))
        results = [(str(place), Result.load(place)) for place in places]
        pages = {out: render(results, title=title)}
        pages |= {csv: to_csv(table(results))} if csv else {}
        for path, text in pages.items():
            with atomic(path) as sink:
                sink.write(text.encode())
