"""Numerals: numbers as people read them."""

from __future__ import annotations

import math
from typing import Any

from veilrec.report.measures import Measure

__all__ = ["amount", "bare", "count", "duration", "interval", "number", "out_of_100", "shown", "whole"]

MISSING = "–"


def number(value: float | None, places: int = 3) -> str:
    """``0.781``; a real minus for what is below zero, a dash for nothing."""
    if value is None or math.isnan(value):
        return MISSING
    return f"{value:.{places}f}".replace("-", "−")


def interval(measure: Measure | None, places: int = 3) -> str:
    """``0.742 to 0.815``."""
    if measure is None or not measure.sure:
        return MISSING
    return f"{number(measure.low, places)} to {number(measure.high, places)}"


def whole(measure: Measure | None, places: int = 3) -> str:
    """``0.781 (0.742 to 0.815)``, and whether it is turned round."""
    if measure is None:
        return MISSING
    ends = f" ({interval(measure, places)})" if measure.sure else ""
    return f"{number(measure.value, places)}{ends}{', turned round' if measure.turned else ''}"


def out_of_100(share: float) -> str:
    """How many of 100 people."""
    return f"{100 * share:.0f}"


def count(value: float | None) -> str:
    """``107,648``."""
    return MISSING if value is None else f"{value:,.0f}"


def bare(value: Any) -> str:
    """A number with as many digits as it needs: ``50``, ``0.02``, ``1.3e-06``."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return MISSING if value is None else str(value)
    return f"{value:,.0f}" if isinstance(value, int) or 1000 <= abs(value) < 1e12 else f"{value:.4g}"


def amount(size: float) -> str:
    """Bytes: ``12.3 kB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def duration(seconds: float | None) -> str:
    """``4.2 s``, ``42 s``, ``3 min 05 s``."""
    if seconds is None:
        return MISSING
    if seconds < 10:
        return f"{seconds:.1f} s"
    rounded = round(seconds)
    return f"{rounded} s" if rounded < 60 else f"{rounded // 60:,} min {rounded % 60:02} s"


def shown(value: Any) -> str:
    """A setting as a recipe would write it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return "[" + ", ".join(shown(entry) for entry in value) + "]"
    if value is None or value == {}:
        return MISSING
    return f"{value}"
