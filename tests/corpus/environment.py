"""Machines and surroundings that are bad: no room, nobody who listens, folders that cannot be written."""

from __future__ import annotations

from pathlib import Path

from tests.corpus import Case, Command
from tests.corpus.stock import Stock

__all__ = ["CASES"]


def no_home(folder: Path, stock: Stock) -> Command:
    return Command("run", "missing.toml", environment={"HOME": "/nonexistent"})


CASES = [Case("environment: no home", no_home, 2, "missing.toml")]
