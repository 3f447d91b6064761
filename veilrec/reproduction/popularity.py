"""The popularity floor of a dataset on each resample of its users, so that runs can be paired with it."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import numpy as np

from veilrec.base.files import read_json, write_json
from veilrec.base.locks import writer_of, writers_lock
from veilrec.errors import BadInput, Corrupted, InUse
from veilrec.metrics.measures import Measure
from veilrec.recipe import Recipe
from veilrec.result import Result
from veilrec.runs.folder import RECIPE, load_run
from veilrec.runs.summary import replicates

__all__ = ["FILE", "floor_of", "keep_floor"]

FILE, VERSION = "popularity.json", 1


def keep_floor(folder: Path, run: Path, metric: str) -> None:
    """Rank by popularity what a finished run ranked, and keep it in the folder of its dataset.

    Once for all runs of the same data and protocol, by every metric: training is not looked at.
    """
    result = Result.load(run)
    if _kept(folder, result, metric) is not None:
        _free(folder / FILE)
        return
    found = load_run(run)
    recipe = Recipe.load(found.manifest.path(RECIPE), has_data=False)
    federation = recipe.experiment(found.data).federation()
    scored = federation.fleet.floor()
    means, resampled = scored.means(), replicates(scored, found.data, metric)
    each = {name: {"value": means[name], "replicates": some} for name, some in resampled.items()}
    told = {"version": VERSION, **_mark(result), "metric": metric, **each.pop(metric), "beside": each}
    with writer_of(folder / FILE):
        if _kept(folder, result, metric) is None:  # nobody else was faster
            write_json(folder / FILE, told, indent=None)


def _free(path: Path) -> None:
    """Remove the lock of somebody who was killed right behind the write; one that is held stays."""
    if writers_lock(path).is_file() and os.access(path.parent, os.W_OK):
        with suppress(InUse), writer_of(path, wait=0.0):
            pass


def floor_of(folder: Path, result: Result, metric: str) -> Measure | None:
    """The score of popularity where a run was tested, on the same resamples of users where they are kept."""
    if metric not in result.utility.floor:
        return None
    value = float(result.utility.floor[metric])
    return _kept(folder, result, metric) or Measure(value, value, value)


def _kept(folder: Path, result: Result, metric: str) -> Measure | None:
    path = folder / FILE
    if not path.is_file():
        return None
    try:
        told = read_json(path)
        mark = {key: told[key] for key in _mark(result)}
        mine = told if told["metric"] == metric else (told.get("beside") or {}).get(metric)
        if mine is None or mark != _mark(result):
            return None
        value, some = float(mine["value"]), [float(one) for one in mine["replicates"]]
    except (KeyError, TypeError, ValueError) as cause:
        raise Corrupted(f"{path}: cannot be read ({cause!r}); delete it") from cause
    if abs(value - float(result.utility.floor[metric])) > 1e-9:
        raise BadInput(path, "another popularity than the runs were held against", "delete it")
    return Measure(value, value, value, np.asarray(some))


def _mark(result: Result) -> dict[str, object]:
    """Settings of a run that decide its floor: runs with the same have the same floor."""
    return {
        "data": result.data_fingerprint,
        "protocol": result.utility.protocol,
        "users": result.utility.users,
    }
