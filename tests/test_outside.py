"""Code from outside the tree passes the same contract tests as ours."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import outside

ROOT = Path(__file__).parents[1]


def contract(folder: Path, kind: str, source: str, name: str) -> subprocess.CompletedProcess[str]:
    """The contract tests of a kind, on one entry of a plugin."""
    path = outside.write(folder, "mine.py", source)
    tests = [f"tests/{kind}/test_contract.py", "-k", name]
    arguments = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "tests.with_plugins",
        "-p",
        "no:cacheprovider",
        "-m",
        "not slow",
        *tests,
    ]
    settings = {**os.environ, "VEILREC_TEST_PLUGINS": str(path), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        arguments, cwd=ROOT, env=settings, capture_output=True, text=True, check=False, timeout=300
    )


@pytest.mark.parametrize(
    ("kind", "source", "name"),
    [
        ("models", outside.MODEL, "ItemBias"),
        ("defences", outside.DEFENCE, "Shrink"),
        ("attacks", outside.ATTACK, "Shrug"),
    ],
)
def test_a_plugin_passes_the_contract(tmp_path: Path, kind: str, source: str, name: str) -> None:
    done = contract(tmp_path, kind, source, name)
    assert done.returncode == 0, done.stdout
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed[1]) >= 4


def test_a_plugin_that_breaks_the_contract_is_caught(tmp_path: Path) -> None:
    broken = outside.DEFENCE.replace("Acts at: on_upload.", "Acts at: nothing.")
    done = contract(tmp_path, "defences", broken, "Shrink and names")
    assert done.returncode == 1
    assert "test_it_names_its_source_and_its_places" in done.stdout
