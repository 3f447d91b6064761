"""The frontier: usefulness against leakage, arm by arm, with intervals both ways."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from veilrec.metrics.arms import Arm, Family
from veilrec.metrics.epsilons import HEADS
from veilrec.metrics.measures import Measure
from veilrec.metrics.words import bracketed, number
from veilrec.report.figures import (
    Chart,
    Figure,
    PageTable,
    Variant,
    colour,
    drawing,
    intervals,
    line,
    mark,
    scatter,
    titled,
    words,
)
from veilrec.report.verdicts import MEASURES, Verdict, not_alike, verdict, worst

__all__ = ["best", "frontier"]

PALE = 0.45  # of what collapsed
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
    for audit in family.audits:
        attributes = family.attributes(audit)
        choices = [verdict_of(family, audit, [name]) for name in attributes]
        titles = [family.title(audit, name) for name in attributes]
        if sum(any(point.verdict.classes for point in points) for points in choices) > 1:
            choices.insert(0, verdict_of(family, audit, attributes))
            titles.insert(0, family.title(audit, WORST))
        for title, points in zip(titles, choices, strict=True):
            if points:
                variants.append(Variant(title, audit, _plane(family, points), _table(family, points, title)))
    caption = (
        "Better is up and to the left. Crosses are 95 % intervals over users and seeds; small marks are "
        "single seeds. The dotted step joins those that no other beats on both axes by its mean; whether a "
        "difference is shown stands under the table of verdicts. Leakage below chance is "
        "mirrored. A collapsed model is hollow, pale and not on the "
        "frontier; audits that were not made alike have no frontier."
    )
    return Chart("frontier", "Usefulness against leakage", caption, "Leakage of", variants)


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
    """Points that no other beats on both axes, least leaking first; collapsed ones are left out."""
    kept: list[Point] = []
    ranked = [point for point in points if not point.arm.collapsed]
    for point in sorted(ranked, key=lambda point: (point.leak.value, -point.useful.value)):
        if not kept or point.useful.value > kept[-1].useful.value:
            kept.append(point)
    return kept


def _plane(family: Family, points: Sequence[Point]) -> Figure:
    scale = points[0].verdict.scale
    chance = MEASURES[scale].chance or 0.0
    data = [
        _step(best(points) if _alike(points) else []),
        *(trace for point in points for trace in _marks(point, chance)),
    ]
    lines = [line(f"chance {chance:g}", chance, "x", "dash", "above")]
    if (floor := points[0].arm.floor) is not None:
        lines.append(line(f"popularity {number(floor)}", floor, "y", left=True))
    axis = f"leakage: {MEASURES[scale].short} of the worst attacker"
    return drawing(
        data,
        lines,
        height=420,
        margin={"t": 26},
        showlegend=len(points) > 1,
        xaxis=titled(axis),
        yaxis=titled(f"usefulness: {family.metric}"),
        annotations=[*(label for _, label in lines), BETTER],
    )


def _alike(points: Sequence[Point]) -> bool:
    """Whether all points were attacked alike; where not, none beats another."""
    first = points[0].verdict
    return not any(not_alike(first, point.verdict) for point in points[1:])


def _marks(point: Point, chance: float) -> list[Figure]:
    """The seeds small and pale, then the arm with its cross."""
    arm, shape, tint = point.arm, mark(point.arm), colour(point.arm, PALE if point.arm.collapsed else 1.0)
    useful = arm.useful(arm.metric)
    seeds = [
        (one.folded(chance), useful[seed]) for seed, one in point.verdict.by_seed.items() if seed in useful
    ]
    small = scatter(
        "markers",
        [leak.value for leak, _ in seeds],
        [one.value for _, one in seeds],
        showlegend=False,
        legendgroup=str(arm.number),
        marker={"symbol": shape, "size": 5, "color": colour(arm, 0.4)},
    )
    told = f"{words(arm.label)}{' (collapsed)' if arm.collapsed else ''}"
    large = scatter(
        "markers",
        [point.leak.value],
        [point.useful.value],
        name=told,
        legendgroup=str(arm.number),
        error_x=intervals([point.leak], tint),
        error_y=intervals([point.useful], tint),
        marker={"symbol": f"{shape}-open" if arm.collapsed else shape, "size": 13, "color": tint},
        hovertext=[
            f"{told}<br>{words(point.verdict.attribute)}: leakage {bracketed(point.leak)}"
            f"<br>usefulness {bracketed(point.useful)}<br>{words(arm.epsilon)}"
        ],
    )
    return [small, large] if len(seeds) > 1 else [large]


def _step(kept: Sequence[Point]) -> Figure:
    places = [[point.leak.value for point in kept], [point.useful.value for point in kept]]
    dots = {"shape": "hv", "dash": "dot", "width": 1.5, "color": "@muted"}
    return scatter("lines", *places, name="frontier", line=dots)


def _table(family: Family, points: Sequence[Point], title: str) -> PageTable:
    """The numbers behind one plane."""
    scale = MEASURES[points[0].verdict.scale]
    head = [
        "defence",
        "attribute",
        f"{scale.short} [95 %]",
        "chance",
        f"{family.metric} [95 %]",
        "popularity",
        *(HEADS if (told := family.noisy) else ()),
    ]
    rows = [
        [
            f"{p.arm.label}{' (collapsed)' if p.arm.collapsed else ''}",
            p.verdict.attribute,
            bracketed(p.verdict.measure),
            f"{p.verdict.chance:g}",
            bracketed(p.useful),
            number(p.arm.floor),
            *(p.arm.epsilon.cells if told else ()),
        ]
        for p in points
    ]
    return PageTable(head, rows, (0, 1), title)
