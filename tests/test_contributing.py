"""The files that CONTRIBUTING shows run as they are printed, and keep the contracts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
CONTRACTS = {"Blur": "defences", "Vote": "protocols"}
WORLD = """
[data]
name = "synthetic"
users = 60

[plan]
rounds = 40
lr = 0.5
"""


def sources() -> dict[str, str]:
    """The Python files of the page, by the name in their first line."""
    return dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", PAGE, re.DOTALL))


def written(folder: Path) -> list[Path]:
    for name, source in sources().items():
        (folder / name).write_text(source, encoding="utf-8")
    return [folder / name for name in sources()]


def python(*arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=ROOT,
        env={**os.environ, **settings, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_every_file_is_python_and_is_named() -> None:
    assert sources().keys() == {"blur.py", "level.py", "vote.py"}
    assert PAGE.count("```python") == len(sources())
    for name, source in sources().items():
        compile(source, name, "exec")


@pytest.mark.slow
def test_a_recipe_of_all_of_them_runs(tmp_path: Path) -> None:
    recipe = WORLD + "\n".join(re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL))
    (tmp_path / "recipe.toml").write_text(recipe, encoding="utf-8")
    plugins = [word for path in written(tmp_path) for word in ("--plugin", str(path))]
    out = str(tmp_path / "run")
    done = python("veilrec", "run", str(tmp_path / "recipe.toml"), "--quiet", "--out", out, *plugins)
    assert done.returncode == 0, done.stderr
    assert {path.name for path in (tmp_path / "run").iterdir()} >= {"result.json", "recipe.toml"}


@pytest.mark.slow
@pytest.mark.parametrize("name", CONTRACTS)
def test_they_keep_their_contracts(name: str, tmp_path: Path) -> None:
    settings = {"VEILREC_TEST_PLUGINS": os.pathsep.join(map(str, written(tmp_path)))}
    chosen = ["-p", "tests.with_plugins", "-p", "no:cacheprovider", "-m", "not slow", "-k", name]
    done = python("pytest", "-q", *chosen, f"tests/{CONTRACTS[name]}/test_contract.py", **settings)
    assert done.returncode == 0, done.stdout
    assert int(re.findall(r"(\d+) passed", done.stdout)[0]) >= 4
