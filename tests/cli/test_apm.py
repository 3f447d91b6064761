"""``veilrec apm`` and protocols with a share of known users, on a small run."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from tests.cli.commands import call, tree
from veilrec.cli import main

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


def test_the_allocation_of_either_reading(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = said(capsys, "apm", runs / "plain")
    assert "mlp1 mlp1 1 40 0.0250 mlp2 mlp2 2 50 0.0200 item item 3 60 0.0167" in out
    assert "order section-5.7" in out
    out = said(capsys, "apm", runs / "plain", "--order", "equation-11")
    assert "item item 1 40 0.0250 mlp1 mlp1 2 50 0.0200 mlp2 mlp2 3 60 0.0167" in out
    out = said(capsys, "apm", runs / "noisy", "--order", "item,mlp1,mlp2", "--clip", "0.1", "--high", "50")
    assert "item item 0 30 0.0067 mlp1 mlp1 1 40 0.0050 mlp2 mlp2 2 50 0.0040" in out
    out = said(capsys, "apm", runs / "plain", "--order", "item,mlp1,mlp2", "--low", "10")
    assert "item item 0 10 0.1000 mlp1 mlp1 1 15 0.0667 mlp2 mlp2 2 20 0.0500" in out, "high follows low"


def test_the_order_is_measured_over_seeds_and_can_be_pasted(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = tree(runs / "plain")
    answer = call(capsys, "apm", runs / "plain", "--calibrate", *GENDER)
    assert answer.code == 0, answer.err
    flat = " ".join(answer.out.split())
    for expected in ("gender (AUC)", "score [95 %]", "l measured", "l by section-5.7", "2 runs"):
        assert expected in flat, expected
    pasted = tomllib.loads(answer.out.partition("For a recipe:")[2])["defence"][0]
    assert pasted["name"] == "APM"
    assert sorted(pasted["order"]) == ["item", "mlp1", "mlp2"]
    found = json.loads(call(capsys, "apm", runs / "plain", "--calibrate", "--json", *GENDER).out)
    assert found["order"] == pasted["order"]
    assert len(found["runs"]) == 2
    assert len(found["differences"]) == 2
    for first, second in found["unsure"]:
        assert f"{first} and {second} cannot be told apart" in flat
    scores = [one["score"]["value"] for one in found["components"]]
    assert scores == sorted(scores, reverse=True)
    assert {who for one in found["components"] for run in one["attackers"] for who in run.values()} <= {
        "logistic",
        "mlp-apm",
    }
    assert [one["epsilon"] for one in found["allocation"]] == [30.0, 45.0, 60.0]
    assert tree(runs / "plain") == before


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["noisy", "--calibrate"], "is defended (on_upload)"),
        (["silos", "--calibrate"], "is of silos"),
        (["plain", "noisy"], "RUN: several kinds of runs"),
        (["plain", "--order", "section5.7"], '--order: no order or component "section5.7"; did you mean'),
        (["plain", "--component", "item=mlp3"], '--component: "mlp3" for part "item" is no component'),
        (["plain", "--order", "user,item"], 'defence.order: "mlp1" is missing'),
        (["plain", "--clip", "-1"], "defence.clip"),
        (["plain", "--calibrate", "--known", "2"], "threat.known"),
        (["plain", "--attribute", "gender"], "--attribute: nothing is attacked without --calibrate"),
        (["plain", "--known", "0.2"], "--known: nothing is attacked without --calibrate; add --calibrate"),
        (["plain", "--calibrate", "--attribute", "gendr"], 'did you mean "gender"'),
        (["nowhere"], "nowhere"),
    ],
)
def test_what_cannot_be_done_is_told_in_one_line(
    runs: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], error: str
) -> None:
    named = [
        str(runs / word) if not word.startswith("-") and k < 2 else word for k, word in enumerate(arguments)
    ]
    answer = call(capsys, "apm", "--quiet", *named)
    assert answer.code == 2
    assert error in answer.err
    assert answer.err.count("\n") == 1


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


def test_a_recipe_may_ask_for_a_share(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    threat = ["--set", 'threat.attributes=["gender"]', "--set", 'threat.also=["apm@0.4"]']
    quick = ["--set", 'attack=[{name="attribute", classifiers=["lda"]}]', "--seed", "0", "--quiet"]
    recipe, place = runs / "small.toml", runs / "shared"
    assert call(capsys, "run", recipe, "--out", place, *threat, *quick).code == 0
    found = json.loads((place / "result.json").read_text())["privacy"]
    assert found["apm@0.4"]["threat"]["known"] == 0.4
    wrong = ["--set", 'threat.also=["apm@4"]', *quick]
    answer = call(capsys, "run", recipe, "--out", runs / "wrong", *wrong)
    assert answer.code == 2
    assert "is no share of the users" in answer.err
