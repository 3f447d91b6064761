"""One browser for all tests of a worker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.report import browser as harness


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    with harness.running() as found:
        yield found
