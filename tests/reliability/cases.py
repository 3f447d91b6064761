"""Cases of a goal: each is tried once and written down; a measurement of the same code goes on there."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch

from tests.forge import Forge
from veilrec import __version__

__all__ = ["Bench", "Found", "Goal", "code_hash", "versions"]

ROOT = Path(__file__).parents[2]
NAMED = 8  # failures that a row names


@dataclass(frozen=True)
class Found:
    """What came of a case: whether it was good, what it was, and what was wrong with it."""

    good: bool
    about: str = ""
    fault: str = ""
    skipped: bool = False


@dataclass
class Bench:
    """Where goals are measured.

    Attributes:
        forge: Forks processes.
        folder: Where rows and what cases leave lie.
        seed: Decides every draw.
        tell: Called with what is done.
        planted: A bug that every process has.
    """

    forge: Forge
    folder: Path
    seed: int
    tell: Callable[[str], None]
    planted: str = ""

    @property
    def stock(self) -> Path:
        return self.folder / "stock"

    def place(self, *names: str) -> Path:
        """A new, empty folder."""
        place = self.folder.joinpath("work", *names)
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        return place


@dataclass(frozen=True)
class Goal:
    """One thing to be shown.

    Attributes:
        id, what: Its name, and in words.
        cases: The names of the cases, where some are to be found first given where they are measured.
        judge: Tries one; what it leaves in its folder stays where it is not good.
    """

    id: str
    what: str
    cases: Sequence[str] | Callable[[Bench], Sequence[str]]
    judge: Callable[[Bench, str, Path], Found] = field(repr=False)

    def measure(self, bench: Bench) -> dict[str, Any]:
        """Try every case that was not tried before; returns the goal's row."""
        found = {name: self._one(bench, name) for name in self._names(bench)}
        tried = {name: one for name, one in found.items() if not one["skipped"]}
        bad = [name for name, one in tried.items() if not one["good"]]
        skipped = {one["fault"] for one in found.values() if one["skipped"]}
        row = {
            "id": self.id,
            "what": self.what,
            "value": len(tried) - len(bad),
            "limit": len(tried),
            "pass": bool(tried) and not bad,
            "seconds": round(sum(one["seconds"] for one in found.values()), 1),
            "seed": bench.seed,
            "versions": versions(),
        }
        row |= {"failed": [f"{name}: {tried[name]['fault']}" for name in bad[:NAMED]]} if bad else {}
        return row | ({"skipped": sorted(skipped)} if skipped else {})

    def deal(self, bench: Bench, which: int, of: int) -> None:
        """Try every so-many-th case; who measures afterwards finds it tried."""
        for name in self._names(bench)[which % of :: of]:
            self._one(bench, name)

    def _names(self, bench: Bench) -> Sequence[str]:
        return self.cases(bench) if callable(self.cases) else self.cases

    def _one(self, bench: Bench, name: str) -> dict[str, Any]:
        slug = hashlib.sha256(f"{bench.seed} {name}".encode()).hexdigest()[:16]
        path = bench.folder / "rows" / self.id / f"{slug}.json"
        if path.exists():
            known: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            return known
        place, began = bench.place(self.id, slug), time.monotonic()
        try:
            found = self.judge(bench, name, place)
        except (
            AssertionError
        ) as error:  # what a case stands on does not hold: the others are tried all the same
            found = Found(False, "", str(error)[-500:] or "an assertion failed")
        row = {"case": name, "seed": bench.seed, **asdict(found), "seconds": time.monotonic() - began}
        if found.good:
            shutil.rmtree(place)
        _write(path, row)
        bench.tell(f"{self.id}: {name}: {'good' if found.good else found.fault}")
        return row


def _write(path: Path, row: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".tmp")
    unfinished.write_text(json.dumps(row), encoding="utf-8")
    os.replace(unfinished, path)


def numbered(count: int) -> list[str]:
    """The names of so many cases that differ by what is drawn."""
    return [f"{number}" for number in range(count)]


def versions() -> dict[str, str]:
    """What was measured, and on what."""
    found = {"veilrec": __version__, "code": code_hash(), "python": platform.python_version()}
    return {**found, "torch": torch.__version__, "system": f"{platform.system()} {platform.machine()}"}


@cache  # of what this process has loaded: files may change while it measures
def code_hash() -> str:
    """A hash of the package and its tests: rows of other code are not gone on with."""
    whole = hashlib.sha256()
    for path in _files():
        whole.update(path.relative_to(ROOT).as_posix().encode() + path.read_bytes())
    return whole.hexdigest()[:12]


def _files() -> Iterator[Path]:
    for folder in ("veilrec", "tests"):
        yield from sorted((ROOT / folder).rglob("*.py"))
