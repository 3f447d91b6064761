"""The floors of pyproject.toml as constraints, so that the lowest versions that are promised are also tried.

``python .github/lowest.py`` prints them: ``numpy==2.0`` for ``numpy>=2.0``.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parents[1] / "pyproject.toml"
FLOOR = re.compile(r"^([A-Za-z0-9_.-]+)(?:\[[^\]]*\])?>=([0-9][0-9.]*)")


def floors(text: str) -> list[str]:
    """One constraint for each direct dependency of the library."""
    found = map(FLOOR.match, tomllib.loads(text)["project"]["dependencies"])
    return [f"{one[1]}=={one[2]}" for one in found if one]


if __name__ == "__main__":
    print("\n".join(floors(PROJECT.read_text(encoding="utf-8"))))
