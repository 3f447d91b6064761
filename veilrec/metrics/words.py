"""Words: numbers, intervals and guarantees as people read them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from veilrec.metrics.measures import Measure

__all__ = [
    "ABSENT",
    "amount",
    "at_rest",
    "bare",
    "bracketed",
    "count",
    "duration",
    "epsilon",
    "number",
    "out_of_100",
    "shown",
    "signed",
]

ABSENT = "–"


def number(value: float | None, places: int = 3) -> str:
    """``0.781``; a real minus for what is below zero, a dash for nothing."""
    return _written(value, f".{places}f")


def signed(value: float | None, places: int = 3) -> str:
    """``+0.781``: a number with its sign."""
    return _written(value, f"+.{places}f")


def _written(value: float | None, form: str) -> str:
    if value is None or math.isnan(value):
        return ABSENT
    return f"{value:{form}}".replace("-", "−")


def bracketed(measure: Measure | None, places: int = 3, *, sign: bool = False) -> str:
    """``0.612 [0.580, 0.640]``, or with signs; the number alone where nobody knows its ends."""
    if measure is None:
        return ABSENT
    told = signed if sign else number
    ends = f" [{told(measure.low, places)}, {told(measure.high, places)}]" if measure.sure else ""
    return f"{told(measure.value, places)}{ends}"


def epsilon(value: float | None, delta: float = 0.0) -> str:
    """``5,382,400``; one that holds but for a chance of δ has it beside it: ``0.5 (δ = 1e-05)``."""
    if value is None or math.isnan(value):
        return ABSENT
    told = f"{value:,.4g}" if value < 10**4 else f"{value:,.0f}"
    return f"{told} (δ = {delta:g})" if delta else told


def out_of_100(share: float) -> str:
    """A share as a number of 100 people."""
    return f"{100 * share:.0f}"


def count(value: float | None) -> str:
    """``107,648``."""
    return ABSENT if value is None else f"{value:,.0f}"


def bare(value: Any) -> str:
    """A number with as many digits as it needs: ``50``, ``0.02``, ``1.3e-06``."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return ABSENT if value is None else str(value)
    return f"{value:,.0f}" if isinstance(value, int) or 1000 <= abs(value) < 1e12 else f"{value:.4g}"


def amount(size: float) -> str:
    """Bytes: ``12.3 kB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def at_rest(line: Mapping[str, Any]) -> str:
    """What an eraser says of its rounds, a line of a result's ``traffic.erasing``: whether it came to rest.

    >>> at_rest({"name": "AegisFed", "rounds": 9, "settled": False, "change": 0.175, "until": 1e-4})
    'AegisFed did not come to rest: after 9 rounds users still moved by 0.175 a round, and 0.0001 ends it.'
    """
    rounds, change, end = f"{line['rounds']:,} rounds", f"{line['change']:.3g}", f"{line['until']:g}"
    if line["settled"]:
        return f"{line['name']} came to rest: after {rounds} users moved by {change}, below {end}."
    moved = f"after {rounds} users still moved by {change} a round, and {end} ends it"
    return f"{line['name']} did not come to rest: {moved}."


def duration(seconds: float | None) -> str:
    """``4.2 s``, ``42 s``, ``3 min 05 s``."""
    if seconds is None:
        return ABSENT
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
        return ABSENT
    return f"{value}"
