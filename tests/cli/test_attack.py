"""``veilrec attack``: components one by one, and protocols with a share of known users, on a small run."""

from __future__ import annotations

import json
import shutil
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands import call, of_before, tree
from tests.results import audit
from tests.together import together
from veilrec.cli import attack, main
from veilrec.result import Result

RECIPE = """
seeds = [0, 1]

[data]
name = "synthetic"
users = 60
items = 40

[model]
name = "FedNCF"
dim = 4
head = [4]

[plan]
rounds = 2

[evaluation]
candidates = 9
ks = [5, 10]
"""
GENDER = ("--attribute", "gender", "--quiet")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seeds without a defence, one with noise, one of silos; all finished."""
    place = tmp_path_factory.mktemp("apm")
    (place / "small.toml").write_text(RECIPE)
    settings = {
        "plain": [],
        "noisy": ["--set", 'defence=[{name="laplace", scale=0.1}]', "--seed", "0"],
        "silos": ["--set", "data.silos=6", "--seed", "0"],
    }
    for name, more in settings.items():
        assert main(["run", str(place / "small.toml"), "--out", str(place / name), "--quiet", *more]) == 0
    return place


def said(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    answer = call(capsys, *arguments)
    assert answer.code == 0, answer.err
    return " ".join(answer.out.split())


@pytest.mark.slow  # in tests/lab: test_components, test_presets
def test_each_component_is_attacked_alone_and_what_is_not_uploaded_left_out(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = tree(runs / "plain")
    out = said(capsys, "attack", runs / "plain", "--preset", "apm-components", "--no-save", *GENDER)
    for part in ("item", "mlp1", "mlp2"):
        for learner in ("logistic", "mlp-apm"):
            assert out.count(f"updates of {part}/{learner} 0.") == 2, "one row in each of two seeds"
    assert "updates of user" not in out
    assert tree(runs / "plain") == before


def test_the_components_of_silos_are_refused(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = call(capsys, "attack", runs / "silos", "--preset", "apm-components", *GENDER)
    assert answer.code == 2
    assert "updates of a silo are those of all its users together" in answer.err


@pytest.mark.slow  # in tests/lab: a share of known users
def test_an_attack_with_another_share_is_kept_under_its_name(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = runs / "noisy"
    out = said(capsys, "attack", place, "--preset", "apm@0.3", *GENDER)
    assert "Audit apm@0.3" in out
    assert "30 % of the users known" in out
    found = json.loads((place / "result.json").read_text())["privacy"]["apm@0.3"]
    assert found["threat"]["known"] == 0.3
    told = found["attributes"]["gender"]
    assert [one["classifier"] for one in told["attackers"]] == ["mlp-apm"]
    assert {"item", "mlp1", "mlp2", "mlp"} <= {part["part"] for part in told["parts"]}
    assert {part["classifier"] for part in told["parts"]} == {"mlp-apm"}
    assert set(told["parts"][0]["macro_f1"]) == {"value", "low", "high"}
    answer = call(capsys, "attack", place, "--preset", "apm@3")
    assert answer.code == 2
    assert '--preset: "3" in "apm@3" is no share of the users' in answer.err


def test_an_attack_that_has_nothing_to_look_at_is_refused(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And does not end well with an empty table: the run has no adversary."""
    before = (runs / "noisy" / "result.json").read_bytes()
    answer = call(capsys, "attack", runs / "noisy", "--preset", "fedau2-gradients", *GENDER)
    assert answer.code == 2
    assert "attack DLG: can say nothing about gender; check its part and its attribute" in answer.err
    assert (runs / "noisy" / "result.json").read_bytes() == before


@pytest.mark.filterwarnings("ignore::veilrec.runs.integrity.manifest.Unverified")
@pytest.mark.parametrize("before_manifests", [False, True])
def test_two_attacks_at_once_keep_what_both_have_found(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before_manifests: bool
) -> None:
    """Each looks at the run before the other one has written."""
    ready, place = threading.Barrier(2, timeout=30), tmp_path / "run"
    shutil.copytree(runs / "noisy", place)
    if before_manifests:
        of_before(place)
    before = Result.load(place)

    class Stub:
        def __init__(self, data: Any, audits: list[str], seed: int) -> None:
            self.names = audits

        def check(self, federation: Any) -> None:
            pass

        def examine(self, *given: Any, **options: Any) -> dict[str, Any]:
            ready.wait()
            return {name: audit({}) for name in self.names}

    monkeypatch.setattr("veilrec.lab.examiner.Examiner", Stub)
    options: Any = {"save": True, "quiet": True}
    source = (None, None, "cpu")
    together(*(partial(attack._one, place, [name], 0, source, **options) for name in ("one", "two")))
    after = Result.load(place)
    assert {"one", "two", *before.privacy} == set(after.privacy)
    assert replace(after, privacy=before.privacy) == before


@pytest.mark.slow
def test_a_recipe_may_ask_for_a_share(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    threat = ["--set", 'threat.attributes=["gender"]', "--set", 'threat.also=["apm@0.4"]']
    threat += ["--set", "threat.resamples=100", "--set", "threat.permutations=99"]
    quick = ["--set", 'attack=[{name="attribute", classifiers=["lda"]}]', "--seed", "0", "--quiet"]
    recipe, place = runs / "small.toml", runs / "shared"
    assert call(capsys, "run", recipe, "--out", place, *threat, *quick).code == 0
    found = json.loads((place / "result.json").read_text())["privacy"]
    assert found["apm@0.4"]["threat"]["known"] == 0.4
    wrong = ["--set", 'threat.also=["apm@4"]', *quick]
    answer = call(capsys, "run", recipe, "--out", runs / "wrong", *wrong)
    assert answer.code == 2
    assert "is no share of the users" in answer.err


@pytest.mark.slow  # beside tests/lab/test_controls.py
def test_controls_and_kept_uploads_are_attacked_on_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "small.toml").write_text(RECIPE)
    kept = [
        "--set",
        "record.last=4",
        "--set",
        "plan.rounds=4",
        "--set",
        'model.user="exposed"',
        "--seed",
        "0",
    ]
    assert main(["run", str(tmp_path / "small.toml"), "--out", str(tmp_path / "run"), "--quiet", *kept]) == 0
    more = ("--reads", "embeddings", "--classifier", "lda", "--controls", "--name", "own")
    out = said(capsys, "attack", tmp_path / "run", *more, *GENDER)
    assert "planted signal a leak lda" in out
    assert "gender by kept uploads of each user: one AUC" in out
    found = Result.load(tmp_path / "run").privacy["own"]
    assert len(found["controls"]) == 6
    assert [one["uploads"] for one in found["uploads"][0]["points"]][-1] <= 4
