"""Schemas: the types, ranges and lengths that a value from a JSON file may have."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

__all__ = [
    "Check",
    "Wrong",
    "anything",
    "flag",
    "listed",
    "number",
    "numbers",
    "one_of",
    "or_none",
    "table",
    "text",
    "texts",
    "whole",
]

LARGEST = 1 << 53  # of whole numbers, which every reader of JSON can hold
DEEPEST, LONGEST = 24, 1 << 16  # of values without a schema of their own: levels, and letters of a text

Check = Callable[[Any, str], None]
"""Looks at a value that stands at a dotted place, and raises `Wrong` where it will not do."""


class Wrong(ValueError):
    """A value that is not of its schema: ``files.world.bytes: is below 0``."""

    def __init__(self, place: str, what: str) -> None:
        super().__init__(f"{place}: {what}" if place else what)


def number(low: float = -math.inf, high: float = math.inf) -> Check:
    """A finite number of a range."""

    def check(value: Any, place: str) -> None:
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < math.inf:
            raise Wrong(place, "is no finite number")
        _check_range(value, low, high, place)

    return check


def whole(low: int = 0, high: int = LARGEST) -> Check:
    """A whole number of a range."""

    def check(value: Any, place: str) -> None:
        if isinstance(value, bool) or not isinstance(value, int):
            raise Wrong(place, "is no whole number")
        _check_range(value, low, high, place)

    return check


def flag(value: Any, place: str) -> None:
    """Check that a value is true or false."""
    if not isinstance(value, bool):
        raise Wrong(place, "is neither true nor false")


def text(most: int = LONGEST, pattern: str = "") -> Check:
    """A text of at most so many letters, which matches a pattern as a whole."""
    wanted = re.compile(pattern, re.DOTALL)

    def check(value: Any, place: str) -> None:
        if not isinstance(value, str):
            raise Wrong(place, "is no text")
        if len(value) > most:
            raise Wrong(place, f"has more than {most:,} letters")
        if pattern and not wanted.fullmatch(value):
            raise Wrong(place, "is not what it can be")

    return check


def one_of(*values: Any) -> Check:
    """One of some values, of the same type."""

    def check(value: Any, place: str) -> None:
        if not any(type(value) is type(known) and value == known for known in values):
            raise Wrong(place, f"is none of {', '.join(map(str, values))}")

    return check


def or_none(inner: Check) -> Check:
    """A value of its own schema, or none."""

    def check(value: Any, place: str) -> None:
        if value is not None:
            inner(value, place)

    return check


def listed(inner: Check, most: int = 1 << 20, least: int = 0) -> Check:
    """A list of so many values of one schema."""

    def check(value: Any, place: str) -> None:
        if not isinstance(value, list | tuple):
            raise Wrong(place, "is no list")
        if not least <= len(value) <= most:
            raise Wrong(place, f"has {len(value):,} entries, not {least:,} to {most:,}")
        for number, entry in enumerate(value):
            inner(entry, f"{place}.{number}")

    return check


def numbers(low: float = -math.inf, high: float = math.inf, most: int = 1 << 20) -> Check:
    """A list of finite numbers of a range, which may be long."""

    def check(value: Any, place: str) -> None:
        if not isinstance(value, list | tuple) or len(value) > most:
            raise Wrong(place, f"is no list of at most {most:,} numbers")
        if {*map(type, value)} - {int, float} or (value and not abs(max(value, key=abs)) < math.inf):
            raise Wrong(place, "has an entry that is no finite number")
        if value:
            _check_range(min(value), low, high, place)
            _check_range(max(value), low, high, place)

    return check


def texts(most: int = 1 << 20, longest: int = LONGEST) -> Check:
    """A list of texts, which may be long."""

    def check(value: Any, place: str) -> None:
        if not isinstance(value, list | tuple) or len(value) > most:
            raise Wrong(place, f"is no list of at most {most:,} texts")
        if {*map(type, value)} - {str} or max(map(len, value), default=0) > longest:
            raise Wrong(place, f"has an entry that is no text of at most {longest:,} letters")

    return check


def table(
    needs: Mapping[str, Check] | None = None,
    may: Mapping[str, Check] | None = None,
    rest: Check | None = None,
    most: int = 1 << 16,
    keys: Check | None = None,
) -> Check:
    """A table: keys that it must have, keys that it may have, and a schema for any others, if they may be.

    The keys themselves are texts, and what `keys` lets pass.
    """
    needs, known = needs or {}, {**(needs or {}), **(may or {})}

    def check(value: Any, place: str) -> None:
        if not isinstance(value, Mapping):
            raise Wrong(place, "is no table")
        if len(value) > most:
            raise Wrong(place, f"has more than {most:,} entries")
        for key in needs:
            if key not in value:
                raise Wrong(place, f"lacks {key}")
        for key, entry in value.items():
            if not isinstance(key, str) or len(key) > LONGEST:
                raise Wrong(place, "has a key that is no text, or far too long")
            if keys is not None:
                keys(key, f"{place}: the key")
            inner = known.get(key, rest)
            if inner is None:
                raise Wrong(place, f'has an unknown entry "{key}"')
            inner(entry, f"{place}.{key}" if place else key)

    return check


def anything(value: Any, place: str, depth: int = DEEPEST) -> None:
    """Check what JSON can hold and has no schema of its own: finite numbers, texts, flags; none too deep."""
    if value is None or isinstance(value, bool):
        return
    if isinstance(value, int | float):
        number()(value, place)
    elif isinstance(value, str):
        text()(value, place)
    elif depth == 0:
        raise Wrong(place, f"is nested more than {DEEPEST} levels deep")
    elif isinstance(value, Mapping):
        table(rest=lambda entry, at: anything(entry, at, depth - 1))(value, place)
    else:
        listed(lambda entry, at: anything(entry, at, depth - 1))(value, place)


def _check_range(value: float, low: float, high: float, place: str) -> None:
    if value < low:
        raise Wrong(place, f"is below {low:,}")
    if value > high:
        raise Wrong(place, f"is above {high:,}")
