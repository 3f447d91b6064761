"""Committed results, read again: the tables and the checked claims of a paper's ``RESULTS*.md``.

What pages say about results is written from these files alone, so that every number can be looked up.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Claim", "Number", "Sheet", "claims", "number_in", "sheets"]

HEADING = re.compile(r"^### (\w+) on ([^:]+): ")
TITLE = re.compile(r"^\*\*(.+)\*\*$")
CLAIM = re.compile(r"^- (.+?): (yes|no|not told apart|cannot be checked)(?:, (.+))?$")
ENDS = re.compile(r"([−+]?\d[\d,.]*)(?: \[([−+]?[\d.]+), ([−+]?[\d.]+)\])?")
DIFFERENCE = re.compile(r"[−+][\d.]+ \[[−+][\d.]+, [−+][\d.]+\]")
UNRANKED = re.compile(r"low leakage is not ranked|said the same of everybody")


@dataclass(frozen=True)
class Number:
    """A number with its interval, where it has one."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Sheet:
    """One grid of numbers: of which table, on which dataset, under which title."""

    table: str
    dataset: str
    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]

    def cell(self, row: str, column: str) -> str:
        """The text of a cell; a row is named as far as its first mark."""
        place = self.head.index(column)
        return next(found[place] for found in self.rows if found[0].rstrip("*†=! ") == row)


@dataclass(frozen=True)
class Claim:
    """A sentence of a paper as it was checked.

    Attributes:
        dataset: On which.
        text: What is claimed.
        outcome: ``yes``, ``no``, ``not told apart``, ``not ranked`` or ``cannot be checked``.
        difference: ``+0.064 [+0.013, +0.115]``; "" where there is none.
        one_seed: Whether it rests on a single training.
    """

    dataset: str
    text: str
    outcome: str
    difference: str
    one_seed: bool


def number_in(cell: str) -> Number | None:
    """``0.403 [0.304, 0.501]`` as a number; None where a cell has none."""
    found = ENDS.match(cell)
    if not found:
        return None
    value, low, high = (_float(part) if part else None for part in found.groups())
    return None if value is None else Number(value, low, high)


def sheets(path: Path) -> list[Sheet]:
    """Every grid below a heading of a table, in order."""
    table = dataset = title = ""
    found: list[Sheet] = []
    lines = path.read_text(encoding="utf-8").splitlines()
    for place, line in enumerate(lines):
        if heading := HEADING.match(line):
            table, dataset, title = heading[1], heading[2], ""
        elif bold := TITLE.match(line):
            title = bold[1]
        elif table and line.startswith("| --- ") and lines[place - 1].startswith("| "):
            rows = [_cells(row) for row in _below(lines[place + 1 :])]
            found.append(Sheet(table, dataset, title, _cells(lines[place - 1]), rows))
    return found


def claims(path: Path) -> list[Claim]:
    """Every checked claim, each once on a dataset, in the order of the tables."""
    dataset, found = "", {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if heading := HEADING.match(line):
            dataset = heading[2]
        elif dataset and (said := CLAIM.match(line)):
            rest = said[3] or ""
            outcome = "not ranked" if UNRANKED.search(rest) else said[2]
            difference = DIFFERENCE.search(rest)
            one = Claim(dataset, said[1], outcome, difference[0] if difference else "", "one seed" in rest)
            found.setdefault((dataset, said[1]), one)
    return list(found.values())


def _below(lines: Sequence[str]) -> Iterator[str]:
    for line in lines:
        if not line.startswith("|"):
            return
        yield line


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def _float(text: str) -> float:
    return float(text.replace("−", "-").replace(",", ""))
