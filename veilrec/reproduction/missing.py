"""Missing pieces of tables, one line a method and dataset: runs, audits, runs that are out of date."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from veilrec.reproduction.audits import Lack
from veilrec.reproduction.paper import Paper
from veilrec.reproduction.tables import Page
from veilrec.reproduction.words import seeds_told

__all__ = ["missing_lines"]


def missing_lines(
    paper: Paper, pages: Sequence[Page], stale: Mapping[str, str], lacks: Sequence[Lack]
) -> list[str]:
    """Markdown of all that these tables lack, or that nothing does."""
    names = dict.fromkeys(f"{page.dataset}/{name}" for page in pages for name in page.missing)
    lines = [f"- {who}: {seeds_told(seeds)}" for (who, _), seeds in _grouped(paper, names, {}).items()]
    lines += _audits(paper, lacks)
    lines = lines or ["Nothing: every run of these tables is there."]
    if stale:
        lines += ["", "Made with other settings than `paper.toml` asks for by now:", ""]
        for (who, what), seeds in _grouped(paper, stale, stale).items():
            lines.append(f"- {who}, {seeds_told(seeds)}: {what}")
    return lines


def _audits(paper: Paper, lacks: Sequence[Lack]) -> list[str]:
    """Audits that finished runs lack, with the command that makes the first of them."""
    out = Path("runs") / paper.name  # where runs lie by default: a text must not name one machine's folders
    lines = []
    for audit, why in dict.fromkeys((one.audit, one.why) for one in lacks):
        mine = {one.cell: one for one in lacks if (one.audit, one.why) == (audit, why)}
        for (who, _), seeds in _grouped(paper, mine, {}).items():
            first = next(one for one in mine.values() if _who(paper, one.cell) == (who, seeds[0]))
            more = ", and so for each seed" if len(seeds) > 1 else ""
            lines.append(f"- {who}, audit {audit} ({why}), {seeds_told(seeds)}: `{first.command(out)}`{more}")
    return lines


def _grouped(paper: Paper, cells: Iterable[str], told: Mapping[str, str]) -> dict[tuple[str, str], list[int]]:
    """Seeds by method on its dataset, and by what is said of the cell."""
    found: dict[tuple[str, str], list[int]] = {}
    for cell in cells:
        who, seed = _who(paper, cell)
        found.setdefault((who, told.get(cell, "")), []).append(seed)
    return found


def _who(paper: Paper, cell: str) -> tuple[str, int]:
    """``ml-1m/pure/seed=0`` as *ML-1M: Pure FedRec* and 0."""
    dataset, method, seed = cell.split("/")
    label = f"{paper.datasets[dataset].label}: {paper.methods[method].label}"
    return label, int(seed.removeprefix("seed="))
