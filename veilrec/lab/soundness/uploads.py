"""Leakage over uploads: what one, three, ten and all kept uploads of each user give away, on the same users.

Noise that is drawn anew for each upload averages out, so that a defence which hides one upload may not hide
ten.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from veilrec.attack import Seen
from veilrec.attacks.attribute import AttributeInference
from veilrec.attacks.common.changes import kept_changes
from veilrec.errors import BadInput
from veilrec.lab.lab import audit
from veilrec.lab.threat import Threat
from veilrec.lab.trials import People
from veilrec.metrics.measures import read
from veilrec.metrics.words import bracketed

__all__ = ["over_uploads"]

POINTS = (1, 3, 10)
COLUMNS = 128  # a weight, as our own protocol has it
REPEATS = 3  # draws of known users, at most: there are several points
LEARNERS = ("logistic", "mlp", "qda")


def over_uploads(seen: Seen, people: People, threat: Threat, seed: int = 0) -> list[dict[str, Any]]:
    """The verdict on each attribute with classes by the number of uploads; empty where none were kept.

    An upload is what changed of the weights that are no table; of several the mean is read, the newest first.
    Only users of whom an upload was kept are known and attacked, the same ones at every point.
    """
    public = seen.public
    if public is None or public.seats.shape[1] > 1 or seen.kept is None or not seen.kept.rounds:
        return []
    *some, (every, count) = kept_changes(seen, public, COLUMNS, (*POINTS, len(seen.kept.rounds)))
    if not every.shape[1]:
        return []
    most, there = int(count.max()), count > 0
    points = [(k, rows, have) for k, (rows, have) in zip(POINTS, some, strict=True) if k < most]
    points += [(most, every, count)]
    who = replace(people, labels={n: torch.where(there, label, -1) for n, label in people.labels.items()})
    names = [name for name in people.labels if name in (threat.attributes or people.labels)]
    return [
        _curve(name, [(k, rows, float(have[there].mean())) for k, rows, have in points], who, threat, seed)
        for name in names
    ]


def _curve(
    name: str, points: Sequence[tuple[int, Tensor, float]], people: People, threat: Threat, seed: int
) -> dict[str, Any]:
    """The verdict on one attribute at each point; where nothing can be learned of it, why."""
    same = replace(threat, attributes=(name,), selection="last", grants=(), by_part=False)
    same = replace(same, repeats=min(threat.repeats, REPEATS))
    attacks = {"": AttributeInference("embeddings", classifiers=LEARNERS)}
    found = []
    try:
        for k, rows, mean in points:
            told = audit(Seen.of_vectors(rows), people, same, attacks, seed, sound=False)
            verdict = told["attributes"][name]["verdict"]
            keep = {key: verdict[key] for key in ("attacker", "auc", "leaning", "shuffled")}
            found.append({"uploads": k, "mean": round(mean, 1), **keep})
    except BadInput as why:
        said = f"{name} by kept uploads was not measured: {why}."
        return {"attribute": name, "points": [], "sentence": said}
    return {"attribute": name, "points": found, "sentence": _sentence(name, found)}


def _sentence(name: str, points: list[dict[str, Any]]) -> str:
    told = [f"{_uploads(one, one is points[-1])} AUC {bracketed(read(one['auc']), 2)}" for one in points]
    floor = f"{points[-1]['shuffled']['value']:.2f}"
    return f"{name} by kept uploads of each user: {', '.join(told)}; chance 0.50, shuffled labels {floor}."


def _uploads(point: dict[str, Any], last: bool) -> str:
    number, mean = point["uploads"], f"{point['mean']:g} on average"
    return f"all ({mean})" if last else "one" if number == 1 else f"up to {number} ({mean})"
