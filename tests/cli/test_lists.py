"""``veilrec list`` and ``veilrec config show``."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from tests.cli.commands import call
from veilrec.recipe import catalogue

RECIPE = '[model]\nname = "FedNCF"\n[plan]\nrounds = 7\n'


def test_everything_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    answer = call(capsys, "list")
    assert answer.code == 0
    for kind in catalogue.KINDS:
        assert f"{kind}, as [" in answer.out
        for name in catalogue.entries(kind):
            assert name in answer.out
    assert "Secure Federated Matrix Factorization" in answer.out
    assert "sends" in answer.out
    assert "dim = 64 (from 1 to 65,536)" in " ".join(answer.out.split())


@pytest.mark.parametrize("kind", catalogue.KINDS)
def test_one_kind_is_listed(capsys: pytest.CaptureFixture[str], kind: str) -> None:
    found = json.loads(call(capsys, "list", kind, "--json").out)
    assert [entry["name"] for entry in found] == list(catalogue.entries(kind))
    assert all(entry["summary"] for entry in found)
    assert call(capsys, "list", kind).code == 0


def test_options_come_with_defaults_and_meanings(capsys: pytest.CaptureFixture[str]) -> None:
    models = {entry["name"]: entry for entry in json.loads(call(capsys, "list", "models", "--json").out)}
    assert models["FedMF"]["options"]["dim"] == {
        "allowed": "a whole number from 1 to 65,536",
        "bounds": "from 1 to 65,536",
        "default": 64,
        "required": False,
        "meaning": "Width of the vectors.",
    }
    assert models["FedNCF"]["options"]["head"]["default"] == [64, 32]
    assert "Chai et al." in models["FedMF"]["paper"]
    assert models["FedMF"]["python"] == "veilrec.models.fedmf.FedMF"


def test_a_recipe_is_shown_with_origins(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(RECIPE)
    answer = call(capsys, "config", "show", path, "--set", "plan.batch=9", "--seed", "3")
    assert answer.code == 0
    lines = {line.split(" = ")[0]: line for line in answer.out.splitlines() if " = " in line}
    assert lines["rounds"].endswith("# mine.toml")
    assert lines["batch"].endswith("# --set")
    assert lines["seed"].endswith(("# command line", "# default"))
    assert lines["epochs"].endswith("# default")
    values = tomllib.loads(answer.out)
    assert values["seed"] == 3
    again = json.loads(
        call(capsys, "config", "show", path, "--set", "plan.batch=9", "--seed", "3", "--json").out
    )
    assert again["values"] == values
    assert again["origins"]["plan.batch"] == "--set"
    assert [p.name for p in tmp_path.iterdir()] == ["mine.toml"]


def test_what_is_shown_is_a_recipe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.toml").write_text(RECIPE)
    shown = call(capsys, "config", "show", tmp_path / "a.toml").out
    (tmp_path / "b.toml").write_text(shown)
    assert tomllib.loads(call(capsys, "config", "show", tmp_path / "b.toml").out) == tomllib.loads(shown)


@pytest.mark.parametrize(
    "path", sorted((Path(__file__).parents[2] / "recipes").glob("*.toml")), ids=lambda p: p.name
)
def test_our_recipes_are_sound(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = call(capsys, "config", "show", path)
    assert answer.code == 0, answer.err
