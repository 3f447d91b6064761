"""Every number of a recipe has bounds, and they hold for recipes and for Python alike."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest

from veilrec.base.limits.bounds import bounds_of
from veilrec.errors import BadInput
from veilrec.recipe import Recipe, catalogue
from veilrec.recipe.sections import DATA, PLAIN, TOP
from veilrec.recipe.settings import Option, describe, fit, options_of


def owners() -> dict[str, tuple[dict[str, Option], Callable[..., Any] | None]]:
    """Every table of a recipe: its options, and what Python makes of them."""
    found: dict[str, tuple[dict[str, Option], Callable[..., Any] | None]] = {
        "top": (TOP, None),
        "data": (DATA, None),
        **{name: (options_of(made), made) for name, made in PLAIN.items()},
    }
    for kind in catalogue.KINDS:
        for name, entry in catalogue.entries(kind).items():
            found[f"{kind}/{name}"] = (catalogue.options(entry), entry)
    return found


OWNERS = owners()


def numbers(annotation: Any) -> Iterator[Any]:
    """Each number in an annotation, with what is noted of it."""
    if bounds_of(annotation) is not None or annotation in (int, float):
        yield annotation
    elif get_args(annotation) and not isinstance(annotation, type(Literal[1])):
        for inner in get_args(annotation):
            yield from numbers(inner)


NUMBERED = {
    (owner, name): option
    for owner, (options, _) in OWNERS.items()
    for name, option in options.items()
    if any(numbers(option.annotation))
}


def test_there_are_many() -> None:
    assert len(NUMBERED) > 80
    assert list(numbers(dict[str, int] | None)) == [int], "one without bounds is found"


@pytest.mark.parametrize(("owner", "name"), NUMBERED, ids=str)
def test_a_number_has_bounds_and_says_them(owner: str, name: str) -> None:
    annotation = NUMBERED[owner, name].annotation
    found = list(numbers(annotation))
    assert all(bounds_of(one) is not None for one in found)
    assert all(str(bounds_of(one)) in describe(annotation) for one in found)


def beyond(annotation: Any) -> Any:
    """A value of that kind with a number beyond its bounds."""
    if (bounds := bounds_of(annotation)) is not None:
        return min(bounds.least * 2, bounds.least) - 1 if bounds.most > 1e300 else bounds.most * 2 + 1
    members = [one for one in get_args(annotation) if any(numbers(one))]
    inner = next((one for one in members if bounds_of(one) is not None), members[0])
    kinds = {"Sequence": lambda: [beyond(inner)], "tuple": lambda: (beyond(inner),)}
    kinds["Mapping"] = lambda: {"user": beyond(members[-1])}
    return kinds.get(getattr(get_origin(annotation), "__name__", ""), lambda: beyond(inner))()


@pytest.mark.parametrize(("owner", "name"), NUMBERED, ids=str)
def test_a_number_beyond_them_is_refused(owner: str, name: str) -> None:
    option, made = NUMBERED[owner, name], OWNERS[owner][1]
    value = beyond(option.annotation)
    with pytest.raises(BadInput, match=r"is too (large|small); give "):
        fit("table", {name: value}, {name: option}, "a recipe")
    if made is None:
        return
    taken = inspect.signature(made).parameters
    first = {"path": Path("gone"), "n_items": 12, "attribute": ("gender",)}
    with pytest.raises(BadInput, match=rf"{name}(\.\w+)*: .* is too (large|small); give "):
        made(**{key: given for key, given in first.items() if key in taken and key != name}, **{name: value})


def test_lists_are_no_longer_than_anybody_wants() -> None:
    with pytest.raises(BadInput, match=r"^seeds: 1,001 entries are too many; give at most 1,000$"):
        fit("", {"seeds": list(range(1001))}, TOP, "")


def test_a_sweep_of_more_runs_than_anybody_wants_is_refused_at_once() -> None:
    sweep = {"plan.rounds": list(range(1, 1001)), "plan.batch": list(range(1, 101))}
    with pytest.raises(BadInput, match=r"sweep: makes 100,000 runs; give choices for at most 10,000$"):
        Recipe.of({"sweep": sweep})
