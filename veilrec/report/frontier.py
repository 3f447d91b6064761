"""The frontier: usefulness against leakage, arm by arm, with intervals both ways."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from veilrec.report.arms import Arm, Family
from veilrec.report.figures import Chart, Figure, Table, Variant, colour, intervals, line, mark, words
from veilrec.report.measures import Measure
from veilrec.report.numerals import interval, number, whole
from veilrec.report.verdicts import MEASURES, Verdict, not_alike, verdict, worst

__all__ = ["best", "frontier", "place_labels"]

WIDTH, HEIGHT = 640.0, 380.0  # pixels of the plot on a usual screen, for laying out labels
LETTER, LINE = 7.0, 17.0
TOUCH = 40.0  # square pixels that a label may hide
CORNERS = ("top right", "bottom right", "top left", "bottom left")
WORST = "worst attribute"
BETTER = {
    "text": "↖ better",
    "showarrow": False,
    "x": 0.06,
    "y": 0.98,
    "xref": "paper",
    "yref": "paper",
    "xanchor": "left",
    "yanchor": "top",
    "font": {"size": 12, "color": "@muted"},
}


class Point(NamedTuple):
    """An arm on the plane."""

    arm: Arm
    verdict: Verdict
    leak: Measure
    useful: Measure


def frontier(family: Family) -> Chart:
    """One plane for each attribute, and one for the worst attribute of each arm."""
    variants: list[Variant] = []
    tables: list[Table] = []
    for audit in family.audits:
        attributes = family.attributes(audit)
        choices = [verdict_of(family, audit, [name]) for name in attributes]
        titles = [family.title(audit, name) for name in attributes]
        if sum(any(point.verdict.classes for point in points) for points in choices) > 1:
            choices.insert(0, verdict_of(family, audit, attributes))
            titles.insert(0, family.title(audit, WORST))
        for title, points in zip(titles, choices, strict=True):
            if points:
                tables.append(_table(family, points, title, len(variants)))
                variants.append(Variant(title, audit, _plane(family, points)))
    caption = (
        "Better is up and to the left. Crosses are 95 % intervals over users and seeds; small marks are "
        "single seeds. The dotted step joins those that no other beats on both axes by its mean; whether a "
        "difference is shown stands in the table above. A collapsed model is hollow and not on the frontier; "
        "audits that were not made alike have no frontier."
    )
    return Chart("frontier", "Usefulness against leakage", caption, "Leakage of", variants, tables)


def verdict_of(family: Family, audit: str, attributes: Sequence[str]) -> list[Point]:
    """The arms that have both a verdict and a usefulness."""
    points = []
    for arm in family.arms:
        alone = verdict(arm, audit, attributes[0]) if len(attributes) == 1 else None
        found = alone or worst(arm, audit, attributes)
        if found and arm.utility:
            points.append(Point(arm, found, found.leak, arm.utility))
    return points


def best(points: Sequence[Point]) -> list[Point]:
    """Those that no other beats on both axes, least leaking first; collapsed ones are not asked."""
    kept: list[Point] = []
    ranked = [point for point in points if not point.arm.collapsed]
    for point in sorted(ranked, key=lambda point: (point.leak.value, -point.useful.value)):
        if not kept or point.useful.value > kept[-1].useful.value:
            kept.append(point)
    return kept


def place_labels(places: Sequence[tuple[float, float]], lengths: Sequence[int]) -> list[str]:
    """For each point (0 to 1 both ways) the corner where its label hides least; none where all are taken."""
    taken = [(x * WIDTH - 6, y * HEIGHT - 6, x * WIDTH + 6, y * HEIGHT + 6) for x, y in places]
    chosen = []
    for (x, y), letters in zip(places, lengths, strict=True):
        boxes = {corner: _box(x * WIDTH, y * HEIGHT, letters * LETTER, corner) for corner in CORNERS}
        corner = min(CORNERS, key=lambda name: _hidden(boxes[name], taken))
        clear = _hidden(boxes[corner], taken) <= TOUCH
        taken += [boxes[corner]] if clear else []
        chosen.append(corner if clear else "")
    return chosen


def _plane(family: Family, points: Sequence[Point]) -> Figure:
    scale = points[0].verdict.scale
    chance = MEASURES[scale].chance or 0.0
    spans = _spans(points, chance)
    data = [
        _step(best(points) if _alike(points) else []),
        *(trace for point in points for trace in _marks(point, chance)),
    ]
    places = [(_along(p.leak.value, spans[0]), _along(p.useful.value, spans[1])) for p in points]
    corners = place_labels(places, [len(p.arm.label) for p in points])
    crowded = "" in corners  # then, and where the page is narrow, a legend tells them apart
    for trace, corner in zip((t for t in data if t.get("text")), corners, strict=True):
        trace |= {"mode": "markers"} if crowded else {"textposition": corner}
    lines = [line(f"chance {chance:g}", chance, "x", "dash", "above")]
    if (floor := points[0].arm.floor) is not None:
        lines.append(line(f"popularity {number(floor)}", floor, "y"))
    axis = f"leakage: {MEASURES[scale].short} of the worst attacker, mirrored at chance"
    return {
        "data": data,
        "layout": {
            "height": 480,
            "margin": {"t": 26},
            "showlegend": crowded,
            "xaxis": {"title": {"text": words(axis)}, "range": spans[0]},
            "yaxis": {"title": {"text": words(f"usefulness: {family.metric}")}, "range": spans[1]},
            "shapes": [shape for shape, _ in lines],
            "annotations": [*(label for _, label in lines), BETTER],
        },
    }


def _alike(points: Sequence[Point]) -> bool:
    """Whether all were attacked alike; where not, nothing beats anything."""
    first = points[0].verdict
    return not any(not_alike(first, point.verdict) for point in points[1:])


def _along(value: float, span: Sequence[float]) -> float:
    """Where a value lies on an axis, from 0 to 1."""
    return (value - span[0]) / (span[1] - span[0])


def _marks(point: Point, chance: float) -> list[Figure]:
    """The seeds small and pale, then the arm with its cross and its label."""
    arm, shape, tint = point.arm, mark(point.arm), colour(point.arm)
    useful = point.arm.useful
    seeds = [
        (one.folded(chance), useful[seed]) for seed, one in point.verdict.by_seed.items() if seed in useful
    ]
    small = {
        "type": "scatter",
        "mode": "markers",
        "showlegend": False,
        "hoverinfo": "skip",
        "legendgroup": str(arm.number),
        "x": [leak.value for leak, _ in seeds],
        "y": [one.value for _, one in seeds],
        "marker": {"symbol": shape, "size": 5, "color": colour(arm, 0.4)},
    }
    told = f"{words(arm.label)}{' (collapsed)' if arm.collapsed else ''}"
    large = {
        "type": "scatter",
        "mode": "markers+text",
        "name": told,
        "legendgroup": str(arm.number),
        "x": [point.leak.value],
        "y": [point.useful.value],
        "text": [told],
        "textfont": {"size": 13, "color": tint},
        "error_x": intervals([point.leak], tint),
        "error_y": intervals([point.useful], tint),
        "marker": {"symbol": f"{shape}-open" if arm.collapsed else shape, "size": 13, "color": tint},
        "hoverinfo": "text",
        "hovertext": [
            f"{told}<br>{words(point.verdict.attribute)}: leakage {whole(point.leak)}"
            f"<br>usefulness {whole(point.useful)}"
        ],
    }
    return [small, large] if len(seeds) > 1 else [large]


def _step(kept: Sequence[Point]) -> Figure:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "frontier",
        "hoverinfo": "skip",
        "x": [point.leak.value for point in kept],
        "y": [point.useful.value for point in kept],
        "line": {"shape": "hv", "dash": "dot", "width": 1.5, "color": "@muted"},
    }


def _spans(points: Sequence[Point], chance: float) -> tuple[list[float], list[float]]:
    """The two axes: leakage from chance on, usefulness from a little below the floor."""
    leaks = [end for p in points for end in (p.leak.high, p.leak.value) if end == end]
    useful = [end for p in points for end in (p.useful.low, p.useful.value, p.useful.high) if end == end]
    useful += [p.arm.floor for p in points if p.arm.floor is not None]
    far, low, high = max(leaks, default=1.0), min(useful), max(useful)
    room = 0.12 * ((high - low) or 0.1)
    wide = max(far - chance, 0.05)
    return [chance - 0.06 * wide, far + 0.22 * wide], [low - room, high + room]


def _table(family: Family, points: Sequence[Point], title: str, variant: int) -> Table:
    """The numbers behind one plane."""
    scale = MEASURES[points[0].verdict.scale]
    head = [
        "defence",
        "attribute",
        f"{scale.short}",
        "95 % interval",
        "chance",
        family.metric,
        "95 % interval",
        "popularity",
    ]
    rows = [
        [
            f"{p.arm.label}{' (collapsed)' if p.arm.collapsed else ''}",
            p.verdict.attribute,
            number(p.verdict.measure.value),
            interval(p.verdict.measure),
            f"{p.verdict.chance:g}",
            number(p.useful.value),
            interval(p.useful),
            number(p.arm.floor),
        ]
        for p in points
    ]
    return Table(head, rows, (0, 1), [variant], title)


def _box(x: float, y: float, width: float, corner: str) -> tuple[float, float, float, float]:
    """Left, bottom, right, top of a label at a corner of its point."""
    left = x + 8 if "right" in corner else x - 8 - width
    bottom = y + 4 if "top" in corner else y - 4 - LINE
    return left, bottom, left + width, bottom + LINE


def _hidden(
    box: tuple[float, float, float, float], taken: Sequence[tuple[float, float, float, float]]
) -> float:
    """How much of what is taken a box would hide, or lose beyond the edge."""
    left, bottom, right, top = box
    over = sum(
        max(0.0, min(right, r) - max(left, lo)) * max(0.0, min(top, t) - max(bottom, b))
        for lo, b, r, t in taken
    )
    lost = max(0.0, -left) + max(0.0, right - WIDTH) + max(0.0, -bottom) + max(0.0, top - HEIGHT)
    return over + LINE * lost
