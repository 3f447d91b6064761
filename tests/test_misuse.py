"""Misuse from Python: one line that says what is wrong and what to do, as the command line has it (B13)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pandas as pd
import pytest
import torch

import veilrec
from tests.report.results import result
from veilrec.defences.laplace import Laplace
from veilrec.errors import BadInput
from veilrec.interactions import Interactions
from veilrec.models.fedmf import FedMF

WORLD = veilrec.synthetic(users=12, items=20)
FRAME = pd.DataFrame({"user": [1], "item": [2]})


def experiment(data: Any = WORLD, model: Any = FedMF, **more: Any) -> object:
    return veilrec.Experiment(data, model, **more)


# what somebody writes · what the line says
MISUSES: dict[str, tuple[Callable[[], object], str]] = {
    "data by name": (lambda: experiment("ml-100k"), r'experiment\.data: the name "ml-100k" .*veilrec\.synth'),
    "a frame": (lambda: experiment(FRAME), r"experiment\.data: a DataFrame where a log .* veilrec\.datasets"),
    "a model that is made": (
        lambda: experiment(model=FedMF(20, dim=2)),
        r"experiment\.model: a FedMF that is made already; give the class, or functools\.partial\(FedMF",
    ),
    "a model without items": (
        lambda: experiment(model=FedMF(dim=8)),  # type: ignore[call-arg]
        r"model: FedMF: missing .*'n_items'; give the class, or functools\.partial\(FedMF, dim",
    ),
    "a partial gone wrong": (
        lambda: experiment(model=partial(FedMF, dims=8)),
        r'experiment\.model: FedMF has no argument dims; did you mean "dim"\?',
    ),
    "a model by name": (
        lambda: experiment(model="FedMF"),
        r'experiment\.model: the name "FedMF" where what makes',
    ),
    "a plan's typo": (
        lambda: veilrec.Plan(round=3),
        r'plan: Plan has no argument round; did you mean "rounds"\?',
    ),
    "text for rounds": (lambda: veilrec.Plan(rounds="3"), r'plan\.rounds: "3" is text; give a number'),
    "a number for a plan": (lambda: experiment(plan=3), r"experiment\.plan: a int where a plan should be"),
    "a defence by name": (
        lambda: experiment(defence="laplace"),
        r'experiment\.defence: the name "laplace" where a defence should be; give one, as veilrec\.Laplace',
    ),
    "a defence's class": (
        lambda: experiment(defence=Laplace),
        r"the class Laplace where a defence should be",
    ),
    "several defences": (
        lambda: experiment(defence=[Laplace()]),
        "a list where a defence .* several by veilrec.chain",
    ),
    "a threat by name": (
        lambda: experiment(threat="pard"),
        r"experiment\.threat: the name .* give veilrec\.Threat",
    ),
    "erasers by name": (
        lambda: experiment(erasers=["leace"]),
        r"experiment\.erasers: the name .* list erasers",
    ),
    "attacks without names": (
        lambda: experiment(attacks=["x"]),
        r"experiment\.attacks: a list where attacks by name",
    ),
    "no model": (lambda: veilrec.Experiment(WORLD), r"experiment: Experiment: missing .*'model'"),
    "an argument too many": (
        lambda: experiment(plans=3),
        r'Experiment has no argument plans; did you mean "plan"\?',
    ),
    "a dataset's typo": (
        lambda: veilrec.synthetic(user=3),
        r'synthetic has no argument user; did you mean "users"\?',
    ),
}


@pytest.mark.parametrize("name", MISUSES)
def test_misuse_gets_one_line(name: str) -> None:
    attempt, said = MISUSES[name]
    with pytest.raises(BadInput, match=said) as caught:
        attempt()
    assert "\n" not in str(caught.value)


def test_a_log_shows_nobody() -> None:
    named = Interactions(torch.tensor([0]), torch.tensor([0]), 1, 1, ["ann@example.org"], ["Alien"])
    assert repr(named) == "<Interactions log: 1 users, 1 items, 1 events>"
    assert repr(WORLD).endswith("attributes: gender, age, region, age in years>")


def test_a_result_is_short_where_it_is_shown() -> None:
    found = result("laplace", 0)
    assert len(repr(found)) < 500
    assert repr(found).startswith("<Result of model: ")
    shown = found._repr_html_()
    assert len(shown) < 2_000
    assert "laplace" in shown.casefold()
    assert found.utility.select in shown
