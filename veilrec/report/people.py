"""The map of users: their vectors in two dimensions. Personal data, so only where it was asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from veilrec.metrics.arms import Family
from veilrec.metrics.words import count
from veilrec.report.figures import MARKS, Chart, Figure, Table, Variant, colour, words

__all__ = ["user_map"]

SHADES = 7  # classes with a colour of their own


def user_map(family: Family, maps: Mapping[str, Any]) -> Chart:
    """User vectors in two dimensions, coloured by attribute; of each arm the first run that has a map."""
    variants: list[Variant] = []
    tables: list[Table] = []
    found = [
        (arm, next((name for name, _ in arm.runs.values() if maps.get(name)), None)) for arm in family.arms
    ]
    there = [(arm, maps[name]) for arm, name in found if name is not None]
    for arm, one in there:
        for attribute, entry in one["attributes"].items():
            title, sizes = f"{attribute}: {arm.label}", _sizes(entry)
            rows = [[_called(entry, k), count(users)] for k, users in sizes.items()]
            tables.append(Table(["class", "users"], rows, (0,), [len(variants)], title))
            variants.append(Variant(title, arm.label, _scatter(one, entry, sizes)))
    caption = (
        f"{_drawn(there[0][1]) if there else ''} Where colours part, vectors tell the attribute; where they "
        "mix, two dimensions may hide what an attacker still sees."
    )
    return Chart("map", "Map of user vectors", caption, "Coloured by", variants, tables)


def _drawn(one: Mapping[str, Any]) -> str:
    """Say what the points are: ``One point for each of 2,000 users drawn from 6,040 (PCA of vectors).``"""
    shown, whole = len(one["points"]), one.get("of") or len(one["points"])
    drawn = f" drawn from {count(whole)}" if whole > shown else ""
    how = str(one.get("method", "")).upper()
    return f"One point for each of {count(shown)} users{drawn} ({how} of their vectors)."


def _sizes(entry: Mapping[str, Any]) -> dict[int, int]:
    """Users by class."""
    counts = Counter(entry["label"])
    return {k: counts[k] for k in range(max([len(entry["classes"]) - 1, *counts]) + 1)}


def _called(entry: Mapping[str, Any], k: int) -> str:
    return str(entry["classes"][k]) if k < len(entry["classes"]) else str(k)


def _scatter(found: Mapping[str, Any], entry: Mapping[str, Any], sizes: Mapping[int, int]) -> Figure:
    """Points by class; rare classes share one colour, users without a label stay grey."""
    labels = list(entry["label"])
    own = sorted(sorted(sizes, key=lambda k: -sizes[k])[: SHADES if len(sizes) > SHADES + 1 else None])
    names = [(words(_called(entry, k), 30), colour(n), MARKS[n], {k}) for n, k in enumerate(own)]
    rest = set(sizes) - set(own)
    names += [("all others", "@muted 0.5", "circle-open", rest)] if rest else []
    names += [("not told", "@muted 0.25", "circle", {-1})] if -1 in labels else []
    data = [
        _cloud(name, tint, shape, [p for p, k in zip(found["points"], labels, strict=True) if k in ks])
        for name, tint, shape, ks in names
    ]
    axis = {"showticklabels": False, "zeroline": False, "showgrid": False, "title": {"text": ""}}
    return {
        "data": data,
        "layout": {"height": 520, "showlegend": True, "xaxis": axis, "yaxis": {**axis, "scaleanchor": "x"}},
    }


def _cloud(name: str, tint: str, shape: str, points: Sequence[Sequence[float]]) -> Figure:
    xs, ys = ([float(f"{point[k]:.4g}") for point in points] for k in (0, 1))
    look = {"color": tint, "symbol": shape, "size": 6, "opacity": 0.75}
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": xs,
        "y": ys,
        "marker": look,
        "hoverinfo": "skip",
    }
