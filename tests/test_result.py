"""What a result says of itself: what its model is told about users."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from tests.mutated import mutated
from tests.report.results import result
from tests.results import attribute, audit
from tests.results import result as made
from veilrec.errors import Corrupted, VeilrecError
from veilrec.metrics.comparison import compare
from veilrec.metrics.leaks import NamedRun
from veilrec.report import table, to_csv
from veilrec.result import Result


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


PLACE = Path("run") / "result.json"
WHOLE: dict[str, Any] = json.loads(json.dumps(made().values()))


def changed(change: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    values = json.loads(json.dumps(WHOLE))
    change(values)
    return values  # type: ignore[no-any-return]


def of_gender(told: dict[str, Any]) -> dict[str, Any]:
    return told["privacy"]["veilrec"]["attributes"]["gender"]  # type: ignore[no-any-return]


def test_a_result_is_its_own_schema() -> None:
    assert Result.of(WHOLE, PLACE).values() == WHOLE
    several = made(privacy={"apm": audit({"age": attribute(0.7, [0.7] * 9, parts=[{"part": "item"}])})})
    assert Result.of(several.values(), PLACE) == several


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda told: told.pop("selected"), "lacks selected"),
        (lambda told: told.update(selected=0), "selected: is below 1"),
        (lambda told: told.update(selected=6), "selected: is above the number of rounds, 5"),
        (lambda told: told.update(rounds=5.0), "rounds: is no whole number"),
        (lambda told: told.update(rounds=True), "rounds: is no whole number"),
        (lambda told: told["utility"].update(test=[]), "utility.test: is no table"),
        (lambda told: told["utility"]["test"].update(x=1.5), "utility.test.x: is above 1"),
        (lambda told: told["utility"]["test"].update(x=None), "utility.test.x: is no finite number"),
        (lambda told: told["utility"].update(floor={}), "utility.floor: was measured by other metrics"),
        (lambda told: told["utility"].update(select="ndcg"), "utility.select: is not what it can be"),
        (lambda told: told["utility"].update(select="hr@9"), "utility.select: was not measured"),
        (lambda told: told["utility"].update(collapsed=0), "utility.collapsed: is neither true nor false"),
        (lambda told: told["utility"].update(more=0), 'utility: has an unknown entry "more"'),
        (lambda told: told["settings"].update(model={}), "settings.model: lacks name"),
        (lambda told: told["timing"].update(total=-1), "timing.total: is below 0"),
        (lambda told: told["traffic"].update(up=5), "traffic.up: is no table"),
        (lambda told: told["data"].update(users=-3), "data.users: is below 0"),
        (lambda told: told.update(curves={"a": [1], "b": [1, 2]}), "curves: are not of one length"),
        (
            lambda told: told.update(utility_replicates={"a": [1, "2"]}),
            "has an entry that is no finite number",
        ),
        (
            lambda told: told.update(utility_replicates={"a": [1e400]}),
            "has an entry that is no finite number",
        ),
        (lambda told: told.update(utility_replicates={"a": [True]}), "has an entry that is no finite number"),
        (lambda told: told.update(ledger=[]), "ledger: is no table"),
        (lambda told: told["ledger"].update(guarantee="yes"), "ledger.guarantee: is neither true nor false"),
        (lambda told: of_gender(told).update(counts=[-1]), "gender.counts.0: is below 0"),
        (lambda told: of_gender(told)["attackers"][0].update(p=2), "attackers.0.p: is above 1"),
        (lambda told: of_gender(told)["attackers"][0].pop("name"), "attackers.0: lacks name"),
        (lambda told: of_gender(told)["verdict"].update(replicates=None), "verdict.replicates: is no list"),
        (lambda told: told.update(discloses=[5]), "discloses.0: is no table"),
        (lambda told: told.update(files={}, more={}), 'has an unknown entry "more"'),
    ],
)
def test_what_cannot_be_is_refused(change: Callable[[dict[str, Any]], Any], says: str) -> None:
    with pytest.raises(Corrupted) as error:
        Result.of(changed(change), PLACE)
    assert str(error.value).startswith(f"{PLACE}: ")
    assert says in str(error.value)
    assert len(str(error.value)) < 200


@settings(max_examples=100)
@given(mutated(WHOLE))
def test_mutated_results_raise_our_errors_alone(values: dict[str, Any]) -> None:
    """Where one passes, so does all that is made of it."""
    code = 0
    try:
        one = Result.of(values, PLACE)
        compare([NamedRun("run", one)])
        to_csv(table([("run", one)]))
    except VeilrecError as error:
        code = error.code
    assert code in (0, 2, 4)
