"""Runs the contract tests on code from outside.

``VEILREC_TEST_PLUGINS=mine.py pytest -p tests.with_plugins -k MyDefence``; separate files as in PATH.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Load the files before the tests ask the catalogue what there is."""
    from veilrec.recipe.catalogue import load_plugin

    for name in os.environ.get("VEILREC_TEST_PLUGINS", "").split(os.pathsep):
        if name:
            load_plugin(Path(name))
