"""Code from outside the tree passes the same contract tests as ours."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests import outside

ROOT = Path(__file__).parents[1]


PLUGINS = {"models": outside.MODEL, "defences": outside.DEFENCE, "attacks": outside.ATTACK}
NAMES = {"models": "ItemBias", "defences": "Shrink", "attacks": "Shrug"}


def contract(folder: Path, sources: Mapping[str, str], chosen: str) -> subprocess.CompletedProcess[str]:
    """The contract tests of some kinds, on the entries of plugins."""
    paths = [outside.write(folder, f"{kind}.py", source) for kind, source in sources.items()]
    tests = [f"tests/{kind}/test_contract.py" for kind in sources]
    asked = [
        "-q",
        "-rA",
        "-p",
        "tests.with_plugins",
        "-p",
        "no:cacheprovider",
        "-m",
        "not slow",
        "-k",
        chosen,
    ]
    settings = {
        **os.environ,
        "VEILREC_TEST_PLUGINS": os.pathsep.join(map(str, paths)),
        "OMP_NUM_THREADS": "1",
    }
    return subprocess.run(
        [sys.executable, "-m", "pytest", *asked, *tests],
        cwd=ROOT,
        env=settings,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@pytest.mark.slow
def test_plugins_pass_the_contract(tmp_path: Path) -> None:
    done = contract(tmp_path, PLUGINS, " or ".join(NAMES.values()))
    assert done.returncode == 0, done.stdout
    for kind, name in NAMES.items():
        passed = re.findall(rf"PASSED tests/{kind}/test_contract.py\S*{name}", done.stdout)
        assert len(passed) >= 4, kind


def test_plugins_are_judged_and_one_that_breaks_the_contract_is_caught(tmp_path: Path) -> None:
    broken = outside.DEFENCE.replace("Acts at: on_upload.", "Acts at: nothing.")
    done = contract(tmp_path, {"defences": broken}, "Shrink and (names or frozen or itself)")
    assert done.returncode == 1
    (failed,) = re.findall(r"^FAILED (\S+)", done.stdout, re.MULTILINE)
    assert failed.endswith("test_it_names_its_source_and_its_places[Shrink]")
    assert len(re.findall(r"PASSED \S*Shrink", done.stdout)) >= 2
