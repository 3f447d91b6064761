"""Tables of papers on the standard output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from veilrec.cli.show.leaks import printable
from veilrec.cli.show.tables import console, table

if TYPE_CHECKING:
    from rich.console import Console

    from veilrec.reproduction.paper import Paper
    from veilrec.reproduction.results import Told
    from veilrec.reproduction.sheets import Sheet

__all__ = ["print_papers", "print_tables"]

AT_ONCE = 6  # columns beside the first: more do not fit a terminal; ours, theirs, difference stay together


def print_tables(paper: Paper, told: Sequence[Told], stale: Mapping[str, str]) -> None:
    """Every table with its claims and notes."""
    from veilrec.reproduction.overview import heading, outcome
    from veilrec.reproduction.results import gaps, marks

    out = console()
    for one in told:
        page = one.page
        out.print(heading(paper, page), style="bold")
        for gap in gaps(paper, page):
            out.print(printable(gap), style="yellow")
        for sheet in one.sheets:
            _print_sheet(out, sheet)
        for claim in one.claims:
            out.print(printable(claim.sentence), style="bold" if outcome(claim) in ("yes", "no") else None)
        for note in [*page.table.notes, *marks(paper, page)]:
            out.print(printable(note), style="dim")
        out.print()
    for name, what in stale.items():
        out.print(
            f"{name} was made with other settings or audits than the paper asks for now: {what}.",
            style="yellow",
        )


def _print_sheet(out: Console, sheet: Sheet) -> None:
    """A wide sheet is printed in several pieces, each with the names of the rows."""
    for start in range(1, len(sheet.head), AT_ONCE):
        places = [0, *range(start, min(start + AT_ONCE, len(sheet.head)))]
        title = sheet.title if start == 1 else f"{sheet.title}, further columns"
        shown = table(*(printable(sheet.head[k]) for k in places), title=title)
        for column in shown.columns[1:]:
            column.justify = "right"
        for row in sheet.rows:
            shown.add_row(*(printable(row[k]) for k in places))
        out.print(shown)
    if sheet.note:
        out.print(printable(sheet.note), style="dim")


def print_papers(papers: Mapping[str, Paper]) -> None:
    """The papers that can be reproduced."""
    shown = table("papers", "what it is", "tables", title="papers, as veilrec reproduce PAPER TABLE")
    for name, paper in papers.items():
        shown.add_row(name, f"{paper.title}\n{paper.reference}", " ".join(paper.tables))
    console().print(shown)
