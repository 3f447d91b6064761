"""What a run needs is told before it starts, and what cannot fit is refused with the setting to lower."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from veilrec.attacks.attribute import AttributeInference
from veilrec.base.limits.machine import Room, held
from veilrec.base.plan import Plan
from veilrec.datasets.synthetic import synthetic
from veilrec.defences.laplace import Laplace
from veilrec.engine.evaluation import Evaluation
from veilrec.errors import BadInput
from veilrec.experiment import Experiment
from veilrec.lab.threat import Threat
from veilrec.models.fedmf import FedMF
from veilrec.models.fedncf import FedNCF
from veilrec.models.fedrap import FedRAP
from veilrec.runs.needs import estimate
from veilrec.runs.needs.phases import Needs

WORLD = synthetic(users=60, items=80)
SMALL = partial(FedMF, dim=4)
THREATS = Threat(attributes=("gender",), by_part=False, membership=False, resamples=100_000)
THREAT = Threat(attributes=("gender",), by_part=False, membership=False)
ATTACKS = {"updates": AttributeInference("updates", classifiers=("logistic", "mlp"))}


def experiment(model: Callable[..., Any] = SMALL, plan: Plan | None = None, **rest: Any) -> Experiment:
    return Experiment(WORLD, model, plan=plan or Plan(rounds=2), **rest)


def crowd(monkeypatch: pytest.MonkeyPatch, megabytes: int) -> None:
    """Make this a machine on which so much is free."""
    monkeypatch.setattr(estimate, "room", lambda: Room(megabytes << 20, "the memory that is free"))
    monkeypatch.setattr(estimate, "held", lambda: 250 << 20)  # whatever other tests have left to give back


LARGE = partial(FedNCF, dim=4096, head=(4096,))
BEYOND: dict[str, tuple[int, dict[str, Any]]] = {  # megabytes that are free, and what does not fit into them
    "plan.negatives": (4, {"plan": Plan(rounds=1, negatives=10_000, batch=4096)}),
    "plan.epochs": (4, {"plan": Plan(rounds=1, negatives=5, epochs=10_000)}),
    "plan.rounds": (99, {"plan": Plan(rounds=1_000_000)}),
    "model.dim": (99, {"model": LARGE}),
    "plan.chunk": (
        4,
        {"model": partial(FedNCF, dim=128, head=(64,)), "plan": Plan(rounds=1, chunk=60, negatives=20)},
    ),
    "plan.keeps": (
        2,
        {"model": partial(FedMF, dim=8192), "plan": Plan(rounds=9, keeps="memory", optimiser="adam")},
    ),
    "threat.repeats": (9, {"threat": Threat(repeats=1000, folds=20), "attacks": ATTACKS}),
    "threat.resamples": (20, {"threat": THREATS, "attacks": ATTACKS}),
}


@pytest.mark.parametrize("setting", BEYOND)
def test_what_cannot_fit_is_refused_with_the_setting_to_lower(
    monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    megabytes, changes = BEYOND[setting]
    crowd(monkeypatch, megabytes)
    with pytest.raises(BadInput) as caught:
        experiment(**changes).checked()
    told = str(caught.value)
    assert told.startswith(f"{setting}: "), told
    assert "of memory, and there are " in told
    assert "; lower it" in told or 'set it to "disk"' in told


def test_it_is_refused_before_anything_is_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    crowd(monkeypatch, BEYOND["model.dim"][0])
    with pytest.raises(BadInput, match=r"^model\.dim: "):
        experiment(LARGE).run(tmp_path / "run")
    assert not list(tmp_path.iterdir())


def test_candidates_that_cannot_fit_are_refused_before_they_are_drawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    crowd(monkeypatch, 0)
    monkeypatch.setattr(estimate, "held", lambda: 0)
    with pytest.raises(BadInput, match=r"^evaluation\.candidates: .* lower it"):
        experiment(evaluation=Evaluation(candidates=40), plan=Plan(rounds=1, negatives=0)).checked()


def test_what_was_lowered_as_told_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    crowd(monkeypatch, 9)
    wide = partial(FedNCF, dim=64, head=(64,))
    with pytest.raises(BadInput, match=r"^plan\.chunk: ") as caught:
        experiment(wide, Plan(rounds=1, chunk=60, negatives=20, workers=1)).checked()
    enough = int(str(caught.value).rsplit(" to ", 1)[1])
    assert 1 <= enough < 60
    experiment(wide, Plan(rounds=1, chunk=enough, negatives=20, workers=1)).checked()


def needs(**rest: Any) -> Needs:
    return experiment(**rest).needs()


def test_phases_are_told_part_by_part() -> None:
    told = needs(threat=THREAT, attacks=ATTACKS)
    names = ["reading the data", "training", "the server's step", "ranking", "probe"]
    assert [phase.name for phase in told.phases] == [*names, "readings for custom", "attack by custom"]
    assert all(sum(part.bytes for part in phase.parts) == phase.bytes > 0 for phase in told.phases)
    assert told.peak.bytes == max(phase.bytes for phase in told.phases)
    plain = told.told()
    assert plain["peak"] == {"phase": told.peak.name, "bytes": told.peak.bytes}
    assert (plain["clients"], plain["items"], plain["rounds"], plain["cohort"]) == (60, 80, 2, 60)
    assert sum(plain["disk"]["parts"].values()) == plain["disk"]["bytes"] > 0


def grows(**changes: Any) -> int:
    """By how much a run needs more than one of the small model, of what is still to come."""
    more, few = (max(phase.bytes for phase in told.ahead) for told in (needs(**changes), needs()))
    return more - few


def test_what_is_larger_needs_more() -> None:
    assert grows(model=partial(FedMF, dim=2048)) > 10 << 20
    assert grows(plan=Plan(rounds=2, negatives=400, batch=4096)) > 1 << 20
    assert grows(plan=Plan(rounds=500_000)) > 500 << 20
    assert grows(threat=THREAT, attacks=ATTACKS) > 0


def test_what_devices_keep_counts_where_it_lies() -> None:
    rap = {"model": partial(FedRAP, dim=512)}
    memory, disk = (needs(**rap, plan=Plan(rounds=50, keeps=keeps)) for keeps in ("memory", "disk"))  # type: ignore[arg-type]
    assert memory.phases[1].bytes - disk.phases[1].bytes > 60 * 40 * 512 * 4
    assert {part.name: part.bytes for part in memory.disk} == {part.name: part.bytes for part in disk.disk}


def test_a_trial_that_fails_is_told_and_stops_nobody() -> None:
    wild = {"plan": Plan(rounds=1, lr=1e30, epochs=3, batch=4)}
    told = needs(**wild)
    assert "a trial failed in training" in told.notes[0]
    assert told.peak.bytes >= held() // 2
    experiment(**wild).checked()


def test_noise_that_is_compiled_counts() -> None:
    pytest.importorskip("numba")
    parts = {part.name for phase in needs(defence=Laplace()).phases for part in phase.parts}
    assert any("numba" in name for name in parts) or "numba" in __import__("sys").modules


def test_a_world_that_cannot_fit_is_refused_before_it_is_made() -> None:
    with pytest.raises(
        BadInput, match=r"^data\.users: the world needs about [\d,]+ MB of memory, .*lower it"
    ):
        synthetic(users=10_000_000, items=1000)
    with pytest.raises(BadInput, match=r"^data\.items: the world needs"):
        synthetic(items=10_000_000, tastes=20)
    with pytest.raises(BadInput, match=r"^data\.tastes: the world needs"):
        synthetic(items=10_000_000, tastes=1000)
