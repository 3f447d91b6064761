"""The tree shows the order of the package: few modules and rooms at the top, small rooms, one level below."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from veilrec.recipe.catalogue import KINDS, offered

PACKAGE = Path(__file__).parents[1] / "veilrec"
MODULES, ROOMS, FILES = 15, 18, 16  # at most: modules and rooms in the package itself, files in any one room
CATALOGUES = {"attacks", "datasets", "defences", "erasers", "models", "protocols"}  # may grow as they like
STILL_LARGE: set[str] = set()  # the list only shrinks


def rooms_in(folder: Path) -> list[Path]:
    """The rooms directly in a folder: those that hold Python files, in any depth."""
    return sorted(path for path in folder.iterdir() if path.is_dir() and any(path.rglob("*.py")))


def too_large(package: Path) -> set[str]:
    """Rooms, and rooms in rooms, with more files than one looks through; catalogues do not count."""
    every = [room for top in rooms_in(package) for room in [top, *rooms_in(top)]]
    names = {room.relative_to(package).as_posix(): len(list(room.glob("*.py"))) for room in every}
    return {name for name, count in names.items() if count > FILES and name not in CATALOGUES}


def too_deep(package: Path) -> list[str]:
    """Rooms in rooms of rooms."""
    inner = [deep for top in rooms_in(package) for room in rooms_in(top) for deep in rooms_in(room)]
    return [room.relative_to(package).as_posix() for room in inner]


def test_the_package_is_seen_at_a_glance() -> None:
    assert len(list(PACKAGE.glob("*.py"))) <= MODULES
    assert len(rooms_in(PACKAGE)) <= ROOMS


def test_no_room_holds_too_many_files() -> None:
    assert too_large(PACKAGE) - STILL_LARGE == set()
    assert STILL_LARGE - too_large(PACKAGE) == set(), "small enough by now: take them off the list"


def test_there_is_one_level_of_rooms_in_rooms() -> None:
    assert too_deep(PACKAGE) == []


@pytest.mark.parametrize("kind", sorted(CATALOGUES & {room.name for room in rooms_in(PACKAGE)}))
def test_a_catalogue_holds_entries_alone(kind: str) -> None:
    """What entries share lies in a room of the catalogue."""
    assert kind in KINDS
    modules = [path.stem for path in (PACKAGE / kind).glob("*.py") if path.stem != "__init__"]
    assert modules
    assert [name for name in modules if not offered(import_module(f"veilrec.{kind}.{name}"), kind)] == []


def test_planted_rooms_are_found(tmp_path: Path) -> None:
    for name in ("small", "large", "large/inner", "large/inner/deep", "models"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
    for name in ("large", "models"):
        for number in range(FILES):
            (tmp_path / name / f"m{number}.py").touch()
    assert too_large(tmp_path) == {"large"}
    assert too_deep(tmp_path) == ["large/inner/deep"]
