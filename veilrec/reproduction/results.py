"""``RESULTS.md``: all tables as Markdown, from the run folders alone; the same runs give the same text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from veilrec import __version__
from veilrec.reproduction.audits import Lack
from veilrec.reproduction.claims import Checked
from veilrec.reproduction.paper import Paper
from veilrec.reproduction.sheets import BELOW, OURS, Sheet
from veilrec.reproduction.tables import Page
from veilrec.reproduction.words import score_label
from veilrec.result import Result

__all__ = ["Told", "markdown", "marks", "plain"]


@dataclass(frozen=True)
class Told:
    """A table on a dataset with all that is said about it."""

    page: Page
    sheets: Sequence[Sheet]
    claims: Sequence[Checked]


def markdown(
    paper: Paper,
    told: Sequence[Told],
    commands: Sequence[str],
    stale: Mapping[str, str],
    lacks: Sequence[Lack] = (),
) -> str:
    """All tables of a paper, under their datasets, behind a head that says how to read them."""
    lines = [f"# Results: {paper.title}", "", *_head(paper, told, commands)]
    for dataset in dict.fromkeys(one.page.dataset for one in told):
        lines += ["", f"## {paper.datasets[dataset].label}"]
        for one in told:
            if one.page.dataset == dataset:
                lines += ["", *_table(paper, one)]
    lines += ["", "## What is missing", "", *_missing(paper, told, stale, lacks)]
    return "\n".join(lines).rstrip() + "\n"


def _head(paper: Paper, told: Sequence[Told], commands: Sequence[str]) -> list[str]:
    results = [run for one in told for row in one.page.rows for run in row.runs.values()]
    seeds = max((one.page.seeds for one in told), default=0)
    return [
        f"{paper.reference}",
        "",
        f"Written by `veilrec reproduce`, version {__version__}, from the run folders of:",
        "",
        "```bash",
        *commands,
        "```",
        "",
        f"- Seeds: {seeds}. A seed is a whole run: initial weights, sampling, noise, and which users the "
        "attacker knows.",
        f"- {_made(results)}",
        "- Numbers are means over seeds with a 95 % interval over seeds and users (Student's t over seeds, "
        "users resampled). *Paper* is what the paper prints, – where it prints no number; *difference* is "
        "ours minus theirs.",
        f"- The attack is judged by {score_label(paper.score)}; guesses that look at nothing stand below.",
        f"- {score_label(paper.metric)} is of the test item; popularity shows everybody the most-seen items.",
        f"- `{OURS}` is a row that the paper does not have. `{BELOW}` is below popularity in some run: "
        "such a model has not learned, and its low leakage is not ranked.",
        "- A claim is *yes* or *no* only where the interval of the difference excludes zero.",
        *(f"- {note}" for note in paper.notes),
    ]


def _made(results: Sequence[Result]) -> str:
    """With what the runs were made."""
    if not results:
        return "No run is finished yet."
    found = []
    for key, word in (("veilrec", "veilrec"), ("torch", "torch"), ("processor", "on")):
        values = dict.fromkeys(str(run.environment.get(key, "unknown")) for run in results)
        values.pop("unknown", None)
        found += [f"{word} {' and '.join(values)}"] if values else []
    protocols = dict.fromkeys(run.utility.protocol for run in results)
    return f"Made with {', '.join(found)}. Usefulness: {'; '.join(protocols)}."


def _table(paper: Paper, told: Told) -> list[str]:
    page = told.page
    lines = [f"### {page.name}: {page.table.title}"]
    if not any(row.runs for row in page.rows):
        return [*lines, "", f"Nothing was run yet: {len(page.missing)} runs are missing."]
    for sheet in told.sheets:
        lines += ["", f"**{sheet.title}**", "", *grid(sheet)]
    if told.claims:
        lines += ["", "What the paper says, on our numbers:", "", *(f"- {c.sentence}" for c in told.claims)]
    notes = [*page.table.notes, *marks(paper, page)]
    lines += ["", "Notes:", "", *(f"- {note}" for note in notes)] if notes else []
    return lines


def grid(sheet: Sheet) -> list[str]:
    """A sheet as a Markdown table."""
    rows = [[_cell(cell) for cell in row] for row in (sheet.head, *sheet.rows)]
    rule = ["---", *["---:"] * (len(sheet.head) - 1)]
    return [f"| {' | '.join(row)} |" for row in (rows[0], rule, *rows[1:])]


def marks(paper: Paper, page: Page) -> list[str]:
    """What sets rows of this table apart: notes of methods, those below popularity, those with few seeds."""
    found = [f"{row.label}: {note}" for row in page.rows if (note := paper.methods[row.method].note)]
    for row in page.rows:
        if row.collapsed:
            found.append(f"{row.label}: {row.collapsed} of {len(row.runs)} runs are below popularity.")
    if page.missing:
        found.append(f"Missing runs: {', '.join(page.missing)}.")
    return found


def _missing(
    paper: Paper, told: Sequence[Told], stale: Mapping[str, str], lacks: Sequence[Lack]
) -> list[str]:
    names = dict.fromkeys(f"{one.page.dataset}/{name}" for one in told for name in one.page.missing)
    out = Path("runs") / paper.name  # where runs lie by default: a text must not name one machine's folders
    lines = [f"- {name}" for name in names]
    lines += [f"- {one.cell}, audit {one.audit} ({one.why}): `{one.command(out)}`" for one in lacks]
    lines = lines or ["Nothing: every run of these tables is there."]
    if stale:
        lines += ["", "Made with other settings than `paper.toml` asks for by now:", ""]
        lines += [f"- {name}: {what}" for name, what in stale.items()]
    return lines


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def plain(told: Told) -> dict[str, Any]:
    """A table for machines: every number with its interval."""
    page = told.page
    return {
        "table": page.name,
        "title": page.table.title,
        "dataset": page.dataset,
        "seeds": page.seeds,
        "popularity": page.popularity,
        "rows": [
            {
                "method": row.method,
                "label": row.label,
                "extra": row.extra,
                "seeds": sorted(row.runs),
                "collapsed": row.collapsed,
                "above_popularity": row.above and row.above._asdict(),
                "ledger": [run.ledger.get("statement", "") for run in row.runs.values()],
                "numbers": [
                    {
                        **entry.what._asdict(),
                        "ours": entry.ours and entry.ours._asdict(),
                        "paper": entry.theirs,
                        "difference": entry.difference,
                        "seeds": entry.seeds,
                    }
                    for entry in row.entries.values()
                ],
            }
            for row in page.rows
        ],
        "floors": [{**what._asdict(), **floors} for what, floors in page.floors.items()],
        "claims": [
            {
                "sentence": c.sentence,
                "verdict": c.verdict,
                "difference": c.difference and c.difference._asdict(),
                "seeds": c.seeds,
            }
            for c in told.claims
        ],
        "missing": page.missing,
    }
