"""Figures: the blocks that charts are made of. Colours are names that the page fills in, by its theme."""

from __future__ import annotations

import html
import textwrap
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from veilrec.metrics.arms import Arm
from veilrec.metrics.measures import Measure
from veilrec.metrics.words import number, whole

__all__ = [
    "Chart",
    "Table",
    "Variant",
    "bars",
    "colour",
    "intervals",
    "line",
    "mark",
    "rows_figure",
    "ticks",
    "titled",
    "words",
]

Figure = dict[str, Any]
MARKS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star", "hexagon")
DASHES = ("solid", "dash", "dot", "dashdot")
FLOORS = ("dash", "dot", "dashdot", "longdash")
ROW, GAP = 17, 12  # pixels: one arm in a row, and between rows


@dataclass(frozen=True)
class Table:
    """The numbers behind a chart: its text alternative.

    Attributes:
        head, rows: As text.
        left: The columns that hold words; the others hold numbers.
        variants: The variants of the chart that it belongs to; empty for all.
        caption: What it shows.
    """

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: Sequence[int] = (0,)
    variants: Sequence[int] = ()
    caption: str = ""


@dataclass(frozen=True)
class Variant:
    """One drawing of a chart: what it is called in the list, under which heading, and the drawing."""

    name: str
    group: str
    figure: Figure


@dataclass(frozen=True)
class Chart:
    """A chart with its words: a title, what it shows, the choice of drawings, the numbers behind it."""

    key: str
    title: str
    caption: str
    choice: str
    variants: Sequence[Variant]
    tables: Sequence[Table] = field(default_factory=tuple)


def words(text: Any, width: int = 0, lines: int = 2) -> str:
    """Text that a drawing shows as it is: no markup, no control characters; wrapped where `width` says so."""
    kept = "".join(" " if unicodedata.category(c) in {"Cc", "Cf", "Zl", "Zp", "Cs"} else c for c in str(text))
    if not width:
        return _escaped(kept)
    rows = textwrap.wrap(kept.replace("/", "/ "), width) or [""]
    rows = [row.replace("/ ", "/") for row in rows]
    if len(rows) > lines:
        rows = [*rows[: lines - 1], rows[lines - 1][: width - 1] + "…"]
    return "<br>".join(map(_escaped, rows))


def _escaped(text: str) -> str:
    """Escape markup and dollars, between which plotly reads a formula."""
    return html.escape(text, quote=False).replace("$", "&#36;")


def colour(arm: Arm | int, alpha: float = 1.0) -> str:
    """The colour of an arm, as a name."""
    place = arm if isinstance(arm, int) else arm.number
    return f"@c{place % 8} {alpha:g}"


def mark(arm: Arm) -> str:
    """The shape of an arm's mark, so that colour is never alone."""
    return MARKS[arm.shape]


def dash(arm: Arm) -> str:
    """The stroke of an arm's lines; another one when the colours begin anew."""
    return DASHES[arm.number // 8 % len(DASHES)]


def intervals(measures: Sequence[Measure | None], tint: str) -> Figure:
    """Error bars to both ends of each interval; none where there is no interval."""
    sure = [one if one and one.sure else None for one in measures]
    return {
        "type": "data",
        "symmetric": False,
        "array": [one.high - one.value if one else 0 for one in sure],
        "arrayminus": [one.value - one.low if one else 0 for one in sure],
        "color": tint,
        "thickness": 1.5,
        "width": 3,
    }


def line(
    name: str, at: float, across: str, style: str = "dash", layer: str = "below"
) -> tuple[Figure, Figure]:
    """A reference line across the plot, and its label; `across` is the axis that its value is on."""
    other = "y" if across == "x" else "x"
    shape: Figure = {"type": "line", "layer": layer, "line": {"color": "@muted", "width": 1.2, "dash": style}}
    shape |= {f"{across}0": at, f"{across}1": at, f"{across}ref": across, f"{other}0": 0, f"{other}1": 1}
    shape[f"{other}ref"] = "paper"
    label: Figure = {"text": words(name), "showarrow": False, "font": {"size": 11, "color": "@muted"}}
    label |= {across: at, f"{across}ref": across, f"{other}ref": "paper"}
    if across == "x":
        label |= {"y": 1, "yanchor": "bottom", "xanchor": "center"}
    else:
        label |= {"x": 1, "xanchor": "right", "yanchor": "bottom"}
    return shape, label


def titled(axis: str, **more: Any) -> Figure:
    """An axis with its title."""
    return {"title": {"text": words(axis)}, **more}


def ticks(names: Sequence[str], width: int, lines: int = 2, at: Sequence[float] = (), **more: Any) -> Figure:
    """An axis of names, one beside the other or `at` places."""
    places = list(at) or list(range(len(names)))
    told = [words(name, width, lines) for name in names]
    return {"tickvals": places, "ticktext": told, "showgrid": False, "automargin": True, **more}


def bars(lengths: Sequence[float | None], at: Sequence[float], width: float, **more: Any) -> Figure:
    """Bars that lie, one at each place."""
    return {"type": "bar", "orientation": "h", "x": list(lengths), "y": list(at), "width": width, **more}


def rows_figure(
    names: Sequence[str],
    series: Sequence[tuple[Arm, Sequence[Measure | None]]],
    axis: str,
    floors: Mapping[str, float],
    base: float | None = None,
) -> Figure:
    """Rows of marks with intervals: a row for each name, in it a mark for each arm, and the floors across.

    Where `base` is given, a bar leads from there to the mark; a mark whose interval covers it is hollow.
    """
    step = ROW * len(series) + GAP
    data: list[Figure] = []
    for place, (arm, measures) in enumerate(series):
        at = [-(k * step + place * ROW) for k in range(len(names))]
        data += [_way(arm, at, measures, base)] if base is not None else []
        data.append(_marks(arm, at, measures, names, base))
    span = _span(series, floors, base)
    middle = [-(k * step + ROW * (len(series) - 1) / 2) for k in range(len(names))]
    lowest = -(len(names) * step - GAP - ROW / 2)
    lines = [
        line(name, at, "x", FLOORS[k % len(FLOORS)], "above") for k, (name, at) in enumerate(_merged(floors))
    ]
    return {
        "data": data,
        "layout": {
            "height": step * len(names) + 80 + 14 * len(lines),
            "margin": {"t": 14 + 14 * len(lines)},
            "showlegend": len(series) > 1,
            "barmode": "overlay",
            "xaxis": titled(axis, range=span),
            "yaxis": ticks(names, 20, 3, middle, range=[lowest, ROW / 2 + GAP / 2]),
            "shapes": [shape for shape, _ in lines],
            "annotations": _spread([label for _, label in lines], sum(span) / 2),
        },
    }


def _marks(
    arm: Arm,
    at: Sequence[float],
    measures: Sequence[Measure | None],
    names: Sequence[str],
    base: float | None,
) -> Figure:
    hollow = [bool(base is not None and one and one.sure and one.leaning(base) == "none") for one in measures]
    measures, at, names, hollow = (
        [None, *measures],
        [0, *at],
        ["", *names],
        [False, *hollow],
    )  # for the legend
    return {
        "type": "scatter",
        "mode": "markers",
        "name": words(arm.label, 40),
        "x": [one.value if one else None for one in measures],
        "y": list(at),
        "error_x": intervals(measures, colour(arm)),
        "marker": {
            "symbol": [f"{mark(arm)}-open" if empty else mark(arm) for empty in hollow],
            "size": 9,
            "color": colour(arm),
            "line": {"width": 1.5, "color": colour(arm)},
        },
        "hoverinfo": "text",
        "hovertext": [
            f"{words(name)}<br>{words(arm.label)}<br>{whole(one)}"
            for name, one in zip(names, measures, strict=True)
        ],
    }


def _way(arm: Arm, at: Sequence[float], measures: Sequence[Measure | None], base: float) -> Figure:
    """The way from the base to each mark."""
    lengths = [one.value - base if one else None for one in measures]
    tint = {"color": colour(arm, 0.22), "line": {"width": 0}}
    return bars(lengths, at, ROW * 0.72, base=base, showlegend=False, hoverinfo="skip", marker=tint)


def _merged(floors: Mapping[str, float]) -> list[tuple[str, float]]:
    """Floors by value, those of the same value under one name."""
    found: dict[float, list[str]] = {}
    for name, at in floors.items():
        found.setdefault(round(at, 4), []).append(name)
    return [(f"{' = '.join(names)} {number(at, 2)}", at) for at, names in sorted(found.items())]


def _spread(labels: Sequence[Figure], middle: float) -> list[Figure]:
    """Labels of neighbouring lines, one above the other, each towards the middle."""
    return [
        {**label, "yshift": 14 * (len(labels) - 1 - k), "xanchor": "left" if label["x"] < middle else "right"}
        for k, label in enumerate(labels)
    ]


def _span(
    series: Sequence[tuple[Arm, Sequence[Measure | None]]], floors: Mapping[str, float], base: float | None
) -> list[float]:
    """The span of an axis: from a little below the least to a little above the most of what is shown."""
    ends = [
        end
        for _, ones in series
        for one in ones
        if one
        for end in ((one.low, one.high) if one.sure else (one.value,))
    ]
    ends += [*floors.values(), *([] if base is None else [base])]
    if base is None and min(ends, default=0) >= 0:
        ends.append(0.0)  # shares start at nobody
    least, most = min(ends, default=0.0), max(ends, default=1.0)
    room = 0.04 * ((most - least) or 1.0)
    return [least if least == 0 else least - room, most + room]
