"""Figures: the blocks that charts are made of. Colours are names that the page fills in, by its theme."""

from __future__ import annotations

import html
import textwrap
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from veilrec.metrics.arms import Arm
from veilrec.metrics.measures import Measure, gathered
from veilrec.metrics.words import bracketed, number

__all__ = [
    "Chart",
    "PageTable",
    "Variant",
    "colour",
    "drawing",
    "intervals",
    "line",
    "mark",
    "rows_figure",
    "scatter",
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
class PageTable:
    """The numbers behind a chart: its text alternative.

    Attributes:
        head, rows: As text.
        left: The columns that hold words; the others hold numbers.
        caption: What it shows.
    """

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: Sequence[int] = (0,)
    caption: str = ""


class Variant(NamedTuple):
    """One drawing of a chart: its name in the list, the heading above it, the drawing, and its numbers."""

    name: str
    group: str
    figure: Figure
    table: PageTable


class Chart(NamedTuple):
    """A chart with its words: a title, what it shows, and the choice of drawings."""

    key: str
    title: str
    caption: str
    choice: str
    variants: Sequence[Variant]

    @property
    def tables(self) -> list[tuple[PageTable, list[int]]]:
        """The numbers behind it: each table once, with the places of the drawings that it belongs to."""
        places = gathered((id(one.table), place) for place, one in enumerate(self.variants))
        return [(self.variants[some[0]].table, some) for some in places.values()]


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
    """Escape markup; charts.js turns it back into letters, and only `<br>` into lines."""
    return html.escape(text, quote=False)


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
    name: str, at: float, across: str, style: str = "dash", layer: str = "below", left: bool = False
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
        label |= {"x": 0.0 if left else 1, "xanchor": "left" if left else "right", "yanchor": "bottom"}
    return shape, label


def titled(axis: str, **more: Any) -> Figure:
    """An axis with its title."""
    return {"title": {"text": words(axis)}, **more}


def ticks(names: Sequence[str], width: int, lines: int = 2, at: Sequence[float] = (), **more: Any) -> Figure:
    """An axis of names, one beside the other or `at` places."""
    places = list(at) or list(range(len(names)))
    told = [words(name, width, lines) for name in names]
    return {"tickvals": places, "ticktext": told, "showgrid": False, "automargin": True, **more}


def scatter(mode: str, xs: Iterable[float | None], ys: Iterable[float], **more: Any) -> Figure:
    """Marks or lines; they answer a pointer where they have a text for it."""
    hover = "text" if "hovertext" in more else "skip"
    return {"type": "scatter", "mode": mode, "x": list(xs), "y": list(ys), "hoverinfo": hover, **more}


def drawing(data: Iterable[Figure], lines: Sequence[tuple[Figure, Figure]], **layout: Any) -> Figure:
    """Traces over reference lines, each of these with its label."""
    across = {"shapes": [shape for shape, _ in lines], "annotations": [label for _, label in lines]}
    return {"data": list(data), "layout": {**across, **layout}}


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
    middle = [-(k * step + ROW * (len(series) - 1) / 2) for k in range(len(names))]
    lowest = -(len(names) * step - GAP - ROW / 2)
    lines = [
        line(name, at, "x", FLOORS[k % len(FLOORS)], "above") for k, (name, at) in enumerate(_merged(floors))
    ]
    return drawing(
        data,
        lines,
        height=step * len(names) + 80 + 14 * len(lines),
        margin={"t": 14 + 14 * len(lines)},
        showlegend=len(series) > 1,
        barmode="overlay",
        xaxis=titled(axis, rangemode="tozero" if base is None else "normal"),  # shares start at nobody
        yaxis=ticks(names, 20, 3, middle, range=[lowest, ROW / 2 + GAP / 2]),
        annotations=[{**label, "yshift": 14 * (len(lines) - 1 - k)} for k, (_, label) in enumerate(lines)],
    )


def _marks(
    arm: Arm,
    at: Sequence[float],
    measures: Sequence[Measure | None],
    names: Sequence[str],
    base: float | None,
) -> Figure:
    hollow = [bool(base is not None and one and one.sure and one.leaning(base) == "none") for one in measures]
    hollow, measures, names = [False, *hollow], [None, *measures], ["", *names]  # the first for the legend
    symbols = [f"{mark(arm)}-open" if empty else mark(arm) for empty in hollow]
    pairs = zip(names, measures, strict=True)
    return scatter(
        "markers",
        [one.value if one else None for one in measures],
        [0, *at],
        name=words(arm.label, 40),
        error_x=intervals(measures, colour(arm)),
        marker={
            "symbol": symbols,
            "size": 9,
            "color": colour(arm),
            "line": {"width": 1.5, "color": colour(arm)},
        },
        hovertext=[f"{words(name)}<br>{words(arm.label)}<br>{bracketed(one)}" for name, one in pairs],
    )


def _way(arm: Arm, at: Sequence[float], measures: Sequence[Measure | None], base: float) -> Figure:
    """The way from the base to each mark."""
    return {
        "type": "bar",
        "orientation": "h",
        "x": [one.value - base if one else None for one in measures],
        "y": list(at),
        "width": ROW * 0.72,
        "base": base,
        "showlegend": False,
        "hoverinfo": "skip",
        "marker": {"color": colour(arm, 0.22), "line": {"width": 0}},
    }


def _merged(floors: Mapping[str, float]) -> list[tuple[str, float]]:
    """Floors by value, those of the same value under one name."""
    found = gathered((round(at, 4), name) for name, at in floors.items())
    return [(f"{' = '.join(names)} {number(at, 2)}", at) for at, names in sorted(found.items())]
