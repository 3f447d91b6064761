"""Charts of the running: learning curves, traffic, time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from veilrec.metrics.arms import Arm, Family
from veilrec.metrics.measures import read
from veilrec.metrics.words import amount, bare, duration, number
from veilrec.report.figures import (
    Chart,
    Figure,
    Table,
    Variant,
    bars,
    colour,
    dash,
    line,
    mark,
    ticks,
    titled,
    words,
)
from veilrec.result import Result

__all__ = ["learning", "time", "traffic"]

ALONG = "bacc@"  # before an attribute: what an attack found at each look at validation items
POINTS = 300  # of one curve; a thousand rounds look the same
UNITS = {"B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9}
NOT_PHASES = {"total", "peak_bytes"}


def learning(family: Family) -> Chart:
    """The metric that selects, the loss, and attacks that were run along, round by round."""
    variants: list[Variant] = []
    tables: list[Table] = []
    shown = {family.metric: f"{family.metric} on validation items", "loss": "training loss"}
    along = sorted({name for arm in family.arms for run in arm.results for name in run.curves})
    attacked = [name.removeprefix(ALONG) for name in along if name.startswith(ALONG)]
    shown |= {f"{ALONG}{who}": f"balanced accuracy of the attack on {who}" for who in attacked}
    for name, words_of in shown.items():
        traces = [trace for arm in family.arms for trace in _curves(arm, name)]
        if traces:
            tables.append(_curve_table(family, name, len(variants)))
            variants.append(Variant(words_of, "", _curve_figure(family, traces, name, words_of)))
    caption = "One line for each seed; the large mark is the round whose state was kept."
    return Chart("learning", "Learning curves", caption, "Show", variants, tables)


def traffic(family: Family) -> Chart:
    """Bytes that one device sends and receives in a round, by kind of message."""
    rows: list[tuple[Arm, str, dict[str, float]]] = [
        (arm, way, _kinds(arm, way))
        for arm in family.arms
        for way in ("up", "down")
        if arm.first.traffic.get(way)
    ]
    most = max((sum(kinds.values()) for *_, kinds in rows), default=0.0)
    unit = next((name for name in reversed(UNITS) if most >= UNITS[name]), "B")
    drawing = _stacks(
        [f"{arm.label}, {way}" for arm, way, _ in rows],
        [{kind: size / UNITS[unit] for kind, size in kinds.items()} for *_, kinds in rows],
        [amount(sum(kinds.values())) for *_, kinds in rows],
        f"{unit} per device and round",
    )
    body = [
        [arm.label, way, kind, amount(size), amount(_most(arm, way)), amount(_total(arm, way))]
        for arm, way, kinds in rows
        for kind, size in kinds.items()
    ]
    head = [
        "defence",
        "way",
        "kind",
        "mean per device and round",
        "most (all kinds)",
        "whole run (all kinds)",
    ]
    variants = [Variant("bytes", "", drawing)] if rows else []
    caption = "Counted from the bytes of each message, not estimated. A device sends up and receives down."
    return Chart(
        "traffic", "Traffic", caption, "Show", variants, [Table(head, body, (0, 1, 2))] if rows else []
    )


def time(family: Family) -> Chart:
    """Seconds by phase."""
    phases = [_spent(arm) for arm in family.arms]
    totals = [_seconds(arm, "total") for arm in family.arms]
    drawing = _stacks(
        [arm.label for arm in family.arms], phases, [duration(total) for total in totals], "seconds"
    )
    body = [
        [
            arm.label,
            str(arm.first.environment.get("device", "–")),
            duration(total),
            amount(_seconds(arm, "peak_bytes")),
            ", ".join(f"{name} {duration(seconds)}" for name, seconds in spent.items()),
        ]
        for arm, total, spent in zip(family.arms, totals, phases, strict=True)
    ]
    variants = [Variant("seconds", "", drawing)] if any(phases) else []
    head = ["defence", "device", "in all", "peak memory", "phases"]
    caption = "Mean over seeds, on the machine named under Settings."
    return Chart(
        "time", "Time", caption, "Show", variants, [Table(head, body, (0, 1, 4))] if variants else []
    )


def _curves(arm: Arm, name: str) -> list[Figure]:
    found: list[Figure] = []
    for label, result in arm.runs.values():
        rounds, values = _curve(result, name)
        if not rounds:
            continue
        kept = [(r, v) for r, v in zip(rounds, values, strict=True) if r == result.selected]
        shared = {"type": "scatter", "legendgroup": str(arm.number), "hoverinfo": "text"}
        told = [f"{words(label)}<br>round {r}: {number(v, 4)}" for r, v in zip(rounds, values, strict=True)]
        found.append(
            {
                **shared,
                "mode": "lines",
                "name": words(arm.label, 40),
                "showlegend": not found,
                "x": rounds,
                "y": values,
                "line": {"color": colour(arm, 0.75), "width": 1.8, "dash": dash(arm)},
                "hovertext": told,
            }
        )
        found.append(
            {
                **shared,
                "mode": "markers",
                "showlegend": False,
                "x": [r for r, _ in kept],
                "y": [v for _, v in kept],
                "marker": {"symbol": mark(arm), "size": 11, "color": colour(arm)},
                "hovertext": [f"{words(label)}<br>round {r}, kept: {number(v, 4)}" for r, v in kept],
            }
        )
    return found


def _curve(result: Result, name: str) -> tuple[list[int], list[float]]:
    """Rounds and values of one curve, thinned; what was not measured is left out, the kept round never is."""
    pairs = zip(result.curves.get("round") or (), result.curves.get(name) or (), strict=False)
    found = [(int(r), one.value) for r, value in pairs if (one := read(value))]
    step = max(1, -(-len(found) // POINTS))
    thin = [
        (r, v)
        for k, (r, v) in enumerate(found)
        if k % step == 0 or r == result.selected or k == len(found) - 1
    ]
    return [r for r, _ in thin], [round(v, 6) for _, v in thin]


def _curve_figure(family: Family, traces: Sequence[Figure], name: str, axis: str) -> Figure:
    floor = family.arms[0].floor if name == family.metric else None
    lines = [line(f"popularity on test items {number(floor)}", floor, "y")] if floor is not None else []
    return {
        "data": list(traces),
        "layout": {
            "height": 380,
            "showlegend": len(family.arms) > 1,
            "xaxis": titled("round"),
            "yaxis": titled(axis),
            "shapes": [shape for shape, _ in lines],
            "annotations": [label for _, label in lines],
        },
    }


def _curve_table(family: Family, name: str, variant: int) -> Table:
    rows = []
    for arm in family.arms:
        for label, result in arm.runs.values():
            rounds, values = _curve(result, name)
            at = dict(zip(rounds, values, strict=True))
            ends = [number(values[0], 4), number(values[-1], 4)] if values else ["–", "–"]
            rows.append([label, *ends, str(result.selected), number(at.get(result.selected), 4)])
    head = ["run", "first", "last", "round kept", "there"]
    floor = family.arms[0].floor if name == family.metric else None
    beside = f"; popularity on test items {number(floor, 4)}" if floor is not None else ""
    return Table(head, rows, (0,), [variant], f"{name}{beside}")


def _stacks(
    names: Sequence[str], parts: Sequence[Mapping[str, float]], totals: Sequence[str], axis: str
) -> Figure:
    """Rows of stacked bars, the sum written at the end of each."""
    kinds = [
        kind for kind in dict.fromkeys(k for one in parts for k in one) if any(one.get(kind) for one in parts)
    ]
    ends = [sum(one.values()) for one in parts]
    return {
        "data": [*(_stack(k, kind, names, parts, axis) for k, kind in enumerate(kinds)), _sums(ends, totals)],
        "layout": {
            "height": 30 * len(names) + 84,
            "showlegend": len(kinds) > 1,
            "barmode": "stack",
            "legend": {"traceorder": "normal"},
            "xaxis": titled(axis, range=[0, 1.3 * max(ends, default=1.0) or 1]),
            "yaxis": ticks(names, 20, 3, autorange="reversed"),
        },
    }


def _stack(
    k: int, kind: str, names: Sequence[str], parts: Sequence[Mapping[str, float]], axis: str
) -> Figure:
    """The bars of one kind, the k-th of the stack."""
    lengths = [one.get(kind, 0.0) for one in parts]
    told = [
        f"{words(name)}<br>{words(kind)}: {bare(length)} {words(axis)}"
        for name, length in zip(names, lengths, strict=True)
    ]
    tint = {"color": f"@s{k % 6}", "line": {"width": 1, "color": "@paper"}}
    shared = {"name": words(kind), "marker": tint, "hoverinfo": "text", "hovertext": told}
    return bars(lengths, range(len(names)), 0.62, **shared)


def _sums(ends: Sequence[float], totals: Sequence[str]) -> Figure:
    """The sum of each row, as text behind it."""
    return {
        "type": "scatter",
        "mode": "text",
        "showlegend": False,
        "hoverinfo": "skip",
        "x": ends,
        "y": list(range(len(ends))),
        "text": [f" {total}" for total in totals],
        "textposition": "middle right",
        "cliponaxis": False,
    }


def _kinds(arm: Arm, way: str) -> dict[str, float]:
    """Bytes per device and round by kind of message, over the seeds."""
    found: dict[str, list[float]] = {}
    for result in arm.results:
        messages = max(1, int(result.traffic.get("messages") or 1))
        for kind, size in (
            result.traffic.get("by_kind", {}).get(way) or {"all": _whole(result, way)}
        ).items():
            found.setdefault(str(kind), []).append(float(size or 0) / messages)
    return {kind: fmean(sizes) for kind, sizes in found.items() if any(sizes)}


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
