"""How runs went: learning curves as a chart, traffic and time as a table."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from veilrec.metrics.arms import Arm, Family
from veilrec.metrics.measures import read
from veilrec.metrics.words import ABSENT, amount, duration, number
from veilrec.report.figures import (
    Chart,
    Figure,
    PageTable,
    Variant,
    colour,
    dash,
    drawing,
    line,
    mark,
    scatter,
    titled,
    words,
)
from veilrec.result import Result

__all__ = ["cost", "learning"]

ALONG = "bacc@"  # before an attribute: what an attack found at each look at validation items
POINTS = 300  # of one curve; a thousand rounds look the same


def learning(family: Family) -> Chart:
    """The metric that selects, the loss, and attacks that were run along, round by round."""
    shown = {family.metric: f"{family.metric} on validation items", "loss": "training loss"}
    along = sorted({name for arm in family.arms for run in arm.results for name in run.curves})
    attacked = [name.removeprefix(ALONG) for name in along if name.startswith(ALONG)]
    shown |= {f"{ALONG}{who}": f"balanced accuracy of the attack on {who}" for who in attacked}
    variants = [_learned(family, name, axis) for name, axis in shown.items()]
    caption = "One line for each seed; the large mark is the round whose state was kept."
    drawn = [one for one in variants if one.figure["data"]]
    return Chart("learning", "Learning curves", caption, "Show", drawn)


def cost(family: Family) -> PageTable:
    """Bytes that one device sends and receives in a round, and time and memory, as means over seeds."""
    rows = [
        [
            arm.label,
            *(amount(_mean(arm, "traffic", way, "mean")) for way in ("up", "down")),
            amount(_mean(arm, "traffic", "up", "total") + _mean(arm, "traffic", "down", "total")),
            str(arm.first.environment.get("device", ABSENT)),
            duration(_mean(arm, "timing", "total")),
            amount(_mean(arm, "timing", "peak_bytes")),
        ]
        for arm in family.arms
    ]
    head = ["defence", "up per device and round", "down per device and round", "up and down, whole run"]
    caption = "Bytes are counted from each message, not estimated; a device sends up and receives down."
    return PageTable([*head, "device", "time", "peak memory"], rows, (0, 4), caption)


def _learned(family: Family, name: str, axis: str) -> Variant:
    """One curve of every run, and its ends in numbers."""
    floor = family.arms[0].floor if name == family.metric else None
    lines = [line(f"popularity on test items {number(floor)}", floor, "y")] if floor is not None else []
    figure = drawing(
        [trace for arm in family.arms for trace in _curves(arm, name)],
        lines,
        height=380,
        showlegend=len(family.arms) > 1,
        xaxis=titled("round"),
        yaxis=titled(axis),
    )
    rows = []
    for arm in family.arms:
        for label, result in arm.runs.values():
            curve = _curve(result, name)
            values = [None, *curve.values(), None]
            ends = [number(values[1], 4), number(values[-2], 4)]
            rows.append([label, *ends, str(result.selected), number(curve.get(result.selected), 4)])
    beside = f"; popularity on test items {number(floor, 4)}" if floor is not None else ""
    table = PageTable(["run", "first", "last", "round kept", "there"], rows, (0,), f"{name}{beside}")
    return Variant(axis, "", figure, table)


def _curves(arm: Arm, name: str) -> list[Figure]:
    found: list[Figure] = []
    for label, result in arm.runs.values():
        if not (curve := _curve(result, name)):
            continue
        kept = {r: value for r, value in curve.items() if r == result.selected}
        whole = scatter(
            "lines",
            curve,
            curve.values(),
            legendgroup=str(arm.number),
            name=words(arm.label, 40),
            showlegend=not found,
            line={"color": colour(arm, 0.75), "width": 1.8, "dash": dash(arm)},
            hovertext=[f"{words(label)}<br>round {r}: {number(v, 4)}" for r, v in curve.items()],
        )
        selected = scatter(
            "markers",
            kept,
            kept.values(),
            legendgroup=str(arm.number),
            showlegend=False,
            marker={"symbol": mark(arm), "size": 11, "color": colour(arm)},
            hovertext=[f"{words(label)}<br>round {r}, kept: {number(v, 4)}" for r, v in kept.items()],
        )
        found += [whole, selected]
    return found


def _curve(result: Result, name: str) -> dict[int, float]:
    """Values by round, thinned; what was not measured is left out, the kept round never is."""
    pairs = zip(result.curves.get("round") or (), result.curves.get(name) or (), strict=False)
    found = [(int(r), one.value) for r, value in pairs if (one := read(value))]
    step = max(1, -(-len(found) // POINTS))
    return {
        r: round(value, 6)
        for k, (r, value) in enumerate(found)
        if k % step == 0 or r == result.selected or k == len(found) - 1
    }


def _mean(arm: Arm, section: str, *keys: str) -> float:
    """A number of a section of the results, mean over the seeds; 0 in those that lack it."""
    return fmean(float(_entry(getattr(result, section), keys) or 0) for result in arm.results)


def _entry(found: Any, keys: tuple[str, ...]) -> Any:
    for key in keys:
        found = found.get(key) or {}
    return found
