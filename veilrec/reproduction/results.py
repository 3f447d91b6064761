"""``RESULTS.md``: all tables as Markdown, from the run folders alone; the same runs give the same text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from veilrec import __version__
from veilrec.metrics.leaks import BEFORE
from veilrec.reproduction.facts import fact_of
from veilrec.reproduction.nearness import line_of, near_lines
from veilrec.reproduction.numbers import rests_on_before
from veilrec.reproduction.overview import SAYS, Told, heading, missing_lines, overview
from veilrec.reproduction.paper import Paper
from veilrec.reproduction.sheets import BELOW, MUTE, OURS, cost_of, grid, unmeasured
from veilrec.reproduction.tables import Page, Row
from veilrec.reproduction.words import below, score_label, seeds_told
from veilrec.result import Result

__all__ = ["Told", "gaps", "markdown", "marks", "plain"]


def markdown(paper: Paper, told: Sequence[Told], commands: Sequence[str], stale: Mapping[str, str]) -> str:
    """All tables of a paper by dataset, behind a head that says how to read them and what came out."""
    near = near_lines(
        line_of(f"{one.page.name} on {paper.datasets[one.page.dataset].label}", one.page) for one in told
    )
    lines = [
        f"# Results: {paper.title}",
        "",
        *near,
        "",
        "## How to read it",
        "",
        *_head(paper, told, commands),
    ]
    lines += ["", *overview(paper, told)]
    for dataset in dict.fromkeys(one.page.dataset for one in told):
        lines += ["", f"## {paper.datasets[dataset].label}"]
        for one in told:
            if one.page.dataset == dataset:
                lines += ["", *_table(paper, one)]
    pages = [one.page for one in told]
    lines += ["", "## What is missing", "", *missing_lines(paper, pages, stale)]
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
        f"- The attack is judged by {_judged(paper)}; guesses that look at nothing stand below.",
        f"- {score_label(paper.metric)} is of the test item; popularity shows everybody the most-seen items.",
        f"- `{OURS}` is a row that the paper does not have. `{BELOW}` is below popularity in some run: "
        "such a model has not learned, and its low leakage is not ranked.",
        f"- `{MUTE}` beside a score: in some run the attacker ranked everybody alike, its AUC one half on "
        "every resample. It has failed, which tells nothing of what could be found, and is not ranked.",
        "- A claim is *yes* or *no* only where the interval of the difference excludes zero.",
        *(f"- {note}" for note in paper.notes),
    ]


def _judged(paper: Paper) -> str:
    """``micro-F1, gender by AUC``."""
    own = [f"{a.label.lower()} by {score_label(a.score)}" for a in paper.attributes.values() if a.score]
    return ", ".join([score_label(paper.score), *own])


def _made(results: Sequence[Result]) -> str:
    """Name versions and machines with which the runs were made."""
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
    lines = [f"### {heading(paper, page)}"]
    for gap in gaps(paper, page):
        lines += ["", gap]
    if not page.ran:
        return lines
    if told.drawing:
        lines += ["", f"![{heading(paper, page)}]({told.picture})"]
    for sheet in told.sheets:
        lines += ["", f"**{sheet.title}**", "", *grid(sheet), *(["", sheet.note] if sheet.note else [])]
    if told.claims:
        lines += ["", f"{SAYS}:", "", *(f"- {c.sentence}" for c in told.claims)]
    notes = [*page.table.notes, *marks(paper, page)]
    lines += ["", "Notes:", "", *(f"- {note}" for note in notes)] if notes else []
    return lines


def gaps(paper: Paper, page: Page) -> list[str]:
    """List what a table does not show at all, in a line each: for its head."""
    if not page.ran:
        return [f"Nothing was run yet: {len(page.missing)} runs are missing."]
    return unmeasured(paper, page)


def marks(paper: Paper, page: Page) -> list[str]:
    """List what sets rows of a table apart: notes of methods, runs below popularity, few seeds."""
    found = [f"{row.label}: {note}" for row in page.ran if (note := paper.methods[row.method].note)]
    low = {row.label: (row.collapsed, len(row.runs)) for row in page.ran if row.collapsed}
    found += [f"{_capital(below({who: count}, total))}." for who, (count, total) in low.items()]
    found += [line for row in page.ran if (line := _failed(paper, page, row))]
    found += _of_before(page)
    unrun = [row.label for row in page.rows if not row.runs]
    found += [f"Not run on {paper.datasets[page.dataset].label}: {'; '.join(unrun)}."] if unrun else []
    for row in page.ran:
        if absent := [seed for seed in range(page.seeds) if seed not in row.runs]:
            found.append(f"{row.label}: without {seeds_told(absent)}.")
    return found


def _of_before(page: Page) -> list[str]:
    """Name the rows of which a number rests on a verdict of before, in a sentence."""
    every = [what for some in page.columns.values() for what in some]
    old = [
        row.label
        for row in page.ran
        if any(rests_on_before(run, what) for run in row.runs.values() for what in every)
    ]
    return [f"*Worst of all* is a {BEFORE}, in {'; '.join(old)}."] if old else []


def _failed(paper: Paper, page: Page, row: Row) -> str:
    """Name the attacks on a method that said the same of everybody, in a sentence; "" where none did."""
    failed = [name for name, some in page.columns.items() if any(row.entries[what].mute for what in some)]
    found = [paper.attributes[name].label.lower() for name in failed]
    who = f"{row.label}: an attack on {' and '.join(found)}"
    return f"{who} said the same of everybody ({MUTE}): it has failed." if found else ""


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def plain(told: Told) -> dict[str, Any]:
    """A table for machines: every number with its interval."""
    page = told.page
    return {
        "table": page.name,
        "title": page.table.title,
        "dataset": page.dataset,
        "seeds": page.seeds,
        "popularity": dict(page.popularity),
        "rows": [
            {
                "method": row.method,
                "label": row.label,
                "extra": row.extra,
                "seeds": sorted(row.runs),
                "collapsed": row.collapsed,
                "above_popularity": row.above and row.above.plain(),
                "facts": {name: fact_of(row.runs, name) for name in page.table.facts},
                "cost": {name: one._asdict() for name, one in cost_of(page, row).items()},
                "ledger": [run.ledger.get("statement", "") for run in row.runs.values()],
                "numbers": [
                    {
                        **entry.what._asdict(),
                        "ours": entry.ours and entry.ours.plain(),
                        "paper": entry.theirs,
                        "difference": entry.difference,
                        "seeds": entry.seeds,
                        "mute": entry.mute,
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
                "ranked": c.ranked,
                "difference": c.difference and c.difference.plain(),
                "seeds": c.seeds,
            }
            for c in told.claims
        ],
        "missing": page.missing,
    }
