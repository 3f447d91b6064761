"""The receipt: what was asked, what was done, and what can still be found out, as JSON."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from veilrec.base.tensors import raw
from veilrec.lab.forgetting.case import Effort, Erasure, usual
from veilrec.lab.forgetting.looks import Looks
from veilrec.lab.forgetting.usefulness import usefulness
from veilrec.lab.forgetting.words import by_chance, conclusion, left, limits

__all__ = ["VERSION", "receipt"]

VERSION = 1
Progress = Callable[[str, int, int], None]
Told = dict[str, Any]


def receipt(
    erasure: Erasure,
    told: Mapping[str, Any] | None = None,
    effort: Effort | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Told:
    """Everything that can be said about an erasure, in plain words and numbers.

    Args:
        erasure: Vectors before and after, the truth, and whatever else there is.
        told: What whoever erased says about it, which nobody can check: ``asked``, ``done``, ``model`` or
            ``files`` with their hashes, ``purged``, ``kept``, ``notes``. What is measured is put beside it.
        effort: How hard attackers try; None for what takes seconds.
        seed: Of known users and attackers.
        progress: Called with an attribute, how many are done, and how many there are.

    Raises:
        BadInput: Where vectors, users and attributes do not fit.
    """
    began, told = time.process_time(), told or {}
    looks = Looks(erasure, effort or usual(len(erasure.before)), seed)
    attributes: dict[str, Told] = {}
    for place, name in enumerate(erasure.attributes):
        (progress or (lambda *said: None))(name, place, len(erasure.attributes))
        attributes[name] = _about(looks, name, counted="labels" in told.get("kept", ()))
    who = looks.asked()
    found = [left(name, entry) for name, entry in attributes.items()]
    keyed = _keyed(told)
    return {
        **told,
        "kind": "receipt",
        "version": VERSION,
        "conclusion": conclusion(found),
        "is_not": limits(found, who, keyed=keyed),
        "for_release": not keyed,
        "asked": {**told.get("asked", {}), **_asked(erasure)},
        "done": {**told.get("done", {}), **_changed(erasure)},
        "doubts": looks.doubts(),
        "attributes": attributes,
        "who_asked": who,
        "usefulness": usefulness(erasure.metrics, erasure.people),
        "by_chance": by_chance(attributes.values()),
        "how": _how(looks, time.process_time() - began),
    }


def _keyed(told: Mapping[str, Any]) -> bool:
    """Whether draws came from a seed, by the options of the eraser."""
    return bool((told.get("done", {}).get("eraser") or {}).get("lots") == "keyed")


def _about(looks: Looks, name: str, *, counted: bool) -> Told:
    """All looks at one attribute.

    Users are `counted` by class only where labels are kept: less those of whom it is known still, they are
    those who asked.
    """
    people = looks.erasure.people
    label = people.labels[name]
    count = torch.bincount(label[label >= 0])
    known = [*people.classes.get(name, ()), *map(str, range(len(count)))]
    entry: Told = {
        "classes": [str(one) for one in known[: max(len(count), len(people.classes.get(name, ())))]],
        **({"counts": count.tolist()} if counted else {}),
        "vectors": looks.vectors(name),
        "requesters": looks.requesters(name),
        "difference": looks.difference(name),
        "lists": looks.lists(name),
        "history": looks.history(name),
        "later": looks.later(name),
    }
    return {**entry, "sentences": conclusion([left(name, entry)])}


def _asked(erasure: Erasure) -> Told:
    return {
        "attributes": list(erasure.attributes),
        "users": int(erasure.asks.sum()),
        "of": len(erasure.asks),
    }


def _changed(erasure: Erasure) -> Told:
    """What can be seen of the deed in the vectors themselves."""
    moved = (erasure.before != erasure.after).any(1)
    return {
        "vectors": {"before": _hash(erasure.before), "after": _hash(erasure.after)},
        "changed": int(moved.sum()),
        "changed_of_others": int((moved & ~erasure.asks).sum()),
    }


def _hash(vectors: Tensor) -> str:
    told = f"{vectors.dtype} {list(vectors.shape)}".encode()
    digest = hashlib.sha256(told)
    digest.update(raw(vectors))
    return f"sha256:{digest.hexdigest()}"


def _how(looks: Looks, seconds: float) -> Told:
    effort = looks.effort
    return {
        "families": list(effort.families),
        "beside": list(effort.beside),
        "draws": effort.draws,
        "shares": list(effort.shares),
        "seed": looks.seed,
        "cpu_seconds": round(seconds, 1),
        "rule": "the attacker furthest from chance, on either side, on known users who were held out; "
        "its floor is what luck gives it where labels are shuffled",
    }
