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
    """Make a page that holds all it needs of finished runs, of a saved audit of vectors, or of a receipt."""
    from veilrec.cli.receipts import receipt_in, write_receipt
    from veilrec.recipe.cells import runs_in

    if (told := receipt_in(runs)) is not None:
        write_receipt(told, runs, out, title, csv)
        print(f"Report: {out}")
        return
    if any(run.is_file() for run in runs):
        _write_audit(runs, out, title, csv)
        print(f"Report: {out}")
        return
    write_report([found for run in runs for found in runs_in(run)], out, title=title, csv=csv)
    print(f"Report: {out}")


def _write_audit(places: list[Path], out: Path, title: str, csv: Path | None) -> None:
    """The page of one saved audit."""
    from veilrec.base.files import atomic
    from veilrec.base.locks import writer_of
    from veilrec.metrics.vector_audits import VectorAudit
    from veilrec.report import render_audit

    if len(places) > 1:
        what = "an audit has a page of its own"
        raise BadInput(places[1], what, "name one; `veilrec compare` sets two side by side")
    if csv is not None:
        raise BadInput("--csv", "an audit is its own numbers, as JSON", "leave it out")
    if out == places[0]:
        raise BadInput("--out", "names the audit itself", "name another file")
    with writer_of(out):
        text = render_audit(VectorAudit.load(places[0]), title=title)
        with atomic(out) as sink:
            sink.write(text.encode())


def write_report(places: list[Path], out: Path, *, title: str = "", csv: Path | None = None) -> None:
    """The page of some runs, and their numbers where asked for; who writes last has read last."""
    from veilrec.base.files import atomic
    from veilrec.base.locks import writer_of
    from veilrec.base.plain import check_way
    from veilrec.cli.receipts import receipts_of
    from veilrec.report import render, table, to_csv
    from veilrec.result import Result

    if csv == out:
        raise BadInput("--csv", "names the page itself", "name another file")
    with ExitStack() as writers:
        for path in sorted([out, *([csv] if csv else [])]):
            check_way(path)
            writers.enter_context(writer_of(path))
        results = [(str(place), Result.load(place)) for place in places]
        pages = {out: render(results, title=title, receipts=receipts_of(places))}
        pages |= {csv: to_csv(table(results))} if csv else {}
        for path, text in pages.items():
            with atomic(path) as sink:
                sink.write(text.encode())
