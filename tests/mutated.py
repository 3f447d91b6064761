"""Mutations of JSON: a value somewhere in it becomes another, goes, comes twice or moves."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

__all__ = ["ODD", "mutated"]

ODD: list[Any] = [
    *(None, True, False, 0, 1, -1, 2**31, 2**63, 10**30, -0.0, 0.5, 1e308, -1e-320),
    *("", "x", "..", "../x", "/", "\x1b[31m", "\u202e", "\ud800", "0" * 64, "nan", "é" * 300),
    *([], {}, [[]], [None], {"": None}, {"version": 1}, [[[[[[[[]]]]]]]]),
]
KEYS = ["", "..", "../x", "/", "\x1b[31m", "\ud800", "\0", "x" * 300]


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place of a tree: what holds it, and the key or number by which."""
    items: Any = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in list(items):
        yield value, key
        if isinstance(inner, dict | list):
            yield from places(inner)


@st.composite
def mutated(draw: st.DrawFn, value: Any, most: int = 3) -> Any:
    """A tree like the given one, with one to some faults in it."""
    value = copy.deepcopy(value)
    for _ in range(draw(st.integers(1, most))):
        found = list(places(value))
        if not found:
            break
        held, key = draw(st.sampled_from(found))
        kind = draw(st.sampled_from(["other", "gone", "twice", "near", "moved"]))
        if kind == "other":
            held[key] = copy.deepcopy(draw(st.sampled_from(ODD)))
        elif kind == "gone":
            held.pop(key)
        elif kind == "twice" and isinstance(held, list):
            held.insert(key, copy.deepcopy(held[key]))
        elif kind == "near":
            held[key] = _near(draw, held[key])
        else:
            other, name = draw(st.sampled_from(found))
            held[key] = copy.deepcopy(other[name]) if name in other or isinstance(other, list) else None
    return value


def _near(draw: st.DrawFn, value: Any) -> Any:
    """A value of the same type, hardly another one."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return draw(st.sampled_from([value + 1, -value, value * 2, float(value), value * 1e9, 0]))
    if isinstance(value, str):
        return draw(st.sampled_from([value[:-1], value + value, value.upper(), f" {value}"]))
    if isinstance(value, list):
        return draw(st.sampled_from([value[:-1], value + value, value[::-1], [*value, None]]))
    if isinstance(value, dict):
        return {draw(st.sampled_from([f"{key}x", *KEYS])): inner for key, inner in value.items()}
    return value
