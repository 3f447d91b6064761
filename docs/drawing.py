"""Pictures of committed results as SVG: bars with intervals and floors, and usefulness over leakage.

Plain text that a browser draws in either theme; ``python -m docs.pictures`` writes the files.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from docs.committed import Number

WIDE, LABEL, ROW, TOP = 760, 250, 30, 64
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1a1d21; }
.small, .axis { font-size: 12px; fill: #5c636d; }
.title { font-size: 15px; font-weight: 600; }
.bar { fill: #0072b2; opacity: .28; } .other { fill: #5c636d; opacity: .22; }
.ends { stroke: #1a1d21; stroke-width: 1.5; } .at { fill: #0072b2; }
.low { fill: none; stroke: #5c636d; stroke-width: 1.5; }
.floor { stroke: #a8321f; stroke-width: 1.2; stroke-dasharray: 5 4; } .grid { stroke: #e1e4e8; }
.cross { stroke: #0072b2; stroke-width: 1.3; opacity: .35; }
.paper { stroke: #c9550a; stroke-width: 3; }
@media (prefers-color-scheme: dark) {
text, .title { fill: #e8eaed; } .small, .axis { fill: #a3abb6; } .bar, .at { fill: #5aaeea; }
.ends { stroke: #e8eaed; } .floor { stroke: #ff9d85; } .cross { stroke: #5aaeea; }
.grid { stroke: #3a414b; } .paper { stroke: #ff9248; }
.low { stroke: #a3abb6; } .other { fill: #a3abb6; }
}
"""


class Bar(NamedTuple):
    """One row: its name, our number, and what the paper prints."""

    name: str
    ours: Number
    paper: float | None = None
    pale: bool = False


class Point(NamedTuple):
    """One method on the plane: its name, usefulness and leakage."""

    name: str
    useful: Number
    leak: Number


def bars(
    title: str, note: str, rows: Sequence[Bar], floor: tuple[str, float], ends: tuple[float, float]
) -> str:
    """A bar from the floor to each number, with its interval, and the paper's number as a stroke."""
    low, high = ends

    def x(value: float) -> float:
        return round(LABEL + (WIDE - LABEL - 30) * (min(max(value, low), high) - low) / (high - low), 1)

    height = TOP + ROW * len(rows) + 44
    parts = [_text(0, 18, title, "title"), _text(0, 38, note, "small")]
    parts += _ticks(x, low, high, TOP - 8, height - 34)
    for place, one in enumerate(rows):
        y = TOP + ROW * place + ROW / 2
        left, right = sorted((x(floor[1]), x(one.ours.value)))
        kind = "other" if one.pale else "bar"
        parts.append(_text(LABEL - 10, y + 4, one.name, anchor="end"))
        parts.append(
            f'<rect class="{kind}" x="{left}" y="{y - 9}" width="{round(right - left, 1)}" height="18"/>'
        )
        if one.ours.low is not None and one.ours.high is not None:
            parts.append(_line("ends", x(one.ours.low), y, x(one.ours.high), y))
        parts.append(
            f'<circle class="{"low" if one.pale else "at"}" cx="{x(one.ours.value)}" cy="{y}" r="4.5"/>'
        )
        if one.paper is not None:
            parts.append(_line("paper", x(one.paper), y - 9, x(one.paper), y + 9))
    parts.append(_line("floor", x(floor[1]), TOP - 8, x(floor[1]), height - 34))
    parts.append(_text(x(floor[1]), TOP - 12, floor[0], "small", "middle"))
    return _svg(height, title, parts)


def plane(title: str, note: str, points: Sequence[Point], floor: float, axes: tuple[str, str]) -> str:
    """Usefulness over leakage with intervals both ways; the best place is above on the left."""
    height, left, bottom = 520, 60, 470
    low, high = 0.45, max(0.95, *(point.leak.high or point.leak.value for point in points))
    least = min(floor, *(point.useful.low or point.useful.value for point in points)) - 0.02
    most = max(point.useful.high or point.useful.value for point in points) + 0.02

    def x(value: float) -> float:
        return round(left + (WIDE - left - 20) * (min(max(value, low), high) - low) / (high - low), 1)

    def y(value: float) -> float:
        return round(bottom - (bottom - 60) * (value - least) / (most - least), 1)

    parts = [_text(0, 18, title, "title"), _text(0, 38, note, "small")]
    parts += _ticks(x, low, high, 60, bottom)
    for step in range(int(least * 20) + 1, int(most * 20) + 1):
        parts.append(_line("grid", left, y(step / 20), WIDE - 20, y(step / 20)))
        parts.append(_text(left - 8, y(step / 20) + 4, f"{step / 20:.2f}", "axis", "end"))
    parts.append(_line("floor", left, y(floor), WIDE - 20, y(floor)))
    parts.append(_text(WIDE - 20, y(floor) - 5, "popularity", "small", "end"))
    parts.append(_line("floor", x(0.5), 60, x(0.5), bottom))
    parts.append(_text(x(0.5) + 5, 72, "chance", "small"))
    for one in points:
        at, up = x(one.leak.value), y(one.useful.value)
        parts.append(
            _line("cross", x(one.leak.low or one.leak.value), up, x(one.leak.high or one.leak.value), up)
        )
        parts.append(
            _line(
                "cross", at, y(one.useful.low or one.useful.value), at, y(one.useful.high or one.useful.value)
            )
        )
    for one in points:
        parts.append(f'<circle class="at" cx="{x(one.leak.value)}" cy="{y(one.useful.value)}" r="5"/>')
    for (at, up), name in _labels([((x(p.leak.value), y(p.useful.value)), p.name) for p in points]):
        parts.append(_text(at + 9, up + 4, name))
    parts.append(_text((left + WIDE) / 2, height - 6, axes[0], "axis", "middle"))
    parts.append(_text(left, 54, axes[1], "axis"))
    return _svg(height, title, parts)


def _labels(places: Sequence[tuple[tuple[float, float], str]]) -> list[tuple[tuple[float, float], str]]:
    """Names beside their marks, right or left, above or below: the nearest place that nothing else has."""
    put: list[tuple[tuple[float, float], str]] = []
    for (at, up), name in sorted(places, key=lambda one: one[0][1]):
        wide = 7 * len(name)
        tried = [
            (x, up + side * step)
            for step in range(0, 90, 3)
            for side in (1, -1)
            for x in (at, at - 18 - wide)
        ]
        free = (one for one in tried if _free(one, wide, places, put))
        put.append((next(free, tried[0]), name))
    return put


def _free(
    place: tuple[float, float],
    wide: float,
    marks: Sequence[tuple[tuple[float, float], str]],
    put: Sequence[tuple[tuple[float, float], str]],
) -> bool:
    """Whether a name fits there, and lies on no mark and no other name."""
    at, up = place
    left, right = at + 9, at + 9 + wide
    on_mark = any(left - 6 < x < right + 6 and abs(up - y) < 12 for (x, y), _ in marks)
    on_name = any(x + 9 < right and left < x + 9 + 7 * len(n) and abs(up - y) < 14 for (x, y), n in put)
    return left > 60 and right < WIDE and not on_mark and not on_name


def _ticks(x, low: float, high: float, top: float, bottom: float) -> list[str]:  # type: ignore[no-untyped-def]
    parts = []
    for step in range(round(low * 10), int(high * 10 + 1e-9) + 1):
        if low <= step / 10 <= high:
            parts.append(_line("grid", x(step / 10), top, x(step / 10), bottom))
            parts.append(_text(x(step / 10), bottom + 16, f"{step / 10:.1f}", "axis", "middle"))
    return parts


def _text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text{named} x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(words)}</text>'


def _line(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="{kind}" x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"/>'


def _svg(height: float, title: str, parts: Sequence[str]) -> str:
    size = f'viewBox="0 0 {WIDE} {height:g}" width="{WIDE}" height="{height:g}"'
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escape(title, quote=True)}">'
    )
    return "\n".join([head, f"<style>{STYLE}</style>", *parts, "</svg>"]) + "\n"
