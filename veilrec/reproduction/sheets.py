"""Sheets: a table of a paper as rows of text, for a terminal or a Markdown file."""

from __future__ import annotations

from dataclasses import dataclass

from veilrec.reproduction.numbers import Quantity
from veilrec.reproduction.paper import Paper
from veilrec.reproduction.tables import Page, Row
from veilrec.reproduction.words import (
    GUESSES,
    MISSING,
    UNKNOWN,
    epsilons,
    measured,
    minutes,
    number,
    score_label,
    signed,
)

__all__ = ["Sheet", "sheets_of"]

OURS, BELOW = "*", "†"  # a row that the paper does not have; one that is below popularity
COORDINATE = "ε a coordinate"


@dataclass(frozen=True)
class Sheet:
    """A title, a head, and rows of text; every column but the first holds numbers."""

    title: str
    head: list[str]
    rows: list[list[str]]


def sheets_of(paper: Paper, page: Page) -> list[Sheet]:
    """The attack by attribute, other scores beside it, and usefulness with what is guaranteed."""
    found = []
    for attribute, columns in page.columns.items():
        found.append(_attack(paper, page, attribute, columns))
        if paper.beside:
            found.append(_beside(paper, page, attribute, columns))
    useful = _useful(paper, page)
    return [useful, *found] if page.table.utility else [*found, useful]


def _label(row: Row) -> str:
    return f"{row.label}{OURS if row.extra else ''}{BELOW if row.collapsed else ''}"


def _ours(row: Row, what: Quantity) -> str:
    """Our number; without one, whether runs are missing or did not measure it."""
    return measured(row.entries[what].ours, UNKNOWN if row.runs else MISSING)


def _column(paper: Paper, what: Quantity) -> str:
    by = paper.parts[what.part].label if what.part else paper.attackers[what.attacker].label
    return f"{by}, {paper.audits[what.audit].label}"


def _attack(paper: Paper, page: Page, attribute: str, columns: list[Quantity]) -> Sheet:
    """Ours, theirs and the difference, and ε; columns for which the paper prints nothing have ours alone."""
    printed = {what for what in columns if any(row.entries[what].theirs is not None for row in page.rows)}
    head = ["method"]
    for what in columns:
        head += [_column(paper, what), *(["paper", "difference"] if what in printed else [])]
    rows = []
    for row in page.rows:
        cells = [_label(row)]
        for what in columns:
            entry = row.entries[what]
            cells += [_ours(row, what)]
            cells += [number(entry.theirs), signed(entry.difference)] if what in printed else []
        rows.append([*cells, epsilons(row.runs.values())[0]])
    title = f"{paper.attributes[attribute].label}: {score_label(paper.score)} of the attack"
    return Sheet(title, [*head, COORDINATE], [*rows, *_guesses(page, columns, printed)])


def _guesses(page: Page, columns: list[Quantity], printed: set[Quantity]) -> list[list[str]]:
    """What guessing without looking reaches: one row for each kind of guess."""
    rows = []
    for guess, told in GUESSES.items():
        cells = [f"guess: {told}"]
        for what in columns:
            cells += [number(page.floors[what].get(guess)), *(["", ""] if what in printed else [])]
        rows.append([*cells, ""])
    return rows


def _beside(paper: Paper, page: Page, attribute: str, columns: list[Quantity]) -> Sheet:
    shown = [what._replace(score=score) for what in columns for score in paper.beside]
    there = [what for what in shown if any(row.entries[what].ours is not None for row in page.rows)] or shown
    head = ["method", *(f"{score_label(what.score)}: {_column(paper, what)}" for what in there)]
    rows = [[_label(row), *(_ours(row, what) for what in there)] for row in page.rows]
    return Sheet(f"{paper.attributes[attribute].label}: the same attack by other scores", head, rows)


def _useful(paper: Paper, page: Page) -> Sheet:
    """Usefulness beside popularity, what is guaranteed, and what it rests on."""
    what, metric = Quantity(paper.metric), score_label(paper.metric)
    head = ["method", metric, "paper", "difference", "minus popularity", "beats popularity"]
    head += [COORDINATE, "ε an upload", "ε the run", "seeds", "minutes a run (machine as it was)"]
    rows = []
    for row in page.rows:
        entry, results = row.entries[what], list(row.runs.values())
        seeds = f"{len(results)}" if len(results) == page.seeds else f"{len(results)} of {page.seeds}"
        numbers = [_ours(row, what), number(entry.theirs), signed(entry.difference)]
        above = [measured(row.above), _beats(row)]
        rows.append([_label(row), *numbers, *above, *epsilons(results), seeds, minutes(results)])
    floor = ["popularity", number(page.popularity) if page.popularity is not None else MISSING]
    return Sheet("Usefulness, and what is guaranteed", head, [*rows, [*floor, *[""] * (len(head) - 2)]])


def _beats(row: Row) -> str:
    above = row.above
    if above is None or above.low is None or above.high is None:
        return MISSING if above is None else "unknown"
    return "yes" if above.low > 0 else "no, below" if above.high < 0 else "not told apart"
