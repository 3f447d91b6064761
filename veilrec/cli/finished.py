"""Finished runs: opened from their directory, judged again, and asked for recommendations."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from veilrec.engine.evaluation import Evaluation
from veilrec.engine.serving import scorer
from veilrec.engine.workers import workers
from veilrec.errors import BadInput, near_ids
from veilrec.interactions import Interactions
from veilrec.protocol import State
from veilrec.recipe import Recipe
from veilrec.result import Result
from veilrec.rounds import Federation
from veilrec.runs.folder import RECIPE, Run, read_run
from veilrec.runs.integrity.manifest import Manifest, steadily
from veilrec.runs.requests.orders import is_pending
from veilrec.runs.session import beside_popularity
from veilrec.runs.world import WORLD

__all__ = ["CutOff", "Opened", "judge", "recommend", "reopen"]


class CutOff(UserWarning):
    """A run that holds what somebody was told it would forget."""


@dataclass(frozen=True)
class Opened:
    """A finished run with its federation, in the selected state."""

    run: Run
    federation: Federation
    state: State


def reopen(
    folder: Path,
    data: Path | None = None,
    data_dir: Path | None = None,
    device: str = "cpu",
    *,
    warns: bool = True,
) -> Opened:
    """A finished run; its dataset is loaded only where the directory does not hold it.

    Where a request to forget was cut off, it `warns`.

    Raises:
        BadInput: Where the run is not finished, or its data or a plugin is missing.
        Corrupted: Where a file is not what the run wrote.
    """
    if warns and is_pending(folder):
        said = "a request to forget was cut off; `veilrec unlearn` with this run goes on with it"
        warnings.warn(f"{folder}: {said}", CutOff, stacklevel=2)

    def read(manifest: Manifest) -> Opened:
        Result.read(manifest)  # says first whether this is a finished run at all
        stored = data is None and WORLD in manifest.files
        sets = [f"data.path={data.absolute()}"] if data is not None else []
        recipe = Recipe.load(manifest.path(RECIPE), sets, data_dir=data_dir, has_data=not stored)
        run = read_run(manifest, None if stored else recipe.data())
        with recipe.blaming():
            federation = recipe.experiment(run.data, device=device).federation()
        return Opened(run, federation, run.state(federation))

    return steadily(folder, read)


def judge(opened: Opened, candidates: int | None = None, ks: tuple[int, ...] | None = None) -> dict[str, Any]:
    """The utility of the selected state beside the popularity floor, by the run's protocol or another."""
    protocol = _protocol(opened.federation.evaluation, candidates, ks)
    scored = opened.federation.evaluate(opened.state, "test", protocol)
    found = asdict(beside_popularity(opened.federation, scored, protocol))
    return {name: value for name, value in found.items() if name != "validation"}


def _protocol(before: Evaluation, candidates: int | None, ks: tuple[int, ...] | None) -> Evaluation:
    lengths = before.ks if ks is None else ks
    metric, _, length = before.select.partition("@")
    select = before.select if int(length) in lengths else f"{metric}@{lengths[0]}"
    chosen = before.candidates if candidates is None else candidates
    return replace(before, candidates=chosen, ks=lengths, select=select)


def recommend(opened: Opened, user: str, k: int) -> list[dict[str, Any]]:
    """The best items that a user has not touched, with original ids, and titles where known."""
    log, federation = opened.run.data, opened.federation
    index = _index(log, user)
    client, seat = federation.clients.place_of(torch.tensor(index))
    with workers(1) as pool:
        score = scorer(federation.fleet, federation.at(opened.state), pool)
        scores = score(client[None], None)[0, seat].cpu().double()  # [items]
    scores[log.item[log.user == index]] = -torch.inf
    best = scores.topk(min(k, int((scores > -torch.inf).sum())))
    return [
        {
            "rank": rank,
            "item": log.item_ids[item],
            "title": None if log.texts is None else log.texts[item],
            "score": value,
        }
        for rank, (item, value) in enumerate(zip(best.indices.tolist(), best.values.tolist(), strict=True), 1)
    ]


def _index(log: Interactions, user: str) -> int:
    ids: Sequence[str] = list(log.user_ids)
    if user in ids:
        return ids.index(user)
    raise BadInput("--user", f'nobody is called "{user}"', near_ids(user, ids))
