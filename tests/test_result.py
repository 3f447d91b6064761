"""What a result says of itself: what its model is told about users."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.report.results import result


def read(names: list[str], private: bool) -> str:
    told = {"width": len(names), "names": names, "include_private_features": private}
    usual = result("none", 0)
    return replace(usual, data={**usual.data, "features": told}).reads()


@pytest.mark.parametrize("data", [{}, {"features": None}])
def test_a_model_that_reads_nothing_says_nothing(data: dict[str, Any]) -> None:
    assert replace(result("none", 0), data=data).reads() == ""


def test_attributes_among_the_inputs_are_named_once_each() -> None:
    said = read(["items", "mean", "gender=female", "gender=male", "age=under 35"], True)
    assert said == (
        "The model reads 5 features of each user, among them the attributes themselves (gender, age): "
        "who sees how it moves may read them off."
    )


@pytest.mark.parametrize("private", [False, True])
def test_without_attributes_it_says_so(private: bool) -> None:
    assert read(["items", "mean"], private) == (
        "The model reads 2 features of each user, no attribute among them."
    )


def test_blurred_features_are_not_said_to_be_read_off() -> None:
    told = {"width": 1, "names": ["gender=female"], "include_private_features": True, "blurred": True}
    said = replace(result("none", 0), data={"features": told}).reads()
    assert "blurred on the device before" in said
    assert said.endswith("themselves (gender).")
