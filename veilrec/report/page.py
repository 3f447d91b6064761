"""The page: one HTML file that holds everything it needs and asks nobody for anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from veilrec.metrics.arms import Family, families, protocols, terms
from veilrec.metrics.measures import gathered
from veilrec.metrics.statements import Statement
from veilrec.metrics.words import bare, number
from veilrec.report import protocol, running
from veilrec.report.conclusion import conclusion, tiles
from veilrec.report.exports import COLUMNS, embedded, table, to_csv
from veilrec.report.exposed import exposed, most_exposed
from veilrec.report.figures import Chart
from veilrec.report.findings import (
    MARKS,
    by_chance,
    claims,
    doubts,
    rows_apart,
    strip,
    table_of_verdicts,
)
from veilrec.report.frontier import frontier
from veilrec.report.leakage import by_attacker, by_part, touched
from veilrec.report.names import MEANINGS
from veilrec.report.receipts.page import receipt_section, receipt_style
from veilrec.report.template import policy, template, text_of
from veilrec.report.topics import topics
from veilrec.report.verdicts import MEASURES, verdicts
from veilrec.result import Result

__all__ = ["page"]


@dataclass(frozen=True)
class Section:
    """A heading and the charts under it."""

    key: str
    title: str
    charts: list[Chart]


def page(results: Sequence[tuple[str, Result]], title: str, receipts: Mapping[str, Any] | None = None) -> str:
    """The whole page as text."""
    groups, left = families(results)
    blocks = [_block(family, k) for k, family in enumerate(groups)]
    charts = {
        f"{block['key']}-{chart.key}": [variant.figure for variant in chart.variants]
        for block in blocks
        for chart in [
            *([block["frontier"]] if block["frontier"] else []),
            *(chart for section in block["sections"] for chart in section.charts),
        ]
    }
    rows = table(results)
    numbers = {"columns": COLUMNS, "rows": [list(row.values()) for row in rows], "csv": to_csv(rows)}
    data = embedded({"charts": _short(charts), "numbers": numbers})
    names = ", ".join(dict.fromkeys(family.data for family in groups))
    text: str = template("page.html", number=number, strip=strip, marks=MARKS, meanings=MEANINGS).render(
        title=title or f"What the server can find out: {names}",
        blocks=blocks,
        left=left,
        meta=_meta(groups, len(results)),
        data=data,
        receipts=[
            (name, receipt_section(told, name, f"r{k}"))
            for k, (name, told) in enumerate((receipts or {}).items())
        ],
        style=(style := text_of("style.css") + (receipt_style() if receipts else "")),
        script=(script := text_of("script.js")),
        charts=(drawing := text_of("charts.js")),
        policy=policy([style], [drawing, script]),
    )
    return text.lstrip().encode("utf-8", "replace").decode("utf-8")  # a path may hold bytes that are no text


def _short(value: Any) -> Any:
    """Drawings need no more digits than eyes have."""
    if isinstance(value, Mapping):
        return {name: _short(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_short(entry) for entry in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _meta(groups: Sequence[Family], runs: int) -> str:
    """``9 runs; ml-100k: 943 users, 1,682 items.``"""
    sizes = [(family.data, family.first.data) for family in groups]
    data = [
        f"{name}: {bare(data.get('users'))} users, {bare(data.get('items'))} items" for name, data in sizes
    ]
    return f"{runs} run{'' if runs == 1 else 's'}; {'; '.join(dict.fromkeys(data))}."


def _block(family: Family, place: int) -> dict[str, Any]:
    """All that the template says about one family."""
    said = claims(family)
    return {
        "key": f"f{place}",
        "family": family,
        **_screen(family, said),
        "topics": topics(family),
        "exposed": [(audit, exposed(family, audit), most_exposed(family, audit)) for audit in family.audits],
        "doubts": doubts(family),
        "chance": by_chance(family),
        "verdicts": {audit: table_of_verdicts(family, audit) for audit in family.audits},
        "claims": said,
        "terms": {audit: protocols(family, audit) for audit in family.audits},
        "terms_of": terms,
        "rows_apart": {audit: rows_apart(family, audit) for audit in family.audits},
        "scales": {(v.audit, v.attribute): MEASURES[v.scale].short for v in verdicts(family)},
        "apart": [arm.label for arm in family.arms if arm.collapsed],
        "sections": _sections(family),
        "cost": running.cost(family),
        "tested": bare(family.first.utility.users),
        "reads": _reads(family),
        "epsilons": {arm: arm.epsilon for arm in family.arms} if family.noisy else {},
        "too_much": protocol.TOO_MUCH,
        "utility": protocol.utility_table(family),
        "ledgers": protocol.ledgers(family),
        "audits": protocol.audits(family),
        "runs": protocol.runs(family),
        "settings": [(arm, protocol.settings(arm)) for arm in family.arms],
    }


def _screen(family: Family, said: Mapping[str, Sequence[Statement]]) -> dict[str, Any]:
    """The first screen: what it comes to, the tiles, and usefulness against leakage."""
    plane = frontier(family)
    return {
        "conclusion": conclusion(family, said),
        "one_seed": all(len(arm.runs) == 1 for arm in family.arms),
        "tiles": tiles(family),
        "frontier": plane if plane.variants else None,
    }


def _sections(family: Family) -> list[Section]:
    """The charts below, by heading; none without a drawing."""
    sections = [
        Section("attackers", "Who finds out how much", [by_attacker(family)]),
        Section("parts", "Where it leaks", [by_part(family)]),
        Section("learning", "How it learned", [running.learning(family)]),
        Section("people", "Which items a person touched", [touched(family)]),
    ]
    drawn = [Section(s.key, s.title, [chart for chart in s.charts if chart.variants]) for s in sections]
    return [section for section in drawn if section.charts]


def _reads(family: Family) -> list[str]:
    """Sentences on what models are told about users, each once; with the arms, where they differ."""
    found = gathered((arm.first.reads(), arm.label) for arm in family.arms)
    if len(found) == 1:
        return [sentence for sentence in found if sentence]
    return [f"{', '.join(arms)}: {sentence}" for sentence, arms in found.items() if sentence]
