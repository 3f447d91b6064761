"""Fixtures that every test may use: small worlds with known answers, processes; plugins for contract tests.

``pytest --veilrec-plugin mine.py tests/defences/test_contract.py`` holds your own entries to the contract.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from tests.forge import Forge
    from tests.forking import Pool
    from veilrec.interactions import Interactions

settings.register_profile("veilrec", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("veilrec")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--veilrec-plugin",
        action="append",
        default=[],
        help="a file whose entries the contract tests shall judge too",
    )


def pytest_collection() -> None:
    """Collect no garbage while tests are: nearly all that is made then stays, and is looked at in vain."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Spare the collector what stays till the end: modules and thousands of tests, at every turn."""
    gc.freeze()
    gc.enable()


def pytest_configure(config: pytest.Config) -> None:
    for path in config.getoption("--veilrec-plugin"):
        from veilrec.recipe.catalogue import load_plugin

        load_plugin(Path(path))


@pytest.fixture(scope="session")
def checkerboard() -> Interactions:
    """24 users and 24 items: even users like even items, and gender is that parity."""
    from tests import worlds

    return worlds.checkerboard()


@pytest.fixture(scope="session")
def ragged() -> Interactions:
    """Clients of 1 to 2,000 training events among 2,200 items."""
    from tests import worlds

    return worlds.ragged()


@pytest.fixture(scope="session")
def forge() -> Iterator[Forge]:
    """A process with everything loaded, to fork others from."""
    from tests.forge import forge

    with forge() as ready:
        yield ready


@pytest.fixture(scope="session")
def runner(forge: Forge, tmp_path_factory: pytest.TempPathFactory) -> Pool:
    """Processes that are ready to run an experiment, and to be killed."""
    from tests.forking import Pool

    return Pool(forge, tmp_path_factory.mktemp("runner"))
