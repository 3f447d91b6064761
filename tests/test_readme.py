"""What the README and the first pages print for people to copy runs, and prints what they show."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from veilrec import Recipe

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
INDEX = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
SHELL = re.compile(r"```(?:console|bash)\n(.*?)```", re.DOTALL)
ELSEWHERE = ("make ", "pip ")  # what a test of the package does not do, and data that it does not have


def fenced(text: str, language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", text, re.DOTALL)
    assert found is not None, language
    return found[1]


def said_by(block: str) -> list[tuple[str, str]]:
    """Each command of a block with what is shown under it."""
    told: list[tuple[str, str]] = []
    for line in block.replace("\\\n", " ").splitlines():
        command = line.removeprefix("$ ")
        if line.startswith("$ ") or "$ " not in block:
            told.append((command.split(" #")[0].strip(), ""))
        else:
            told[-1] = (told[-1][0], f"{told[-1][1]} {line}")
    return [one for one in told if one[0] and not one[0].startswith(ELSEWHERE)]


def plain(text: str) -> str:
    return " ".join(text.split())


def run(command: str, place: Path) -> str:
    """The output of a command of a page, in a folder that has what the page says is there."""
    words = shlex.split(command)
    assert words[0] in {"veilrec", "python"}, command
    start = [sys.executable, "-m", "veilrec"] if words[0] == "veilrec" else [sys.executable]
    settings = {**os.environ, "COLUMNS": "110", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*start, *words[1:]],
        cwd=place,
        env=settings,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stderr}"
    return done.stdout


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with the recipes, the example's vectors and the plug-in of the README."""
    shutil.copytree(ROOT / "recipes", tmp_path / "recipes")
    run("python recipes/vectors.py", tmp_path)
    (tmp_path / "blur.py").write_text(fenced(README, "python"), encoding="utf-8")
    return tmp_path


def test_the_readme_is_read_in_a_minute() -> None:
    lines = README.splitlines()
    assert len(lines) <= 120
    assert max(map(len, lines)) <= 120


def test_its_pictures_are_small() -> None:
    for name in re.findall(r'(?:src|srcset)="([^"]+)"', README):
        assert 10_000 < (ROOT / name).stat().st_size <= 150_000, name


@pytest.mark.slow
def test_every_command_of_the_readme_says_what_it_shows(place: Path) -> None:
    told = [one for block in SHELL.findall(README) for one in said_by(block)]
    assert {"audit", "unlearn", "run", "attack", "report", "compare", "reproduce"} <= {
        words.split()[1] for words, _ in told if words.startswith("veilrec")
    }
    for command, shown in told:
        if "demo" not in command:  # a test of its own has that
            output = plain(run(command, place))
            for sentence in re.split(r"(?<=[.\]]) (?=[A-Z])", plain(shown)):
                assert sentence in output, f"{command}\n{output}"


@pytest.mark.slow
def test_the_commands_by_situation_run(place: Path) -> None:
    page = (ROOT / "docs" / "which-defence.md").read_text(encoding="utf-8")
    outputs = [run(command, place) for block in SHELL.findall(page) for command, _ in said_by(block)]
    assert "Laplace" in outputs[2]
    assert (place / "report.html").read_text(encoding="utf-8").rstrip().endswith("</html>")


@pytest.mark.slow
def test_the_sentence_in_python_runs_and_beats_popularity(capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(fenced(INDEX, "python"), "index.md", "exec"), {})
    printed = re.fullmatch(r"HR@10 (0\.\d+); popularity (0\.\d+)\n", capsys.readouterr().out)
    assert printed is not None
    assert float(printed[1]) > float(printed[2]) + 0.05


def first_recipe(tmp_path: Path) -> Recipe:
    (tmp_path / "recipe.toml").write_text(fenced(INDEX, "toml"))
    return Recipe.load(tmp_path / "recipe.toml")


def test_the_first_recipe_is_one(tmp_path: Path) -> None:
    recipe = first_recipe(tmp_path)
    assert recipe.values["plan"]["rounds"] == 60
    assert recipe.origins["plan.rounds"].endswith("recipe.toml")
    assert recipe.origins["plan.negatives"] == "default"
    assert recipe.experiment().federation().start().round == 0


@pytest.mark.slow
def test_the_first_recipe_beats_popularity(tmp_path: Path) -> None:
    utility = first_recipe(tmp_path).experiment().run().utility
    assert utility.test["ndcg@10"] > 1.5 * utility.floor["ndcg@10"]
