"""Schemas: what a value from a file may be, and where it stands if it is something else."""

from __future__ import annotations

from typing import Any

import pytest

from veilrec.base.limits.schema import (
    Check,
    Wrong,
    anything,
    flag,
    listed,
    number,
    numbers,
    one_of,
    or_none,
    table,
    text,
    texts,
    whole,
)

INF = float("inf")


def nested(depth: int) -> Any:
    return [nested(depth - 1)] if depth else []


@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        (number(), [0, -1.5, 10**30], [None, "1", True, INF, -INF, float("nan"), [1]]),
        (number(0, 1), [0, 1, 0.5], [-0.1, 1.1]),
        (whole(), [0, 5, 2**53], [-1, 1.0, True, 2**53 + 1, "5", None]),
        (whole(-3, 3), [-3, 3], [-4, 4]),
        (flag, [True, False], [0, 1, None, "true"]),
        (text(3), ["", "abc"], ["abcd", 5, None, b"a"]),
        (text(9, "[a-z]+"), ["abc"], ["", "a b", "abc\\n", "A"]),
        (one_of("a", 1), ["a", 1], ["b", True, 1.0, None]),
        (or_none(flag), [None, True], [0]),
        (listed(flag, 2), [[], [True, False], (True,)], [[1], [True] * 3, "ab", {}, None]),
        (listed(flag, 3, 1), [[True]], [[]]),
        (numbers(), [[], [1, -2.5], (0.0,)], [[True], [None], ["1"], [INF], [1, -INF], 5, None]),
        (numbers(0, 1, 3), [[0, 1, 0.5]], [[-0.1], [1.1], [0] * 4]),
        (texts(2, 3), [[], ["abc"]], [["abcd"], ["a"] * 3, [5], "abc", None]),
        (
            table({"a": flag}, {"b": flag}),
            [{"a": True}, {"a": True, "b": False}],
            [{}, {"a": 1}, {"a": True, "c": 1}],
        ),
        (
            table(rest=flag, most=1),
            [{}, {"x": True}],
            [{"x": 1}, {"x": True, "y": True}, [], None, {5: True}],
        ),
        (table(rest=flag, keys=text(1)), [{"x": True}], [{"xy": True}]),
        (
            anything,
            [None, True, 1, "x", [], {"a": [1]}, nested(20)],
            [INF, nested(30), {"a": INF}, "x" * 10**5],
        ),
    ],
)
def test_what_fits_passes_and_nothing_else(check: Check, good: list[Any], bad: list[Any]) -> None:
    for value in good:
        check(value, "here")
    for value in bad:
        with pytest.raises(Wrong) as error:
            check(value, "here")
        assert str(error.value).startswith("here")
        assert len(str(error.value)) < 250


def test_a_fault_is_named_by_its_place() -> None:
    check = table({"files": table(rest=table({"bytes": whole()}))})
    with pytest.raises(Wrong, match=r"^files\.world\.bytes: is below 0$"):
        check({"files": {"ids": {"bytes": 0}, "world": {"bytes": -1}}}, "")
