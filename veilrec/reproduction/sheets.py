"""Sheets: a table of a paper as rows of text, for a terminal or a Markdown file."""

from __future__ import annotations

from dataclasses import dataclass

from veilrec.metrics.epsilons import epsilon_of
from veilrec.metrics.measures import gathered
from veilrec.metrics.words import ABSENT, bracketed, number, signed
from veilrec.reproduction.facts import FACTS, fact_of
from veilrec.reproduction.numbers import Quantity
from veilrec.reproduction.paper import Paper
from veilrec.reproduction.per_round import HEAD, Cost, at_rounds, cells, costs, looks
from veilrec.reproduction.tables import Page, Row, beside, reported
from veilrec.reproduction.words import (
    ALONG,
    COMPONENTS,
    GUESSES,
    MISSING,
    UNKNOWN,
    minutes,
    score_label,
)

__all__ = ["BELOW", "MUTE", "OURS", "Sheet", "cost_of", "grid", "sheets_of", "unmeasured"]

OURS, BELOW = "*", "†"  # a row that the paper does not have; one that is below popularity
MUTE = "‡"  # beside a score: the attacker said the same of everybody
COORDINATE = "ε a coordinate"


@dataclass(frozen=True)
class Sheet:
    """A title, a head, and rows of text; every column but the first holds numbers. Below them a note."""

    title: str
    head: list[str]
    rows: list[list[str]]
    note: str = ""


def sheets_of(paper: Paper, page: Page) -> list[Sheet]:
    """The attack by attribute, other scores beside it, and usefulness with what is guaranteed.

    Rows of which nothing was run are left out, and so is an attack of which nothing was measured.
    """
    if not page.ran:
        return []
    if page.table.facts:
        return [_facts(paper, page)]
    found = []
    for columns in _groups(page):
        for score in dict.fromkeys(what.score for what in columns):
            if _measured(page, own := [what for what in columns if what.score == score]):
                found.append(_attack(paper, page, own))
        if there := _measured(page, beside(paper, columns)):
            found.append(_beside(paper, page, there))
    found += [sheet for name in page.table.curves if (sheet := _curve(page, name)) is not None]
    useful = _useful(paper, page)
    every = [useful, *found] if page.table.utility else [*found, useful]
    return [_costs(page), *every] if page.table.cost else every


def unmeasured(paper: Paper, page: Page) -> list[str]:
    """A line for each attack or curve that has no sheet, because no run that is there measured any of it."""
    found: dict[str, list[str]] = {}
    for columns in _groups(page):
        if page.ran and not _measured(page, columns):
            shown = ", ".join(_heads(paper, columns))
            label = paper.attributes[columns[0].attribute].label
            found.setdefault(f"{shown}{_audit(paper, columns)}", []).append(label.lower())
    for name in page.table.curves:
        if page.ran and _curve(page, name) is None:
            found.setdefault("round by round", []).append(score_label(name))
    return [f"Not measured in these runs: {' and '.join(who)} ({what})." for what, who in found.items()]


def grid(sheet: Sheet) -> list[str]:
    """A sheet as a Markdown table."""
    rows = [[_cell(cell) for cell in row] for row in (sheet.head, *sheet.rows)]
    rule = ["---", *["---:"] * (len(sheet.head) - 1)]
    return [f"| {' | '.join(row)} |" for row in (rows[0], rule, *rows[1:])]


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def _groups(page: Page) -> list[list[Quantity]]:
    """The columns of each sheet: those of an attribute; where an audit has several, those of one audit."""
    several = len(page.table.attackers) + len(page.table.parts) > 1
    every = [what for columns in page.columns.values() for what in columns]
    return list(gathered(((what.attribute, what.audit if several else ""), what) for what in every).values())


def _measured(page: Page, columns: list[Quantity]) -> list[Quantity]:
    return [what for what in columns if any(row.entries[what].ours is not None for row in page.ran)]


def _label(row: Row) -> str:
    return f"{row.label}{OURS if row.extra else ''}{BELOW if row.collapsed else ''}"


def _ours(row: Row, what: Quantity) -> str:
    entry = row.entries[what]
    return f"{bracketed(entry.ours) if entry.ours else UNKNOWN}{MUTE if entry.mute else ''}"


def _audit(paper: Paper, columns: list[Quantity]) -> str:
    """The audit that all columns share, for the title; nothing where there are several."""
    audits = list(dict.fromkeys(what.audit for what in columns))
    return f", {paper.audits[audits[0]].label}" if len(audits) == 1 else ""


def _heads(paper: Paper, columns: list[Quantity]) -> list[str]:
    """Heads of columns: who attacks, or which part is attacked, and in which audit where they differ."""
    shared = _audit(paper, columns)
    found = []
    for what in columns:
        by = paper.parts[what.part].label if what.part else paper.attackers[what.attacker].label
        found.append(by if shared else f"{by}, {paper.audits[what.audit].label}")
    return found


def _attack(paper: Paper, page: Page, columns: list[Quantity]) -> Sheet:
    """Ours, theirs and the difference, and ε; columns for which the paper prints nothing have ours alone."""
    printed = {what for what in columns if any(row.entries[what].theirs is not None for row in page.ran)}
    head = ["method"]
    for what, told in zip(columns, _heads(paper, columns), strict=True):
        head += [told, *(["paper", "difference"] if what in printed else [])]
    rows = []
    for row in page.ran:
        cells = [_label(row)]
        for what in columns:
            cells += _three(row, what) if what in printed else [_ours(row, what)]
        rows.append([*cells, epsilon_of(row.runs.values()).cells[0]])
    label = paper.attributes[columns[0].attribute].label
    word = "in" if columns[0].score in COMPONENTS else "of"
    title = f"{label}: {score_label(columns[0].score)} {word} the attack{_audit(paper, columns)}"
    return Sheet(title, [*head, COORDINATE], [*rows, *_guesses(page, columns, printed)])


def _guesses(page: Page, columns: list[Quantity], printed: set[Quantity]) -> list[list[str]]:
    """Rows of guesses without looking: one for each kind of guess, unless nobody can guess it."""
    rows = []
    for guess, told in GUESSES.items() if columns[0].score not in COMPONENTS else ():
        cells = [f"guess: {told}"]
        for what in columns:
            cells += [number(page.floors[what].get(guess)), *(["", ""] if what in printed else [])]
        rows.append([*cells, ""])
    return rows


def _beside(paper: Paper, page: Page, columns: list[Quantity]) -> Sheet:
    heads = zip(columns, _heads(paper, columns), strict=True)
    head = ["method", *(f"{score_label(what.score)}: {told}" for what, told in heads)]
    rows = [[_label(row), *(_ours(row, what) for what in columns)] for row in page.ran]
    label = paper.attributes[columns[0].attribute].label
    return Sheet(f"{label}: the same attack by other scores{_audit(paper, columns)}", head, rows)


def _useful(paper: Paper, page: Page) -> Sheet:
    """Usefulness beside popularity, what is guaranteed, and what it rests on."""
    metrics = paper.metrics_of(page.table)
    by = {one: score_label(one) for one in metrics}
    head = ["method", by[paper.metric], "paper", "difference", "minus popularity", "beats popularity"]
    for one in metrics[1:]:
        head += [by[one], f"{by[one]}, paper", f"{by[one]}, difference"]
    head += [COORDINATE, "ε an upload", "ε the run", "seeds", "minutes a run (machine as it was)"]
    rows = []
    for row in page.ran:
        results = list(row.runs.values())
        seeds = f"{len(results)}" if len(results) == page.seeds else f"{len(results)} of {page.seeds}"
        above = [bracketed(row.above) if row.above else MISSING, _beats(row)]
        others = [cell for one in metrics[1:] for cell in _three(row, Quantity(one))]
        numbers = [*_three(row, Quantity(paper.metric)), *above, *others]
        rows.append([_label(row), *numbers, *epsilon_of(results).cells, seeds, minutes(results)])
    floors = {by[one]: number(value) for one, value in page.popularity.items() if one in by}
    floor = ["popularity", floors.get(head[1], MISSING), *(floors.get(told, "") for told in head[2:])]
    return Sheet("Usefulness, and what is guaranteed", head, [*rows, floor], _selected(page))


def _selected(page: Page) -> str:
    """Name the rounds whose states were tested, a seed each: ``Plain 40, –, 50`` where seed 1 is missing."""
    told = []
    for row in page.ran:
        rounds = [f"{row.runs[s].selected:,}" if s in row.runs else ABSENT for s in range(page.seeds)]
        told.append(f"{row.label} {', '.join(rounds)}")
    return f"Selected rounds, by seed: {'; '.join(told)}."


def _curve(page: Page, name: str) -> Sheet | None:
    """Means over seeds, at a few rounds; None where nothing was measured."""
    if not (rounds := looks([row.runs for row in page.ran], name)):
        return None
    rows = [[_label(row), *map(number, at_rounds(row.runs, name, rounds))] for row in page.ran]
    where = "" if name.startswith(ALONG) else " in validation"
    return Sheet(f"{score_label(name)}{where}, by round", ["method", *(f"{r:,}" for r in rounds)], rows)


def _facts(paper: Paper, page: Page) -> Sheet:
    """Facts of the runs beside those that the paper prints, of methods that have any."""
    names = page.table.facts
    head = ["method", *(word for name in names for word in (FACTS[name].label, "paper"))]
    rows = []
    for row in page.ran:
        ours = [fact_of(row.runs, name) for name in names]
        theirs = [reported(paper, page.name, page.dataset, row.method, Quantity(name)) for name in names]
        if any(value is not None for value in (*ours, *theirs)):
            pairs = zip(names, ours, theirs, strict=True)
            rows.append([_label(row), *(FACTS[name].shown(v) for name, *both in pairs for v in both)])
    return Sheet(page.table.title, head, rows)


def _costs(page: Page) -> Sheet:
    """Seconds and bytes a round, and how many times those of the method that each is held against."""
    rows = []
    for row in page.ran:
        base = page.row(row.against)
        label = f"{_label(row)} (times {base.label})" if base else _label(row)
        rows.append([label, *cells(cost_of(page, row))])
    return Sheet("What a round costs", ["method", *HEAD], rows)


def cost_of(page: Page, row: Row) -> dict[str, Cost]:
    """The cost of a method's round, against the method of the same table that it names."""
    base = page.row(row.against)
    return costs(row.runs, base.runs if base else {})


def _three(row: Row, what: Quantity) -> list[str]:
    """Ours, theirs and the difference."""
    entry = row.entries[what]
    return [_ours(row, what), number(entry.theirs), signed(entry.difference)]


def _beats(row: Row) -> str:
    above = row.above
    if above is None or not above.sure:
        return MISSING if above is None else "unknown"
    return "yes" if above.low > 0 else "no, below" if above.high < 0 else "not told apart"
