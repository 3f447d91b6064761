"""EarlyStop: training ends where it should, and the state that is kept is the one that was wanted."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.worlds import checkerboard, federation, phones
from veilrec.defence import chain
from veilrec.defences.early_stop import EarlyStop
from veilrec.defences.laplace import Laplace
from veilrec.errors import BadInput
from veilrec.experiment import Experiment
from veilrec.models.fedmf import FedMF
from veilrec.recipe import Recipe
from veilrec.rounds import Federation
from veilrec.runs.selection import Selection

ROUNDS = 30


def fed_of(defence: Any, every: int = 1) -> Federation:
    world = phones(checkerboard())
    plan = {"rounds": ROUNDS, "lr": 2.0, "evaluate_every": every}
    return federation(world, FedMF(24, dim=4), None, defence, **plan)


def history(defence: Any, every: int = 1) -> list[dict[str, float]]:
    fed = fed_of(defence, every)
    return [row for _, row in fed.rounds(fed.start())]


@pytest.fixture(scope="module")
def whole() -> list[dict[str, float]]:
    """A run that nobody ends; its metric rises, or there would be nothing to see."""
    rows = history(EarlyStop(rounds=0, target=1.0))
    assert len(rows) == ROUNDS
    assert rows[0]["ndcg@10"] < rows[-1]["ndcg@10"] < 1
    return rows


@pytest.mark.parametrize("rounds", [1, 7])
def test_it_ends_after_some_rounds(whole: list[dict[str, float]], rounds: int) -> None:
    assert history(EarlyStop(rounds=rounds)) == whole[:rounds]
    assert len(history(chain(Laplace(), EarlyStop(rounds=rounds)))) == rounds


@pytest.mark.parametrize("every", [1, 3])
def test_it_ends_at_the_first_look_that_sees_the_target(whole: list[dict[str, float]], every: int) -> None:
    target = whole[19]["ndcg@10"]
    looks = [row for row in whole if row["round"] % every == 0]
    first = next(row["round"] for row in looks if row["ndcg@10"] >= target)
    rows = history(EarlyStop(rounds=0, target=target), every)
    assert len(rows) == first < ROUNDS
    selection = Selection("ndcg@10")
    for row in rows:
        selection.look(row)
    assert selection.round == first  # what is kept is the state that reached it


def test_whichever_comes_first(whole: list[dict[str, float]]) -> None:
    target = whole[19]["ndcg@10"]
    assert len(history(EarlyStop(rounds=3, target=target))) == 3
    assert len(history(EarlyStop(rounds=25, target=target))) <= 20


def test_a_metric_that_nobody_measures() -> None:
    with pytest.raises(
        BadInput, match=r'^defence\.metric: "ndgc@10" is not measured; did you mean "ndcg@10"\?$'
    ):
        fed_of(EarlyStop(metric="ndgc@10", target=0.5))
    with pytest.raises(BadInput, match=r'^defence\.metric: "hr@7" is not measured'):
        fed_of(chain(Laplace(), EarlyStop(metric="hr@7", target=0.5)))
    assert fed_of(EarlyStop(metric="ndgc@10")).defence.watches == ()  # nobody reads it


def test_a_metric_that_nobody_measures_is_found_before_anything_is_written(tmp_path: Path) -> None:
    experiment = Experiment(
        checkerboard(), partial(FedMF, dim=4), defence=EarlyStop(metric="hr@11", target=0.5)
    )
    with pytest.raises(BadInput, match=r'^defence\.metric: "hr@11" is not measured'):
        experiment.run(tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_without_a_number_of_rounds_a_target_is_the_only_end(whole: list[dict[str, float]]) -> None:
    assert len(history(EarlyStop(target=1.0))) == ROUNDS
    assert len(history(EarlyStop(target=whole[19]["ndcg@10"]))) == len(
        history(EarlyStop(rounds=0, target=whole[19]["ndcg@10"]))
    )
    assert history(EarlyStop()) == whole[:10]
    assert len(history(EarlyStop(rounds=4, target=1.0))) == 4


@pytest.mark.parametrize("options", [{"rounds": -1}, {"rounds": 0}, {"target": 1.5}, {"target": -0.1}])
def test_ends_that_mean_nothing(options: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=r"^defence"):
        EarlyStop(**options)


RECIPE = """
[data]
name = "synthetic"
users = 60
items = 40
[model]
name = "FedMF"
dim = 4
[plan]
rounds = 6
lr = 2.0
evaluate_every = 1
workers = 1
[evaluation]
select = "hr@10"
"""
LIKE = '[[defence]]\nname = "early_stop"\nrounds = 0\nmetric = "hr@10"\ntarget = '


def test_a_recipe_ends_at_what_another_run_reached(tmp_path: Path) -> None:
    """Another run is the measure: the first look that reaches it is the end."""
    first = tmp_path / "first.toml"
    first.write_text(RECIPE)
    other = Recipe.load(first).experiment().run(tmp_path / "other")
    goal = other.utility.validation["hr@10"]
    second = tmp_path / "second.toml"
    second.write_text(RECIPE.replace("rounds = 6", "rounds = 12") + LIKE + repr(goal))
    result = Recipe.load(second).experiment().run(tmp_path / "new")
    assert result.stopped == "defence"
    assert result.rounds == result.selected == other.selected
    assert result.utility.validation["hr@10"] >= goal


def test_a_target_is_a_number(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(RECIPE + LIKE + '"other"')
    with pytest.raises(BadInput, match=r"defence\.0\.target"):
        Recipe.load(path)
