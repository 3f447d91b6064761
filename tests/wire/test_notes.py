"""Notes of a letter come back as they were given; what no server of ours would write is refused."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from veilrec.errors import BadInput
from veilrec.wire import codec
from veilrec.wire.frame import framed
from veilrec.wire.notes import LONGEST, Notes, fingerprint, notes


def there_and_back(told: dict[str, str]) -> Notes:
    data = codec.encode({"a": torch.ones(1)}, told)
    assert codec.decode(data, {"a": codec.Spec((1,))}, notes=LONGEST)
    return Notes.of(framed(data).notes)


@given(
    st.text(st.characters(exclude_categories=("Cs",)), max_size=200),
    st.text(max_size=30),
    st.lists(st.integers(1, 10**6), max_size=9),
    st.integers(1, 10**9 - 1),
)
def test_there_and_back(run: str, recipe: str, missed: list[int], attempt: int) -> None:
    recipe = recipe.encode("utf-8", "replace").decode()
    found = there_and_back(notes(run, recipe, missed, attempt))
    assert found == Notes(run, fingerprint(recipe), tuple(missed), attempt)


def test_what_says_nothing_is_left_out() -> None:
    assert notes() == notes(attempt=1) == {}
    assert there_and_back({}) == Notes()


@pytest.mark.parametrize(
    "told",
    [
        {"colour": "red"},
        {"run": "x" * 201},
        {"run": "\ud800"},
        {"recipe": "0" * 63},
        {"recipe": "G" * 64},
        {"missed": "1,2"},
        {"missed": "-1"},
        {"missed": " 1"},
        {"missed": "1 " * 3000 + "1"},
        {"missed": "9999999999"},
        {"attempt": "0"},
        {"attempt": "1.0"},
        {"attempt": "9" * 10},
        {"attempt": "١"},
        {"attempt": "1\n"},
        {"attempt": ""},
    ],
)
def test_others_are_refused_in_a_short_line(told: dict[str, str]) -> None:
    with pytest.raises(BadInput, match=r"^letter: ") as error:
        Notes.of(told)
    assert len(str(error.value)) < 300


def test_a_server_does_not_write_what_no_device_would_read() -> None:
    for wrong in ({"run": "x" * 201}, {"missed": [-1]}, {"missed": range(1, 4000)}, {"attempt": 0}):
        with pytest.raises(BadInput):
            notes(**wrong)  # type: ignore[arg-type]
