"""A budget is never exceeded, and what was spent survives whatever stops a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.privacy.test_ledger import Meddle, a_checkpoint_is_forgotten, fed_of
from veilrec.defence import Defence, chain
from veilrec.defences.gaussian import Gaussian
from veilrec.defences.laplace import Laplace
from veilrec.defences.none import Undefended
from veilrec.defences.pard import PARD
from veilrec.errors import BadInput
from veilrec.privacy.ledger import Ledger, check
from veilrec.rounds import Federation
from veilrec.runs.checkpoint import Checkpoints
from veilrec.runs.interrupt import Stop
from veilrec.runs.journal import Journal
from veilrec.runs.recorder import Recorder
from veilrec.runs.training import Training
from veilrec.wire.transcript import Record


def training(fed: Federation, folder: Path, until: int = 10**6) -> Training:
    """A training that breaks down after some rounds."""

    def progress(phase: str, done: int, total: int, row: Any) -> None:
        if phase == "clients" and len(made.rows) >= until:
            raise RuntimeError("somebody pulled the plug")

    schema = fed.protocol.schema(fed.model, dtype=fed.plan.dtype)
    made = Training(
        fed,
        Checkpoints(folder / "checkpoint", "mark"),
        Recorder(folder / "spool", Record(), schema),
        Journal(folder / "metrics.jsonl"),
        Journal(folder / "timing.jsonl"),
        Stop(1.0),
        progress,
        0.0,
    )
    return made


DEFENCES = {
    "touched": Laplace(),
    "all": Laplace(rows="all", epsilon=0.05),
    "gaussian": Gaussian(scale=3.0),
    "norm": Gaussian(scale=5.0, clip_by="norm", what="change"),
    "chain": chain(Laplace(), Gaussian(scale=4.0)),
}


@pytest.mark.parametrize("name", DEFENCES)
@pytest.mark.parametrize("share", [0.7, *(pytest.param(one, marks=pytest.mark.slow) for one in (0.999, 1.0))])
def test_training_stops_before_the_budget_is_exceeded(name: str, share: float, tmp_path: Path) -> None:
    """The budget is a share of what the run would spend: one round more would have been too much."""
    free = Ledger.of(fed_of(DEFENCES[name], rounds=5))
    levels = []
    fed = fed_of(DEFENCES[name], rounds=5)
    for _ in fed.rounds(fed.start(), watch=[free]):
        levels.append(float(max(spent.epsilon for spent in free.spent())))
    budget = share * levels[-1]
    made = training(fed_of(DEFENCES[name], rounds=5, budget=budget), tmp_path)
    last = made.run(made.begin())
    assert last.round == sum(level <= budget for level in levels)
    assert made.ledger.summary()["composed"]["epsilon"]["max"] <= budget
    assert made.reason == ("rounds" if share == 1.0 else "budget")
    assert made.ledger.summary()["budget"] == budget
    again = training(fed_of(DEFENCES[name], rounds=5, budget=budget), tmp_path)
    assert again.run(again.begin()).round == last.round
    assert (again.reason, again.ledger.summary()) == (made.reason, made.ledger.summary())


def test_exactly_the_budget_is_not_too_much(tmp_path: Path) -> None:
    """Three uploads of 100 coordinates at ε = 50.1 each are 15,030, in fractions if not in floats."""
    fed = fed_of(Laplace(rows="all", epsilon=50.1), cohort=1.0, rounds=9, budget=15030.0)
    made = training(fed, tmp_path)
    assert made.run(made.begin()).round == 3
    assert made.reason == "budget"


def test_a_budget_below_one_upload_is_refused_with_what_it_costs(tmp_path: Path) -> None:
    fed = fed_of(Laplace(rows="all", epsilon=50), budget=4999.0)
    with pytest.raises(
        BadInput, match=r"^plan\.budget: 4999 is less than one upload costs, ε = 5000; "
    ) as told:
        check(fed)
    assert told.value.code == 2
    with pytest.raises(BadInput, match=r"^plan\.budget: "):
        training(fed, tmp_path).begin()
    assert list(tmp_path.iterdir()) == []
    check(fed_of(Laplace(rows="all", epsilon=50), budget=5000.0))


@pytest.mark.parametrize(
    ("defence", "why"),
    [
        (Undefended(), "no defence declares"),
        (Laplace(scale=0.0), "no defence declares"),
        (Laplace(parts=("item",)), "without noise leaves user"),
        (chain(Laplace(), Meddle()), "Meddle changes uploads after the noise"),
        (chain(PARD(), Laplace()), "users who consent post pard.user, "),
    ],
)
def test_a_budget_that_bounds_nothing_is_refused(defence: Defence, why: str) -> None:
    with pytest.raises(BadInput, match=rf"^plan\.budget: no ε bounds an upload: {why}"):
        check(fed_of(defence, consent=0.5, budget=5.0))
    check(fed_of(defence, consent=0.5))


@pytest.mark.parametrize("budget", [-1.0, float("nan"), float("inf")])
def test_a_budget_is_a_number(budget: float) -> None:
    with pytest.raises(BadInput, match=r"^plan\.budget: "):
        fed_of(Laplace(), budget=budget)


# Checkpoints.


@pytest.mark.parametrize("name", DEFENCES)
def test_a_run_taken_up_again_has_the_same_ledger(name: str, tmp_path: Path) -> None:
    fed = fed_of(DEFENCES[name], rounds=5)
    whole = training(fed, tmp_path / "whole")
    (tmp_path / "whole").mkdir()
    whole.run(whole.begin())
    (tmp_path / "broken").mkdir()
    for until in (2, 3):
        broken = training(fed, tmp_path / "broken", until)
        with pytest.raises(RuntimeError, match="pulled the plug"):
            broken.run(broken.begin())
    resumed = training(fed, tmp_path / "broken")
    resumed.run(resumed.begin())
    assert resumed.ledger.summary() == whole.ledger.summary()
    assert all(torch.equal(a, b) for a, b in zip(state(resumed), state(whole), strict=True))
    assert int(resumed.ledger.uploads.sum()) == 5 * 12


def state(made: Training) -> list[torch.Tensor]:
    return list(made.ledger.state().values())


def test_an_undeclared_run_is_taken_up_again(tmp_path: Path) -> None:
    broken = training(fed_of(Undefended()), tmp_path, 2)
    with pytest.raises(RuntimeError, match="pulled the plug"):
        broken.run(broken.begin())
    resumed = training(fed_of(Undefended()), tmp_path)
    resumed.run(resumed.begin())
    assert int(resumed.ledger.uploads.sum()) == 4 * 12
    assert resumed.ledger.summary()["statement"] == "no formal guarantee"


# Planted bugs: each must be caught by a test above.


def test_a_lost_ledger_is_caught(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    a_checkpoint_is_forgotten(monkeypatch)
    with pytest.raises(AssertionError):
        test_a_run_taken_up_again_has_the_same_ledger("touched", tmp_path)


def test_a_budget_that_looks_back_is_caught(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Looking at what was spent instead of what the next round would cost stops one round too late."""
    monkeypatch.setattr(Ledger, "_after", lambda self, fed, round: self.spent())
    with pytest.raises(AssertionError):
        test_training_stops_before_the_budget_is_exceeded("touched", 0.999, tmp_path)
