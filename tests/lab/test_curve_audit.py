"""Attacks while a model is trained: a curve beside the others, by which nothing is decided."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from veilrec.base.plan import Plan
from veilrec.datasets.synthetic import synthetic
from veilrec.defence import Defence
from veilrec.defences.none import Undefended
from veilrec.errors import BadInput, Interrupted
from veilrec.experiment import Experiment
from veilrec.lab.curve_audit import Along, unattacked
from veilrec.lab.presets import PRESETS
from veilrec.lab.threat import Threat
from veilrec.models.fedmf import FedMF
from veilrec.protocol import State
from veilrec.result import Result

THREAT = Threat(
    attributes=("gender",),
    known=0.3,
    also=("fedau2",),
    own=False,
    along="fedau2",
    by_part=False,
    membership=False,
    resamples=100,
    permutations=99,
)


HEARD: list[str] = []


@dataclass(frozen=True)
class Nosy(Defence):
    """Writes down all that it is told of the rounds so far."""

    def stop(self, state: State, history: list[dict[str, float]]) -> bool:
        assert len(history) == state.round
        HEARD.extend(name for row in history for name in row)
        return False


def experiment(along: str = "fedau2", defence: Defence | None = None, rounds: int = 4) -> Experiment:
    return Experiment(
        synthetic(users=60, items=40),
        partial(FedMF, dim=4, scale=1.0),
        defence=defence or Undefended(),
        plan=Plan(rounds=rounds, evaluate_every=2, lr=1.0, workers=1),
        threat=replace(THREAT, along=along),
    )


@pytest.fixture(scope="module")
def attacked() -> Result:
    HEARD.clear()
    return experiment(defence=Nosy()).run()


def test_the_curve_has_a_point_at_every_look(attacked: Result) -> None:
    curve = attacked.curves["bacc@gender"]
    assert [value is not None for value in curve] == [False, True] * 2
    assert all(0 < value < 1 for value in curve if value is not None)
    assert curve[1] != curve[3]  # it is that round's state that is attacked


def test_a_defence_is_not_told(attacked: Result) -> None:
    assert attacked.curves["bacc@gender"]
    assert "hr@10" in HEARD
    assert not [name for name in HEARD if "bacc" in name]


@pytest.mark.slow
def test_the_last_point_is_what_the_audit_of_that_state_finds() -> None:
    one = experiment(rounds=2)
    short = replace(PRESETS["fedau2"].threat, attributes=("gender",), repeats=5)
    found = Along.of(one.data, THREAT, one.seed)
    assert (found.audit.threat.repeats, found.audit.threat.known) == (5, short.known)
    result = one.run()
    assert result.selected == 2
    fed = one.federation()
    assert found.look(fed, fed.run(fed.start()))["bacc@gender"] == result.curves["bacc@gender"][1]


@pytest.mark.slow
def test_nothing_else_changes(attacked: Result) -> None:
    plain = experiment(along="").run()
    assert "bacc@gender" not in plain.curves
    for name in ("utility", "selected", "rounds", "stopped", "traffic", "ledger", "utility_replicates"):
        assert getattr(plain, name) == getattr(attacked, name)
    assert plain.curves == {name: c for name, c in attacked.curves.items() if name != "bacc@gender"}
    first, second = (run.privacy["fedau2"]["attributes"]["gender"]["attackers"] for run in (plain, attacked))
    assert [one["scores"] for one in first] == [one["scores"] for one in second]


def stopped(out: Path, defence: Defence) -> None:
    """A run that somebody ends in its fourth round."""

    def progress(phase: str, done: int, total: int, row: Any) -> None:
        if phase == "rounds" and done == 3:
            raise Interrupted("enough")

    with pytest.raises(Interrupted):
        experiment(defence=defence).run(out, progress=progress, checkpoint_seconds=0)


@pytest.mark.slow
def test_a_run_that_was_stopped_has_the_same_curve(attacked: Result, tmp_path: Path) -> None:
    stopped(tmp_path / "run", Nosy())
    assert (tmp_path / "run" / "checkpoint" / "round-000002.json").exists()
    result = experiment(defence=Nosy()).run(tmp_path / "run", resume=True)
    assert result.curves == attacked.curves
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [row.get("bacc@gender") for row in rows] == attacked.curves["bacc@gender"]


def test_rows_without_what_attackers_found() -> None:
    rows: list[dict[str, Any]] = [{"round": 1, "hr@10": 0.5, "bacc@gender": 0.6}, {"round": 2}]
    assert unattacked(rows) == [{"round": 1, "hr@10": 0.5}, {"round": 2}]
    assert "bacc@gender" in rows[0]


@pytest.mark.parametrize(
    ("along", "said"),
    [("fedau", r'threat\.along: no protocol "fedau"'), ("fedau2-gradients", "can say nothing about gender")],
)
def test_what_cannot_be_run_is_refused_before_training(along: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=said):
        experiment(along).run(tmp_path / "run")
    assert not (tmp_path / "run" / "metrics.jsonl").exists()
