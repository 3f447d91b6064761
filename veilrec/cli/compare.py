"""``veilrec compare``: runs side by side, usefulness beside leakage, and differences that are no luck."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veilrec.cli.arguments import Json, Runs, print_json
from veilrec.cli.show.leaks import printable
from veilrec.cli.show.tables import console, table
from veilrec.errors import BadInput

if TYPE_CHECKING:
    from rich.table import Table

    from veilrec.metrics.comparison import Comparison
    from veilrec.metrics.groups import Group
    from veilrec.metrics.leaks import Leak
    from veilrec.metrics.paired_audits import PairedAudits

__all__ = ["compare", "print_table"]


def compare(
    runs: Runs,
    audit: Annotated[
        str, typer.Option("--audit", metavar="NAME", help="Which audit; by default our own.")
    ] = "",
    metric: Annotated[
        str,
        typer.Option("--metric", metavar="NAME@K", help="Of usefulness; by default the one that selected."),
    ] = "",
    as_json: Json = False,
) -> None:
    """Compare finished runs, or two saved audits of the same users; claims only where pairs bear them out."""
    from veilrec.metrics.comparison import compare as compared
    from veilrec.metrics.leaks import NamedRun
    from veilrec.recipe.cells import runs_in
    from veilrec.result import Result

    if any(run.is_file() for run in runs):
        _compare_audits(runs, audit or metric, as_json)
        return
    places = [found for run in runs for found in runs_in(run)]
    for place in places:
        if places.count(place) > 1:
            raise BadInput(place, "named twice", "name each run once")
    found = compared(
        [NamedRun(str(place), Result.load(place)) for place in places], metric=metric, audit=audit
    )
    print_json(_plain(found)) if as_json else _print(found)


def _compare_audits(files: list[Path], named: str, as_json: bool) -> None:
    """Two saved audits of vectors: what leaks less after than before."""
    from veilrec.metrics.paired_audits import paired
    from veilrec.metrics.vector_audits import VectorAudit

    if len(files) != 2:
        count = "one place" if len(files) == 1 else f"{len(files)} places"
        what = f"{count}, with a file among them"
        raise BadInput(files[0], what, "name two saved audits, before and after, or folders of runs")
    if named:
        raise BadInput(files[0], "an audit of vectors has no --audit and no --metric", "leave them out")
    found = paired(*(VectorAudit.load(path) for path in files))
    print_json(found.plain()) if as_json else _print_audits(found)


def _print_audits(found: PairedAudits) -> None:
    from veilrec.metrics.words import bracketed

    out, heads = console(), ("before", "after", "difference")
    shown = table("attribute", "score", *heads, right=heads)
    for one in found.changes:
        numbers = [bracketed(side.leak.measure) for side in (one.before, one.after)]
        apart = bracketed(one.difference, sign=True)
        cells = [printable(one.attribute), one.before.leak.spoken, *numbers, apart]
        shown.add_row(*cells, style="bold" if one.shown else None)
    out.print(shown)
    before, after = map(printable, found.names)
    out.print(f"Before: {before}. After: {after}. The same {found.users:,} users, in pairs.", style="dim")
    for one in found.changes:
        out.print(printable(one.sentence), style="bold" if one.shown else None)
    for note in found.notes:
        out.print(printable(note), style="yellow")


def print_table(found: Comparison) -> None:
    """The table, and what it was measured by."""
    out = console()
    out.print(_table(found))
    out.print(f"Protocol: {printable(found.protocol)}; {found.users:,} users tested.", style="dim")
    if found.audit:
        out.print(f"Leaks: the worst attacker of audit {printable(found.audit)}.", style="dim")


def _print(found: Comparison) -> None:
    """The table, what to mind about it, and what the differences show."""
    out = console()
    print_table(found)
    for note in found.notes:
        out.print(printable(note), style="yellow")
    if found.statements:
        out.print()
    for statement in found.statements:
        out.print(printable(statement.sentence), style="bold" if statement.shown else None)


def _table(found: Comparison) -> Table:
    """One row a group, below the popularity floor."""
    from veilrec.metrics.words import bracketed

    names = _attributes(found)
    heads = [found.metric, *(f"{printable(name)} ({_spoken(found, name)})" for name in names), "ε of the run"]
    shown = table("defence", "seeds", *heads, right=("seeds", *heads))
    shown.add_row("popularity", "", f"{found.floor:.4f}", *[""] * len(names), "", style="dim")
    for group in found.groups:
        utility, found_out = bracketed(group.mean(found.metric), 4), group.leaks(found.audit)
        leaks = [_leak(group, found_out.get(name)) for name in names]
        epsilon = "none" if group.epsilon.spent is None else group.epsilon.run
        style = "red" if group.collapsed else None
        cells = [printable(group.label), str(len(group.runs)), utility, *leaks, epsilon]
        shown.add_row(*cells, style=style)
    return shown


def _leak(group: Group, leak: Leak | None) -> str:
    from veilrec.metrics.words import ABSENT, bracketed

    if leak is None:
        return ABSENT
    mark = " turned round" if leak.turned else ""
    return bracketed(leak.measure) + mark + (" not ranked" if group.collapsed else "")


def _attributes(found: Comparison) -> list[str]:
    return list(dict.fromkeys(name for group in found.groups for name in group.leaks(found.audit)))


def _spoken(found: Comparison, name: str) -> str:
    every = (group.leaks(found.audit) for group in found.groups)
    return next(leaks[name].spoken for leaks in every if name in leaks)


def _plain(found: Comparison) -> dict[str, Any]:
    """The comparison for machines; runs by name only."""
    return {
        "metric": found.metric,
        "protocol": found.protocol,
        "users": found.users,
        "floor": found.floor,
        "audit": found.audit or None,
        "groups": [_plain_group(found, group) for group in found.groups],
        "statements": [
            {**asdict(s), "difference": s.difference and s.difference.plain()} for s in found.statements
        ],
        "notes": list(found.notes),
    }


def _plain_group(found: Comparison, group: Group) -> dict[str, Any]:
    from veilrec.metrics.groups import trained

    useful, settings = group.mean(found.metric), trained(group.first)
    others = [trained(other.first) for other in found.groups]
    leaks = {
        name: {**leak._asdict(), "measure": leak.measure.plain(), "ranked": not group.collapsed}
        for name, leak in group.leaks(found.audit).items()
    }
    return {
        "label": group.label,
        "settings": {k: v for k, v in settings.items() if any(v != other.get(k) for other in others)},
        "runs": {str(seed): run.name for seed, run in group.runs.items()},
        "utility": useful and useful.plain(),
        "leaks": leaks,
        "epsilon": group.epsilon.spent,
        "collapsed": group.collapsed,
    }
