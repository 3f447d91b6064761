"""Bounds of numbers: what they say, and where they are held."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
import pytest

from veilrec.base.limits.bounds import LONGEST, Bounds, Share, Width, bounded, check, hold
from veilrec.errors import BadInput

Few = Annotated[int, Bounds(1, 5)]
Open = Annotated[float, Bounds(0, 1, above=True, below=True)]


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        (Bounds(1, 65_536), "from 1 to 65,536"),
        (Bounds(0, 1e9), "from 0 to 1e+09"),
        (Bounds(0, 1, above=True), "above 0 and up to 1"),
        (Bounds(0, 1, below=True), "from 0 to below 1"),
        (Bounds(0, 1, above=True, below=True), "above 0 and below 1"),
        (Bounds(0, math.inf, above=True), "above 0"),
        (Bounds(0, math.inf), "from 0 upwards"),
    ],
)
def test_bounds_in_words(bounds: Bounds, words: str) -> None:
    assert str(bounds) == words


@pytest.mark.parametrize(
    ("value", "annotation", "told"),
    [
        (0, Few, "x: 0 is too small; give a whole number from 1 to 5"),
        (10**12, Few, "x: 1,000,000,000,000 is too large; give a whole number from 1 to 5"),
        (10**5000, Few, "x: 10^5000 is too large; give a whole number from 1 to 5"),
        (-(10**30), Few, "x: -10^30 is too small; give a whole number from 1 to 5"),
        (np.int64(7), Few, "x: 7 is too large; give a whole number from 1 to 5"),
        (math.nan, Share, "x: nan is no amount; give a number from 0 to 1"),
        (math.inf, Share, "x: inf is too large; give a number from 0 to 1"),
        (1, Open, "x: 1 is too large; give a number above 0 and below 1"),
        (0.0, Open, "x: 0 is too small; give a number above 0 and below 1"),
        ([1, 9], Sequence[Few], "x.1: 9 is too large; give a whole number from 1 to 5"),
        ((1, 9), tuple[Few, ...], "x.1: 9 is too large; give a whole number from 1 to 5"),
        ({"a": 2.0}, Share | Mapping[str, Share], "x.a: 2 is too large; give a number from 0 to 1"),
        (9, Few | Literal["all"], "x: 9 is too large; give a whole number from 1 to 5"),
        (9, Few | None, "x: 9 is too large; give a whole number from 1 to 5"),
        ({"a": [9]}, Mapping[str, Sequence[Few]] | None, "x.a.0: 9 is too large; "),
        ([1] * 1001, Sequence[int], "x: 1,001 entries are too many; give at most 1,000"),
        ({str(k): 1.0 for k in range(1001)}, Share | Mapping[str, Share], "x: 1,001 entries are too many; "),
    ],
    ids=range(17),
)
def test_what_is_beyond_is_refused_with_its_bounds(value: Any, annotation: Any, told: str) -> None:
    with pytest.raises(BadInput) as caught:
        check("x", value, annotation)
    assert str(caught.value).startswith(told)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        (1, Few),
        (5, Few),
        (0.5, Open),
        (1, Share),
        (True, Few),  # its kind is for others to judge
        ("all", Few | Literal["all"]),
        (None, Few | None),
        (10**12, int),
        ({"a": 0.5}, Share | Mapping[str, Share]),
        (["a"] * LONGEST, Sequence[str]),
    ],
    ids=str,
)
def test_what_is_within_passes(value: Any, annotation: Any) -> None:
    check("x", value, annotation)


@dataclass(frozen=True)
class Entry:
    width: Width = 8
    share: Share | None = None

    def __post_init__(self) -> None:
        hold(self, "model")


@dataclass(frozen=True)
class Another(Entry):
    """A subclass, whose fields are read where each class stands."""

    more: Few = 2


def test_a_dataclass_holds_its_fields() -> None:
    assert Another(width=65_536, share=1.0, more=5).more == 5
    with pytest.raises(BadInput, match=r"^model\.width: 65,537 is too large; "):
        Entry(width=65_537)
    with pytest.raises(BadInput, match=r"^model\.more: 6 is too large; "):
        Another(more=6)


def test_a_function_holds_its_arguments() -> None:
    @bounded("data")
    def world(users: Few, *, share: Share = 0.5) -> int:
        """Make a world."""
        return users

    assert world(3) == world(users=3) == 3
    assert world.__doc__ == "Make a world."
    for given, named in [((9,), {}), ((), {"users": 9}), ((1,), {"share": 2.0})]:
        with pytest.raises(BadInput, match=r"^data\.(users|share): "):
            world(*given, **named)
