"""``veilrec list``, and the recipes that come with it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.commands import call
from veilrec.recipe import Recipe, catalogue


def test_everything_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    answer = call(capsys, "list")
    assert answer.code == 0
    for kind in catalogue.KINDS:
        assert f"{kind}, as [" in answer.out
        for name in catalogue.entries(kind):
            assert name in answer.out
    assert "Secure Federated Matrix Factorization" in answer.out
    assert "sends" in answer.out


@pytest.mark.parametrize("kind", catalogue.KINDS)
def test_one_kind_is_listed(capsys: pytest.CaptureFixture[str], kind: str) -> None:
    found = json.loads(call(capsys, "list", kind, "--json").out)
    assert [entry["name"] for entry in found] == list(catalogue.entries(kind))
    assert all(entry["summary"] for entry in found)
    assert call(capsys, "list", kind).code == 0


def test_options_come_with_defaults_and_meanings(capsys: pytest.CaptureFixture[str]) -> None:
    models = {entry["name"]: entry for entry in json.loads(call(capsys, "list", "models", "--json").out)}
    assert models["FedMF"]["options"]["dim"] == {
        "allowed": "a whole number",
        "default": 64,
        "required": False,
        "meaning": "Width of the vectors.",
    }
    assert models["FedNCF"]["options"]["head"]["default"] == [64, 32]
    assert "Chai et al." in models["FedMF"]["paper"]
    assert models["FedMF"]["python"] == "veilrec.models.fedmf.FedMF"


@pytest.mark.parametrize(
    "path", sorted((Path(__file__).parents[2] / "recipes").glob("*.toml")), ids=lambda p: p.name
)
def test_our_recipes_are_sound(path: Path) -> None:
    assert Recipe.load(path).cells()
