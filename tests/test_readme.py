"""What the README prints for people to copy does what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from veilrec import Recipe

README = (Path(__file__).parents[1] / "README.md").read_text()


@pytest.mark.slow
def test_the_sentence_in_python_runs_and_beats_popularity(capsys: pytest.CaptureFixture[str]) -> None:
    code = re.search(r"```python\n(.*?)```", README, re.DOTALL)
    assert code is not None
    exec(compile(code[1], "README.md", "exec"), {})
    printed = re.fullmatch(r"HR@10 (0\.\d+); popularity (0\.\d+)\n", capsys.readouterr().out)
    assert printed is not None
    assert float(printed[1]) > float(printed[2]) + 0.05


def recipe_in_readme(tmp_path: Path) -> Recipe:
    text = re.search(r"```toml\n(.*?)```", README, re.DOTALL)
    assert text is not None
    (tmp_path / "recipe.toml").write_text(text[1])
    return Recipe.load(tmp_path / "recipe.toml")


def test_the_recipe_in_the_readme_is_one(tmp_path: Path) -> None:
    recipe = recipe_in_readme(tmp_path)
    assert recipe.values["plan"]["rounds"] == 60
    assert recipe.origins["plan.rounds"].endswith("recipe.toml")
    assert recipe.origins["plan.negatives"] == "default"
    assert recipe.experiment().federation().start().round == 0


@pytest.mark.slow
def test_the_recipe_in_the_readme_beats_popularity(tmp_path: Path) -> None:
    utility = recipe_in_readme(tmp_path).experiment().run().utility
    assert utility.test["ndcg@10"] > 1.5 * utility.floor["ndcg@10"]
