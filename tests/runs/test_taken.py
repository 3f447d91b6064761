"""Training taken over from a finished run: the bits of doing it again, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.worlds import checkerboard, files_of
from veilrec.attacks.attribute import AttributeInference
from veilrec.base.plan import Plan
from veilrec.erasers.lethe import Lethe
from veilrec.errors import BadInput
from veilrec.experiment import Experiment
from veilrec.interactions import Interactions
from veilrec.lab.threat import Threat
from veilrec.models.fedmf import FedMF
from veilrec.reproduction.cells import PaperCell
from veilrec.reproduction.running import lighten
from veilrec.result import Result
from veilrec.wire.transcript import Record

THREAT = Threat(attributes=("gender",), by_part=False, membership=False, resamples=100, permutations=99)
ATTACK = {"AttributeInference": AttributeInference("profile", classifiers=("logistic",))}
LETHE = (Lethe(("gender",), lots="keyed"),)
TIMED = ("timing", "seconds", "rate", "seconds_a_user")


def experiment(data: Interactions | None = None, **changes: Any) -> Experiment:
    model = partial(FedMF, dim=4, user="exposed")
    plan = Plan(rounds=3, evaluate_every=1, lr=1.0, workers=1, cohort=0.6)
    base = Experiment(data or checkerboard(), model, plan=plan, threat=THREAT, attacks=ATTACK)
    return replace(base, **changes)


def untimed(value: Any) -> Any:
    """A result without what a clock said."""
    if isinstance(value, Mapping):
        return {name: untimed(one) for name, one in value.items() if name not in TIMED}
    return [untimed(one) for one in value] if isinstance(value, list | tuple) else value


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "plain"
    experiment().run(folder)
    return folder


def test_an_eraser_on_a_finished_run_gives_the_bits_of_a_run_with_it(source: Path, tmp_path: Path) -> None:
    erased = experiment(erasers=LETHE)
    alone, taken = erased.run(tmp_path / "alone"), erased.run(tmp_path / "taken", trained=source)
    assert untimed(asdict(taken)) == untimed(asdict(alone))
    assert taken.utility != Result.load(source).utility
    one, other = (files_of(tmp_path / name) for name in ("alone", "taken"))
    assert one == other
    assert "transcript.safetensors" in one
    again = erased.run(tmp_path / "taken", resume=True, trained=source)
    assert again == taken


def test_a_run_that_was_killed_takes_over_from_the_start(source: Path, tmp_path: Path) -> None:
    broken = experiment(erasers=LETHE)
    whole = broken.run(tmp_path / "whole", trained=source)
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "recipe.toml").write_bytes((tmp_path / "whole" / "recipe.toml").read_bytes())
    (tmp_path / "half" / "metrics.jsonl").write_text('{"round": 1}\n', encoding="utf-8")
    assert untimed(asdict(broken.run(tmp_path / "half", resume=True, trained=source))) == untimed(
        asdict(whole)
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"plan": Plan(rounds=4, evaluate_every=1, lr=1.0, workers=1, cohort=0.6)},
            "plan.rounds was 3, is 4",
        ),
        ({"seed": 1}, "seed was 0, is 1"),
        ({"record": Record(last=2)}, "record.last was 0, is 2"),
        ({"threat": replace(THREAT, along="aegis")}, 'along was "", is "aegis"'),
    ],
)
def test_only_erasers_and_attacks_may_differ(
    source: Path, tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(BadInput, match=said):
        experiment(**changes).run(tmp_path / "run", trained=source)
    assert not (tmp_path / "run").exists()


def test_a_run_that_cannot_be_taken_over_is_refused(source: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="not the data of this run"):
        experiment(checkerboard(26)).run(tmp_path / "run", trained=source)
    erased = tmp_path / "erased"
    experiment(erasers=LETHE).run(erased, trained=source)
    with pytest.raises(BadInput, match="was erased already"):
        experiment(erasers=LETHE).run(tmp_path / "run", trained=erased)
    light = tmp_path / "light"
    experiment().run(light)
    lighten(PaperCell("", "", "", 0, Path(), (), light))
    with pytest.raises(BadInput, match=r"is without model\.safetensors"):
        experiment(erasers=LETHE).run(tmp_path / "run", trained=light)
    bare = tmp_path / "bare"
    experiment(threat=None, attacks={}).run(bare)
    with pytest.raises(BadInput, match="kept 0 rounds"):
        experiment(erasers=LETHE).run(tmp_path / "run", trained=bare)
