"""The guide's blocks: every piece of a recipe is one, and its commands run, on the data that it shows."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.test_readme import SHELL, run, said_by
from veilrec import Recipe

ROOT = Path(__file__).parents[1]
GUIDE = (ROOT / "docs" / "guide.md").read_text(encoding="utf-8")
PIECES = re.findall(r"```toml\n(.*?)```", GUIDE, re.DOTALL)
FIRST = tomllib.loads(PIECES[0])
NOT_HERE = (  # a paper, which has a test; data that are imported first; parts that a paper's defence adds
    *("[tables.", 'name = "mine"', "user_re", "adversary_"),
)


def merged(first: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """A recipe with a piece of another: tables join, all else is replaced."""
    both = {name: value for name, value in first.items() if name not in more}
    for name, value in more.items():
        join = isinstance(value, dict) and isinstance(first.get(name), dict)
        both[name] = {**first[name], **value} if join else value
    return both


@pytest.mark.parametrize("piece", [one for one in PIECES if not any(word in one for word in NOT_HERE)])
def test_every_piece_of_a_recipe_is_one(piece: str) -> None:
    more = tomllib.loads(piece)
    first = {name: value for name, value in FIRST.items() if name != "model" or "model" not in more}
    sweep = more.pop("sweep", None)
    recipe = Recipe.of(merged(first, more), "guide")
    assert set(more) <= set(recipe.values)
    assert sweep is None or all(key.startswith("defence.0.") for key in sweep)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the guide's recipes and its log."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "recipe.toml").write_text(PIECES[0], encoding="utf-8")
    noise = next(one for one in PIECES if 'also = ["pard"]' in one)
    threat = noise.split("[[defence]]")[0]
    (tmp_path / "plain.toml").write_text(f"{PIECES[0]}\n{threat}", encoding="utf-8")
    (tmp_path / "noisy.toml").write_text(f"{PIECES[0]}\n{noise}", encoding="utf-8")
    log = next(text for text in re.findall(r"```text\n(.*?)```", GUIDE, re.DOTALL) if "user,item" in text)
    for name, column in (("log.csv", 0), ("users.csv", 1)):
        rows = [re.split(r"\s{3,}", line) for line in log.splitlines()]
        text = "\n".join(row[column] for row in rows if len(row) > column)
        (tmp_path / name).write_text(f"{text}\n", encoding="utf-8")
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("first", ["veilrec run recipe.toml --out runs/first", "veilrec data import log.csv"])
def test_its_commands_run_in_order(place: Path, first: str) -> None:
    block = next(text for text in SHELL.findall(GUIDE) if text.startswith(first))
    for command, _ in said_by(block):
        assert run(command, place) or "run" in command


@pytest.mark.slow
def test_a_noisy_run_and_a_plain_one_are_compared(place: Path) -> None:
    block = next(text for text in SHELL.findall(GUIDE) if text.startswith("veilrec run noisy.toml"))
    told = {command: run(command, place) for command, _ in said_by(block)}
    assert "Laplace" in told["veilrec compare runs/noisy runs/plain"]
    assert (place / "report.html").stat().st_size < 1_000_000
