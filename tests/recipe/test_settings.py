"""Values against annotations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from veilrec.errors import BadInput
from veilrec.recipe.settings import REQUIRED, Option, defaults, describe, fit, fitted, options_of, plain


@dataclass(frozen=True)
class Inner:
    share: float = 0.2


@dataclass(frozen=True)
class Outer:
    """An entry.

    Attributes:
        name: What it
            is called.
        sizes, more: Numbers.
    """

    name: str
    sizes: tuple[int, ...] = (1, 2)
    more: Sequence[int] = ()
    rates: Mapping[str, float] = field(default_factory=lambda: {"user": 0.5})
    known: Inner = Inner()
    path: Path | None = None


def test_options_are_read_from_a_dataclass() -> None:
    options = options_of(Outer)
    assert list(options) == ["name", "sizes", "more", "rates", "known", "path"]
    assert options["name"] == Option(str, REQUIRED, "What it is called.")
    assert options["more"].doc == options["sizes"].doc == "Numbers."
    assert defaults(options) == {"sizes": [1, 2], "more": [], "rates": {"user": 0.5}, "known": {"share": 0.2}}


def test_options_are_read_from_a_function() -> None:
    def load(path: Path, *, strict: bool = False, **rest: Any) -> None:
        """Load."""

    assert options_of(load, without=("path",)) == {"strict": Option(bool, False, "")}


@pytest.mark.parametrize(
    ("value", "annotation", "expected"),
    [
        (3, int, 3),
        (3, float, 3.0),
        (3.5, int | float, 3.5),
        (3, float | Mapping[str, float], 3.0),
        ({"a": 1}, float | Mapping[str, float], {"a": 1.0}),
        (True, bool, True),
        ("x", str, "x"),
        ("x", str | None, "x"),
        ("x", Path | None, Path("x")),
        ("sgd", Literal["sgd", "adam"], "sgd"),
        (2, Literal[1, 2], 2),
        ([1, 2], Sequence[int], (1, 2)),
        ([1, 2], tuple[int, ...], (1, 2)),
        ([1, 2.5], tuple[int, float], (1, 2.5)),
        ([], tuple[int, ...], ()),
        (["b", "a"], frozenset[str], frozenset({"a", "b"})),
        ({"share": 1}, Inner, Inner(1.0)),
        ({"a": [1]}, Mapping[str, Sequence[float]] | None, {"a": (1.0,)}),
        ([[1], [2, 3]], Sequence[Sequence[int]], ((1,), (2, 3))),
        (object, Any, object),
    ],
)
def test_what_fits(value: Any, annotation: Any, expected: Any) -> None:
    found = fitted("key", value, annotation)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("value", "annotation", "message"),
    [
        (3.5, int, "key: 3.5 will not do; give a whole number"),
        (True, int, "key: true will not do; give a whole number"),
        (True, float, "key: true will not do; give a number"),
        (1, bool, "key: 1 will not do; give true or false"),
        ("3", int, 'key: "3" will not do; give a whole number'),
        (1, str, "key: 1 will not do; give text"),
        (float("inf"), float, "key: inf is no amount; give a finite number"),
        (float("nan"), float, "key: nan is no amount; give a finite number"),
        (10**400, float, "give a finite number"),
        ([10**5000], str, "key: [10^5000] will not do; give text"),
        ("adm", Literal["sgd", "adam"], 'key: "adm" is not allowed; did you mean "adam"?'),
        (7, Literal["sgd", "adam"], 'key: 7 will not do; give one of "sgd", "adam"'),
        ([1, "x"], Sequence[int], 'key.1: "x" will not do; give a whole number'),
        (5, Sequence[int], "key: 5 will not do; give a list, each a whole number"),
        ([1], tuple[int, int], "key: 1 values; give a list, each a whole number"),
        ("x", float | Mapping[str, float], 'key: "x" will not do; give a number or a table, each a number'),
        ({"a": "x"}, float | Mapping[str, float], 'key.a: "x" will not do; give a number'),
        ({"shore": 1}, Inner, 'key.shore: Inner has no such option; did you mean "share"?'),
        ([], Inner, "key: [] will not do; give a table"),
    ],
)
def test_what_does_not_fit(value: Any, annotation: Any, message: str) -> None:
    with pytest.raises(BadInput) as caught:
        fitted("key", value, annotation)
    assert message in str(caught.value)


def test_keys_are_known_and_none_is_missing() -> None:
    options = options_of(Outer)
    with pytest.raises(BadInput, match=r'^x.nmae: Outer has no such option; did you mean "name"\?$'):
        fit("x", {"nmae": "a"}, options, "Outer")
    with pytest.raises(BadInput, match=r"^x.name: Outer needs it; give text$"):
        fit("x", {}, options, "Outer")
    with pytest.raises(BadInput, match=r"^x.y: Outer has no such option; remove it: there are no options$"):
        fit("x", {"y": 1}, {}, "Outer")
    assert fit("x", {"name": "a", "sizes": [3]}, options, "Outer") == {"name": "a", "sizes": (3,)}


def test_plain_is_what_toml_has() -> None:
    value = {"a": (1, Path("x")), "b": frozenset({2, 1}), "c": Inner(), "d": None}
    assert plain(value) == {"a": [1, "x"], "b": [1, 2], "c": {"share": 0.2}}


def test_words_for_annotations() -> None:
    assert describe(int | None) == "a whole number"
    assert describe(Mapping[str, Literal["a"]]) == 'a table, each one of "a"'
    assert describe(object) == "a value"


def test_an_annotation_that_cannot_be_read_is_named() -> None:
    def broken(x: Missing) -> None:  # type: ignore[name-defined]  # noqa: F821
        """Broken."""

    with pytest.raises(BadInput, match="Missing"):
        options_of(broken)
