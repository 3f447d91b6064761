"""Cells: one eraser on one training, read by everybody; requests of a few; a stream of them; lists."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from benchmarks.erasing.readers import SHARES, Target, drawn, known_of, read
from benchmarks.erasing.trained import Trained, data_of, train
from veilrec.base.draws import Draws
from veilrec.base.keys import Keys
from veilrec.eraser import AttributeEraser, Eraser, Request, VectorEraser
from veilrec.erasers.leace_null import LeaceNull
from veilrec.interactions import id_hashes
from veilrec.lab.threat import KnownDraw
from veilrec.recipe import catalogue

__all__ = ["ALL", "ATTRIBUTES", "ERASERS", "TOLD", "Cell", "done", "known_erasers"]

ATTRIBUTES = ("gender", "age", "occupation")
TOLD = {"toy": ("gender", "age")}  # by dataset; of others all of them
ALL = "all"  # attributes at once
QUICK = ("logistic", "mlp", "qda")  # read differences, and lists by the first
LISTED = 50
STREAM = 100  # requests
ASKING = 0.1  # of the users, in requests of a few

# name in the table → name in the catalogue, options; noise in standard deviations of the vectors
ERASERS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "original": ("", {}),
    **{f"noise {size:g}": ("GaussianPosthoc", {"parts": {"user": size}}) for size in (0.3, 0.6, 1.0)},
    "LEACE": ("LEACE", {}),
    "LeaceNull": ("LeaceNull", {}),
    "GaussianTransport": ("GaussianTransport", {}),
    "AegisCS": ("AegisCS", {}),
    "U2U": ("U2U", {}),
    "D2D": ("D2D", {}),
    **{f"Obliviator {stages}": ("Obliviator", {"stages": stages}) for stages in (1, 2, 4)},
    "Lethe": ("Lethe", {}),
}


class Cell(NamedTuple):
    """One piece of work.

    Attributes:
        kind: ``train``, ``erase``, ``requests``, ``stream`` or ``lists``.
        target: The attribute that is erased, or ``all``.
        splits: Draws of known users that are read, for each attribute.
    """

    kind: str
    dataset: str
    model: str
    seed: int
    eraser: str = "original"
    target: str = ""
    splits: int = 1

    @property
    def key(self) -> str:
        """What it is known by in the file of results."""
        named = [self.kind, self.dataset, self.model, str(self.seed), self.eraser, self.target]
        return "/".join([*named, str(self.splits)])


def known_erasers() -> list[str]:
    """Those of the table that the catalogue has."""
    there = catalogue.entries("erasers")
    return [name for name, (entry, _) in ERASERS.items() if not entry or entry in there]


def done(cell: Cell, folder: Path) -> dict[str, Any]:
    """The row of a cell; CPU seconds are those of this process, in one thread."""
    began = time.process_time()
    work = {"train": _train, "erase": _erase, "requests": _requests, "stream": _stream, "lists": _lists}
    found = work[cell.kind](cell, folder)
    return {"key": cell.key, **cell._asdict(), **found, "cpu": round(time.process_time() - began, 2)}


def _train(cell: Cell, folder: Path) -> dict[str, Any]:
    return {"test": train(folder, cell.dataset, cell.model, cell.seed)}


def _targets(dataset: str, asked: str) -> dict[str, Target]:
    data = data_of(dataset)
    names = TOLD.get(dataset, ATTRIBUTES) if asked == ALL else (asked,)
    return {name: Target(data.attributes[name], len(data.classes[name])) for name in names}


def _eraser(name: str, vectors: Tensor) -> Eraser | None:
    entry, options = ERASERS[name]
    if entry == "GaussianPosthoc":
        size = float(vectors.std())
        options = {"parts": {part: share * size for part, share in options["parts"].items()}}
    made: Eraser | None = catalogue.build("erasers", entry, options) if entry else None
    return made


def _erased(eraser: Eraser | None, vectors: Tensor, request: Request, seed: int) -> tuple[Tensor, float]:
    """Vectors after an eraser whose draws can be made again, and its CPU seconds."""
    began = time.process_time()
    if isinstance(eraser, VectorEraser):
        vectors = eraser.erase("user", vectors, Keys.seed(seed).fold("noise").fold(request.own_tags))
    elif isinstance(eraser, AttributeEraser):
        vectors = eraser.forget(vectors, request, Draws(Keys.seed(seed).fold("erase")))
    return vectors, time.process_time() - began


def _request(cell: Cell, targets: Mapping[str, Target], asks: Tensor | None = None) -> Request:
    lends = None if asks is None else ~asks
    labels = {name: one.label for name, one in targets.items()}
    counts = {name: one.classes for name, one in targets.items()}
    return Request(labels, counts, asks, lends, tags=id_hashes(data_of(cell.dataset).user_ids))


def _erase(cell: Cell, folder: Path) -> dict[str, Any]:
    trained = Trained.at(folder, cell.dataset, cell.model, cell.seed)
    targets = _targets(cell.dataset, cell.target)
    eraser, before = _eraser(cell.eraser, trained.vectors), trained.vectors
    after, seconds = _erased(eraser, before, _request(cell, targets), cell.seed)
    keys, reads, difference = Keys.seed(cell.seed).fold("readers"), {}, {}
    for name, target in targets.items():
        reads[name] = _worst(after, target, cell.splits, keys.fold(name))
        if eraser is not None:
            difference[name] = _difference(after - before, target, keys.fold(name))
    useful = _usefulness(trained, after)
    return {"reads": reads, "difference": difference, "useful": useful, "seconds": round(seconds, 3)}


def _worst(vectors: Tensor, target: Target, splits: int, keys: Keys) -> dict[str, Any]:
    """AUC by share and family, the worst of all, which it is, and the floor of it."""
    found, apart, luck = {}, {}, []
    for share in SHARES:
        own = keys.fold(str(share))
        one = read(vectors, target, drawn(target, share, splits, own), own)
        found[str(share)] = one["auc"]
        luck.append(one["luck"])
        apart |= {f"{family} {share}": sum(auc) / splits - 0.5 for family, auc in one["auc"].items()}
    return {"auc": found, **_summed(apart, torch.cat(luck))}


def _summed(apart: Mapping[str, float], luck: Tensor) -> dict[str, Any]:
    """The worst of several readers, and what the worst would be where nothing leaks."""
    reader = max(apart, key=lambda one: abs(apart[one]))
    floor = 0.5 + float(luck.abs().amax(0).mean())
    way = round(0.5 + apart[reader], 4)
    return {
        "worst": round(0.5 + abs(apart[reader]), 4),
        "reader": reader,
        "way": way,
        "floor": round(floor, 4),
    }


def _difference(change: Tensor, target: Target, keys: Keys) -> dict[str, float]:
    """What is read off the difference of vectors before and after, where a fifth of the labels is known."""
    own = keys.fold("difference")
    found = read(change / change.std().clamp(min=1e-12), target, drawn(target, 0.2, 1, own), own, QUICK)
    return {family: auc[0] for family, auc in found["auc"].items()}


def _usefulness(trained: Trained, after: Tensor) -> dict[str, dict[str, float]]:
    """By metric: the mean before and after, and the paired difference with its 95 % interval."""
    told = {}
    old, new = trained.useful(trained.vectors), trained.useful(after)
    for name, one in old.items():
        change = new[name] - one
        half = 1.96 * float(change.std()) / len(change) ** 0.5
        row = {"before": one.mean(), "after": new[name].mean(), "change": change.mean(), "half": half}
        told[name] = {key: round(float(value), 5) for key, value in row.items()}
    return told


def _requests(cell: Cell, folder: Path) -> dict[str, Any]:
    """A tenth of the users asks, and everybody else's labels and vectors are known.

    The naive reader learns from the vectors of all others as they are; the adaptive one erases those first,
    with the same eraser.
    """
    trained = Trained.at(folder, cell.dataset, cell.model, cell.seed)
    (target,) = _targets(cell.dataset, cell.target).values()
    eraser, vectors = _eraser(cell.eraser, trained.vectors), trained.vectors
    kept: dict[str, dict[str, list[float]]] = {}
    aside: dict[str, list[Tensor]] = {}
    refused = 0
    for place in range(cell.splits):
        keys = Keys.seed(cell.seed).fold("requests").fold(place)
        asks = known_of(target.label, ASKING, keys)
        request, others = (_request(cell, {cell.target: target}, who) for who in (asks, ~asks))
        refused += isinstance(eraser, AttributeEraser) and eraser.refusal(request) is not None
        after, _ = _erased(eraser, vectors, request, cell.seed + place)
        aware = isinstance(eraser, AttributeEraser) and eraser.needs_labels
        adaptive = (
            others if aware else Request(request.labels, request.classes, ~asks, ~asks, tags=request.tags)
        )
        ways = {"naive": vectors}
        if eraser is not None:
            ways["adaptive"], _ = _erased(eraser, vectors, adaptive, cell.seed + place + 50)
        for way, learned in ways.items():
            one = read(after, target, [KnownDraw(~asks, asks)], keys, learned=learned)
            for family, auc in one["auc"].items():
                kept.setdefault(way, {}).setdefault(family, []).append(auc[0])
            aside.setdefault(way, []).append(one["luck"])
    told = {}
    for way, auc in kept.items():
        apart = {family: sum(each) / cell.splits - 0.5 for family, each in auc.items()}
        luck = torch.stack(aside[way]).mean(0)
        told[way] = {"auc": auc, **_summed(apart, luck)}
    return {"requests": told, "refused": refused, "asking": int(asks.sum())}


def _stream(cell: Cell, folder: Path) -> dict[str, Any]:
    """One request after the other, each of a single user, by the map that needs no label of who asks."""
    trained = Trained.at(folder, cell.dataset, cell.model, cell.seed)
    targets = _targets(cell.dataset, cell.target)
    keys, vectors = Keys.seed(cell.seed).fold("stream"), trained.vectors.clone()
    users, seconds = keys.order(len(vectors))[:STREAM], []
    gone = torch.zeros(len(vectors), dtype=torch.bool)
    for user in users.tolist():
        began = time.process_time()
        gone[user] = True
        asks = torch.zeros_like(gone)
        asks[user] = True
        request = _request(cell, targets, asks)
        request = Request(request.labels, request.classes, asks, ~gone, tags=request.tags)
        vectors = LeaceNull().forget(vectors, request, Draws(keys))
        seconds.append(time.process_time() - began)
    moved = int((vectors != trained.vectors).any(1).sum())
    useful = _usefulness(trained, vectors)
    return {"useful": useful, "moved": moved, "longest": round(max(seconds), 4), "requests": len(users)}


def _lists(cell: Cell, folder: Path) -> dict[str, Any]:
    """What the 50 best items tell, with those a user has seen among them and without; and what was seen."""
    trained = Trained.at(folder, cell.dataset, cell.model, cell.seed)
    (target,) = _targets(cell.dataset, cell.target).values()
    data = data_of(cell.dataset)
    seen = torch.zeros(data.n_users, data.n_items, dtype=torch.bool)
    seen[data.user, data.item] = True
    request = _request(cell, {cell.target: target})
    after, _ = _erased(_eraser(cell.eraser, trained.vectors), trained.vectors, request, cell.seed)
    scores, keys = trained.scores(after), Keys.seed(cell.seed).fold("lists")
    tables = {"with seen": _best(scores), "as shown": _best(scores.masked_fill(seen, -torch.inf))}
    if cell.eraser == "original":
        tables["history"] = seen.float()
    draws = drawn(target, 0.8, cell.splits, keys)
    found = {name: read(table, target, draws, keys, QUICK[:1]) for name, table in tables.items()}
    return {"lists": {name: one["auc"][QUICK[0]] for name, one in found.items()}}


def _best(scores: Tensor) -> Tensor:
    """``[users, items]`` 1 for the best items of each."""
    return torch.zeros_like(scores).scatter_(1, scores.topk(LISTED, 1).indices, 1.0)
