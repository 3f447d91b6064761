"""Cells: several experiments as one, each an ordinary run in a folder of its own beside an index."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from veilrec.base.files import UNFINISHED, read_json, write_json, writing
from veilrec.base.locks import writer_of, writers_lock
from veilrec.base.plain import NotPlain, check_folder
from veilrec.errors import BadInput, Corrupted
from veilrec.result import Result
from veilrec.runs.integrity.manifest import is_finished

if TYPE_CHECKING:
    from veilrec.engine.ranks.links import Link
    from veilrec.experiment import Experiment, Written

__all__ = ["INDEX", "Cell", "cells_in", "run_cells", "runs_in"]

INDEX, VERSION = "index.json", 1
Origin = TypeVar("Origin", bound="Written | None")
NAME = re.compile(r"(?!\.)[\w.=,+-]{1,200}")


class Cell(NamedTuple, Generic[Origin]):
    """One run of a sweep, or of several runs.

    Attributes:
        name: Of its folder.
        settings: What sets it apart, as in ``{"plan.rounds": 5, "seed": 0}``; by it pairs are formed.
        recipe: Of its own; None where it comes from none.
    """

    name: str
    settings: dict[str, Any]
    recipe: Origin


def run_cells(
    cells: Sequence[Cell[Origin]],
    make: Callable[[Cell[Origin]], Experiment],
    out: Path,
    *,
    resume: bool = False,
    link: Link | None = None,
    **options: Any,
) -> dict[str, Result]:
    """Run each cell in ``out/name``, with the `options` of `Experiment.run`; resumed, finished ones stay.

    `make` makes a cell's experiment when its turn has come, so that not all data is held at once. Of several
    processes that share the work (`link`) the leader alone writes.

    Raises:
        BadInput: Where names will not do, or the folder holds something else.
    """
    writes = link is None or link.leads
    if writes:
        _check([cell.name for cell in cells], out, resume)
    results: dict[str, Result] = {}
    for cell in cells:
        if writes:
            _write_index(cells, out)
        place, recipe = out / cell.name, cell.recipe
        results[cell.name] = make(cell).run(place, resume=resume, recipe=recipe, link=link, **options)
    if writes:
        _write_index(cells, out)
    return results


def runs_in(place: Path) -> list[Path]:
    """The finished runs that a folder means: itself, or the cells that its index lists.

    Raises:
        BadInput: Where it is neither, or where no cell is finished.
        Corrupted: Where its index is not what `run_cells` wrote.
    """
    cells = cells_in(place)
    found = [cell for cell in cells if cell == place or is_finished(cell)]
    if not found:
        raise BadInput(place, "no finished run is in it", "finish it with --resume")
    return found


def cells_in(place: Path) -> list[Path]:
    """The runs that a folder means, finished or begun: itself, or the cells of its index that are there."""
    if not place.is_dir():
        raise BadInput(place, "no such folder", "name a run directory")
    if is_finished(place) or not (place / INDEX).exists():
        return [place]
    found = [place / name for name in _listed(place / INDEX) if _is_there(place / name)]
    if not found:
        raise BadInput(place, "no finished run is in it", "finish it with --resume")
    return found


def _check(names: Sequence[str], out: Path, resume: bool) -> None:
    """Refuse names that name no folder, and a folder that holds something else; else make it."""
    for name in names:
        if not NAME.fullmatch(name):
            raise BadInput("cells", f"{name!r} is no name for a folder", "use letters, digits, and . = , + -")
    if not names or len(set(names)) < len(names):
        raise BadInput("cells", "none, or the same name twice", "give each cell a name of its own")
    _check_folder(names, out, resume)
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)


def _check_folder(names: Sequence[str], out: Path, resume: bool) -> None:
    """Refuse a folder of something else, or one with a cell that was begun and is not asked for any more."""
    if out.exists() and not out.is_dir():
        raise BadInput(out, "not a folder", "choose another one with --out")
    ours = (UNFINISHED, writers_lock(out / INDEX).name)
    there = [path.name for path in out.iterdir() if not path.name.endswith(ours)] if out.is_dir() else []
    if there and not resume:
        raise BadInput(out, "not empty", "continue it with --resume, or choose another folder with --out")
    if there and INDEX not in there:
        raise BadInput(out, "not a folder of cells", "name one, or an empty folder")
    others = [name for name in _listed(out / INDEX) if name not in names] if there else []
    if begun := [name for name in others if _is_there(out / name)]:
        fix = "resume with the recipe that they were made with, or choose another folder with --out"
        raise BadInput(out, f"holds other cells, such as {begun[0]}", fix)


def _listed(index: Path) -> list[str]:
    """The names that an index lists: of folders beside it, and of nothing elsewhere."""
    told = read_json(index)
    if (version := told.get("version")) != VERSION:
        raise BadInput(index, f"written as version {version}", f"this veilrec reads version {VERSION}")
    try:
        names = [cell["name"] for cell in told["cells"]]
        wrong = [name for name in names if not NAME.fullmatch(name)]
    except (KeyError, TypeError) as cause:
        raise Corrupted(f"{index}: no list of cells; restore the file") from cause
    if wrong or len(set(names)) < len(names):
        what = f'"{wrong[0]}" is no name of a cell' if wrong else "names a cell twice"
        raise Corrupted(f"{index}: {what}; restore the file")
    return names


def _is_there(place: Path) -> bool:
    """Whether a cell has a folder; one behind a link is refused."""
    try:
        check_folder(place)
    except NotPlain as cause:
        raise Corrupted(f"{place}: {cause.strerror}; put the run itself there") from cause
    return place.is_dir()


def _write_index(cells: Sequence[Cell[Any]], out: Path) -> None:
    """Write what is finished by now; whoever writes last has looked last."""
    with writer_of(out / INDEX):
        entries = [
            {"name": c.name, "settings": dict(c.settings), "finished": is_finished(out / c.name)}
            for c in cells
        ]
        write_json(out / INDEX, {"version": VERSION, "cells": entries})
