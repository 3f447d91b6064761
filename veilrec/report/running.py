"""How runs went: learning curves as a chart, traffic and time as tables."""

from __future__ import annotations

from statistics import fmean

from veilrec.metrics.arms import Arm, Family
from veilrec.metrics.measures import gathered, read
from veilrec.metrics.words import ABSENT, amount, duration, number
from veilrec.report.figures import (
    Chart,
    Figure,
    Table,
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

__all__ = ["learning", "time", "traffic"]

ALONG = "bacc@"  # before an attribute: what an attack found at each look at validation items
POINTS = 300  # of one curve; a thousand rounds look the same
NOT_PHASES = {"total", "peak_bytes"}


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


def traffic(family: Family) -> Table:
    """Bytes that one device sends and receives in a round, by kind of message."""
    rows = [
        [arm.label, way, kind, amount(size), amount(_most(arm, way)), amount(_total(arm, way))]
        for arm in family.arms
        for way in ("up", "down")
        if arm.first.traffic.get(way)
        for kind, size in _kinds(arm, way).items()
    ]
    head = ["defence", "way", "kind", "mean per device and round", "most (all kinds)"]
    caption = "Counted from the bytes of each message, not estimated. A device sends up and receives down."
    return Table([*head, "whole run (all kinds)"], rows, (0, 1, 2), caption)


def time(family: Family) -> Table:
    """Seconds by phase."""
    rows = [
        [
            arm.label,
            str(arm.first.environment.get("device", ABSENT)),
            duration(_seconds(arm, "total")),
            amount(_seconds(arm, "peak_bytes")),
            ", ".join(f"{name} {duration(seconds)}" for name, seconds in spent.items()),
        ]
        for arm in family.arms
        if (spent := _spent(arm))
    ]
    caption = "Mean over seeds, on the machine named under Settings."
    return Table(["defence", "device", "in all", "peak memory", "phases"], rows, (0, 1, 4), caption)


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
    table = Table(["run", "first", "last", "round kept", "there"], rows, (0,), f"{name}{beside}")
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


def _kinds(arm: Arm, way: str) -> dict[str, float]:
    """Bytes per device and round by kind of message, over the seeds."""
    found = gathered(
        (str(kind), float(size or 0) / max(1, int(result.traffic.get("messages") or 1)))
        for result in arm.results
        for kind, size in _sent(result, way).items()
    )
    return {kind: fmean(sizes) for kind, sizes in found.items() if any(sizes)}


def _sent(result: Result, way: str) -> dict[str, float]:
    """Bytes of the whole run by kind of message."""
    return result.traffic.get("by_kind", {}).get(way) or {"all": _whole(result, way)}


def _whole(result: Result, way: str) -> float:
    return float(result.traffic.get(way, {}).get("total") or 0)


def _most(arm: Arm, way: str) -> float:
    return max(float(result.traffic.get(way, {}).get("max") or 0) for result in arm.results)


def _total(arm: Arm, way: str) -> float:
    return fmean(_whole(result, way) for result in arm.results)


def _spent(arm: Arm) -> dict[str, float]:
    """Seconds by phase, and what no phase accounts for."""
    names = [name for name, value in arm.first.timing.items() if name not in NOT_PHASES and read(value)]
    found = {name: _seconds(arm, name) for name in names}
    rest = _seconds(arm, "total") - sum(found.values())
    return {**found, "other": rest} if found and rest > 0.05 else found


def _seconds(arm: Arm, name: str) -> float:
    return fmean(float(result.timing.get(name) or 0) for result in arm.results)
