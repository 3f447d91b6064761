"""Nearness: how many printed numbers our own come near to, in a line for each table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from veilrec.metrics.measures import Measure
from veilrec.reproduction.tables import Page

__all__ = ["HEADING", "Printed", "line_of", "near_lines", "nearness"]

HEADING = "## How near the printed numbers we come"
NEAR = 0.01 + 1e-9  # a number of three digits that is off by ten of the last
LEGEND = (
    "Of the numbers that the paper prints in a table: to how many ours comes within 0.01, how many lie "
    "inside our 95 % interval, and what is missing here."
)


class Printed(NamedTuple):
    """A printed number and ours: None where it was not measured."""

    paper: float
    ours: Measure | None


def nearness(table: str, pairs: Sequence[Printed], unrun: Sequence[str]) -> str:
    """One line: printed, within 0.01, inside our interval, missing and why."""
    if not pairs:
        return f"- {table}: the paper prints no number.{_unrun(unrun)}"
    there = [(one.paper, one.ours) for one in pairs if one.ours is not None]
    near = sum(abs(ours.value - paper) <= NEAR for paper, ours in there)
    inside = sum(ours.sure and ours.low <= paper <= ours.high for paper, ours in there)
    missing = len(pairs) - len(there)
    lacks = f"{missing} not measured here" if missing else "none missing"
    told = f"{len(pairs)} printed, {near} within 0.01, {inside} inside our interval, {lacks}"
    return f"- {table}: {told}.{_unrun(unrun)}"


def line_of(name: str, page: Page) -> str:
    """The line of a table, from its numbers."""
    pairs = [
        Printed(entry.theirs, entry.ours)
        for row in page.ran
        for entry in row.entries.values()
        if entry.theirs is not None
    ]
    return nearness(name, pairs, [row.label for row in page.rows if not row.runs])


def near_lines(lines: Iterable[str]) -> list[str]:
    """The section of all these lines; nothing where there are none."""
    found = list(lines)
    return [HEADING, "", LEGEND, "", *found] if found else []


def _unrun(labels: Sequence[str]) -> str:
    return f" Not run: {'; '.join(labels)}." if labels else ""
