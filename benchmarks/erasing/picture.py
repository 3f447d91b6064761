"""The frontier as a picture: what the worst reader finds after each eraser, over what lists lose."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from benchmarks.erasing.cells import ERASERS
from benchmarks.erasing.page import NAMES
from benchmarks.erasing.rows import Row, Some, alone
from docs.drawing import STYLE

__all__ = ["frontier"]

PANELS = (("ml-1m", "gender"), ("ml-1m", "age"), ("ml-1m", "occupation"), ("ml-100k", "gender"))
WIDE, HIGH, LEFT, TOP = 380, 300, 44, 70  # of a panel, and of what stands beside and above it
LOSS, BEST = 12.0, 1.5  # percent of NDCG@10 that the axis shows, below and above zero
SHORT = {"GaussianTransport": "Gaussian", "original": "none"}
OURS = ("Lethe", "LeaceNull")


class Mark(NamedTuple):
    """One eraser in a panel."""

    name: str
    x: float
    y: float
    ours: bool


def frontier(rows: Sequence[Row]) -> str:
    """Four panels; the best place is below on the right."""
    width, height = 2 * WIDE + 10, 2 * HIGH + TOP
    title = "Erasers: what the worst of seven readers finds, over the loss of NDCG@10"
    note = "AUC mirrored above 1/2, a fifth or four fifths of labels known; dashed: the floor; "
    parts = [_text(0, 18, title, "title"), _text(0, 38, note + "left edge: beyond −12 %", "small")]
    for place, (dataset, attribute) in enumerate(PANELS):
        parts += _panel(rows, dataset, attribute, place % 2 * WIDE, TOP + place // 2 * HIGH)
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escape(title)}">'
    return "\n".join([head, f"<style>{STYLE}</style>", *parts, "</svg>"]) + "\n"


def _panel(rows: Sequence[Row], dataset: str, attribute: str, left: float, top: float) -> list[str]:
    wide, high = WIDE - LEFT - 26, HIGH - 70
    left += LEFT

    def x(change: float) -> float:
        return round(left + wide * (min(max(change, -LOSS), BEST) + LOSS) / (LOSS + BEST), 1)

    def y(auc: float) -> float:
        return round(top + high * (1 - (auc - 0.48) / 0.54), 1)

    parts = [_text(left, top - 8, f"{NAMES[dataset]}, {attribute}")]
    for step in range(5, 11):
        parts.append(_line("grid", left, y(step / 10), left + wide, y(step / 10)))
        parts.append(_text(left - 6, y(step / 10) + 4, f"{step / 10:.1f}", "axis", "end"))
    for loss in (-12, -8, -4, 0):
        parts.append(_text(x(loss), top + high + 16, f"{loss} %".replace("-", "−"), "axis", "middle"))
    found = {name: one for name in ERASERS if (one := alone(rows, dataset, "fedmf", name, attribute)).rows}
    if floors := [one.mean(lambda row: row.floor) for one in found.values()]:
        floor = y(sum(floors) / len(floors))
        parts.append(_line("floor", left, floor, left + wide, floor))
    marks = [_mark(name, one, x, y) for name, one in found.items()]
    for mark in marks:
        kind = "at" if mark.ours else "low"
        parts.append(f'<circle class="{kind}" cx="{mark.x}" cy="{mark.y}" r="4.5"/>')
    return parts + [_text(at, up + 4, name, "small") for at, up, name in _labels(marks, left + wide)]


def _mark(name: str, some: Some, x, y) -> Mark:  # type: ignore[no-untyped-def]
    change, worst = some.mean(lambda row: row.useful[0][0]), some.mean(lambda row: row.worst)
    return Mark(SHORT.get(name, name), x(change), y(worst), name in OURS)


def _labels(marks: Sequence[Mark], right: float) -> list[tuple[float, float, str]]:
    """Names beside their marks, on the side where there is room, moved up where they would overlap."""
    put: list[tuple[float, float, str]] = []
    for mark in sorted(marks, key=lambda one: -one.y):
        at, up, wide = mark.x + 8, mark.y, 6.6 * len(mark.name)
        if at + wide > right:
            at = mark.x - 8 - wide
        while any(
            abs(up - other) < 12 and at < there + 6.6 * len(n) and there < at + wide
            for there, other, n in put
        ):
            up -= 2
        put.append((at, up, mark.name))
    return put


def _text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text{named} x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(words)}</text>'


def _line(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="{kind}" x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"/>'
