"""Summaries: a result as a person reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from veilrec.cli.show.leaks import printable
from veilrec.cli.show.tables import console, table
from veilrec.metrics.words import amount, at_rest, duration

if TYPE_CHECKING:
    from rich.table import Table

    from veilrec.result import Result

__all__ = ["print_cells", "print_list", "print_result", "print_utility"]

Run = tuple[Mapping[str, Any], "Result"]  # what sets a run apart, and what came of it
STOPPED = {
    "patience": "stopped by patience",
    "defence": "stopped by the defence",
    "budget": "stopped by the privacy budget",
}


def print_result(result: Result, place: Path) -> None:
    """One run: what was trained, how good it is, what it cost, and where it lies."""
    from veilrec.metrics.groups import defences

    out, settings, data = console(), result.settings, result.data
    model = settings["model"]["name"]
    out.print(
        f"{model} by {settings['protocol']['name']} on {data['name']}: {data['clients']:,} devices, "
        f"{data['users']:,} users, {data['items']:,} items, {data['events']:,} events.",
        style="bold",
    )
    ended = f", {STOPPED[result.stopped]}" if result.stopped in STOPPED else ""
    how = "selected by validation" if result.utility.validation else "tested, without validation"
    out.print(
        f"Defence: {' + '.join(defences(settings))}. Seed {settings['seed']}. "
        f"Round {result.selected} of {result.rounds} {how}{ended}."
    )
    if reads := result.reads():
        out.print(reads)
    print_utility(model, asdict(result.utility))
    if result.privacy:
        from veilrec.cli.show.leaks import print_verdicts

        for audit in result.privacy.values():
            print_verdicts(audit)
    if result.ledger:
        from veilrec.privacy.statement import SEEDED

        seeded = f"; {SEEDED}" if SEEDED in result.ledger.get("notes", ()) else ""
        out.print(f"Privacy ledger: {result.ledger['statement']}{seeded}")
    up, down = result.traffic["up"], result.traffic["down"]
    out.print(
        f"Traffic: {amount(up['mean'])} up and {amount(down['mean'])} down per device and round; "
        f"{amount(up['total'] + down['total'])} in all."
    )
    for line in result.traffic.get("erasing", ()):
        out.print(f"{at_rest(line)} {amount(line['up'])} went up for it and {amount(line['down'])} down.")
    peak = result.timing.get("peak_bytes", 0)
    memory = f"; {amount(peak)} of memory at most" if peak else ""
    out.print(f"Time: {duration(result.timing['total'])}{memory}.")
    out.print(f"Everything is in {place}", soft_wrap=True)


def print_utility(model: str, utility: Mapping[str, Any]) -> None:
    """Metrics by length of the list, with the popularity floor beside them."""
    out, test, floor = console(), utility["test"], utility["floor"]
    metrics = list(dict.fromkeys(name.split("@")[0] for name in test))
    lengths = sorted({int(name.split("@")[1]) for name in test})
    heads = [f"{model} @{k}" for k in lengths] + [f"popularity @{k}" for k in lengths]
    shown = table("metric", *heads, right=heads)
    for metric in metrics:
        cells = [f"{where[f'{metric}@{k}']:.4f}" for where in (test, floor) for k in lengths]
        shown.add_row(metric, *cells)
    out.print(shown)
    out.print(f"Protocol: {utility['protocol']}; {utility['users']:,} users tested.", style="dim")
    if utility["collapsed"]:
        out.print(
            f"Below the popularity floor by {utility['select']}: this model has not learned.", style="red"
        )


def print_cells(results: Sequence[Run], place: Path) -> None:
    """The runs of a sweep: one table for each protocol, because numbers of two do not compare."""
    out, groups = console(), dict[tuple[str, str], list[Run]]()
    for run in results:
        groups.setdefault((run[1].utility.protocol, run[1].utility.select), []).append(run)
    for (protocol, select), alike in groups.items():
        out.print(_cells_table(alike, select))
        out.print(f"Protocol: {protocol}. In red: below popularity, not learned.", style="dim")
    out.print(f"Everything is in {place}; means and intervals: veilrec compare {place}", soft_wrap=True)


def _cells_table(results: Sequence[Run], select: str) -> Table:
    """Each run beside popularity."""
    end = select[select.index("@") :]
    names = [name for name in results[0][1].utility.test if name.endswith(end)][:3]
    heads = (*names, f"popularity {select}", "round")
    shown = table(*results[0][0], *heads, right=heads)
    for settings, result in results:
        utility = result.utility
        values = [f"{value:.4f}" for value in [*(utility.test[n] for n in names), utility.floor[select]]]
        style = "red" if utility.collapsed else None
        shown.add_row(*map(_choice, settings.values()), *values, str(result.selected), style=style)
    return shown


def _choice(value: Any) -> str:
    """The choice of a cell in a sweep: a value, or a list of tables as in ``apm, low 3 + once``."""
    if not isinstance(value, list) or not all(isinstance(entry, Mapping) for entry in value):
        return str(value)
    told = [[str(v) if k == "name" else f"{k} {v}" for k, v in entry.items()] for entry in value]
    return printable(" + ".join(", ".join(words) for words in told)) or "none"


def print_list(user: str, items: Sequence[Mapping[str, Any]]) -> None:
    """Recommendations, best first."""
    out = console()
    titled = any(entry["title"] for entry in items)
    shown = table("", "item", *(["title"] if titled else []), "score", right=("", "score"))
    for entry in items:
        title = [entry["title"] or ""] if titled else []
        shown.add_row(str(entry["rank"]), entry["item"], *title, f"{entry['score']:.3f}")
    out.print(f"For {user}, of what they have not touched:" if items else f"{user} has touched every item.")
    if items:
        out.print(shown)
