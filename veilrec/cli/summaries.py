"""Summaries: a result as a person reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from veilrec.cli.tables import amount, console, minutes, table

if TYPE_CHECKING:
    from veilrec.result import Result

__all__ = ["print_cells", "print_list", "print_result", "print_utility"]

STOPPED = {"patience": "stopped by patience", "defence": "stopped by the defence"}


def print_result(result: Result, place: Path) -> None:
    """One run: what was trained, how good it is, what it cost, and where it lies."""
    out, settings, data = console(), result.settings, result.data
    model = settings["model"]["name"]
    defences = " + ".join(entry["name"] for entry in settings["defence"])
    out.print(
        f"{model} by {settings['protocol']['name']} on {data['name']}: {data['clients']:,} devices, "
        f"{data['users']:,} users, {data['items']:,} items, {data['events']:,} events.",
        style="bold",
    )
    ended = f", {STOPPED[result.stopped]}" if result.stopped in STOPPED else ""
    out.print(
        f"Defence: {defences}. Seed {settings['seed']}. Round {result.selected} of {result.rounds} "
        f"selected by validation{ended}."
    )
    print_utility(model, asdict(result.utility))
    up, down = result.traffic["up"], result.traffic["down"]
    out.print(
        f"Traffic: {amount(up['mean'])} up and {amount(down['mean'])} down per device and round; "
        f"{amount(up['total'] + down['total'])} in all."
    )
    peak = result.timing.get("peak_bytes", 0)
    memory = f"; {amount(peak)} of memory at most" if peak else ""
    out.print(f"Time: {minutes(result.timing['total'])}{memory}.")
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
