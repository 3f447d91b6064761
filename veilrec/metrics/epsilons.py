"""Epsilons: what the ledgers of some runs come to, in few words, to stand beside what the attack reached."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from veilrec.metrics.measures import number_in
from veilrec.metrics.words import ABSENT, bare, epsilon
from veilrec.result import Result

__all__ = ["HEADS", "Epsilon", "epsilon_of"]

HEADS = ("ε a coordinate", "ε an upload", "ε over the run")
NONE = "none"


class Epsilon(NamedTuple):
    """A guarantee as text: the largest ε of the runs, with the δ but for which it holds.

    Attributes:
        coordinate: Of each value under noise, from the least to the most: ``30 to 60``; "" without noise.
        upload: Of the largest upload.
        run: Of all uploads of the user who gave most.
        uploads: How many these are.
        guarantee: Whether it holds for all that is uploaded; else it is for what is under noise alone.
        spent: The number behind `run`; None where nothing is guaranteed.
    """

    coordinate: str
    upload: str
    run: str
    uploads: str
    guarantee: bool
    spent: float | None

    @property
    def cells(self) -> list[str]:
        """The three in a row, under `HEADS`; nothing holds for an upload of which a part is in the clear."""
        if not self.coordinate:
            return ["no noise declared", ABSENT, ABSENT]
        if not self.guarantee:
            return [f"{self.coordinate}, not on all that leaves", NONE, NONE]
        return [self.coordinate, self.upload, self.run]

    def __str__(self) -> str:
        if not self.coordinate:
            return f"ε: {NONE}"
        if not self.guarantee:
            return f"ε {self.coordinate} a coordinate under noise, none for an upload"
        return f"ε {self.coordinate} a coordinate, {self.upload} an upload, {self.run} over the run"


def epsilon_of(results: Iterable[Result]) -> Epsilon:
    """The guarantee of runs that differ by their seed alone: no better than the worst of them."""
    ledgers = [result.ledger for result in results]
    noises = [one for ledger in ledgers for one in ledger.get("mechanisms") or () if one.get("counted", True)]
    uploaded, composed = ([one.get(name) or {} for one in ledgers] for name in ("per_upload", "composed"))
    upload = max(uploaded, key=lambda part: _least(part.get("epsilon")), default={})
    run = max(composed, key=lambda part: _least((part.get("epsilon") or {}).get("max")), default={})
    guarantee = bool(ledgers) and all(bool(one.get("guarantee")) for one in ledgers)
    spent = number_in((run.get("epsilon") or {}).get("max"))
    uploads = number_in((run.get("uploads") or {}).get("max"))
    return Epsilon(
        _coordinate(noises, max(map(_delta, uploaded), default=0.0)),
        epsilon(number_in(upload.get("epsilon")), _delta(upload)),
        epsilon(spent, _delta(run)),
        ABSENT if math.isnan(uploads) else bare(uploads),
        guarantee,
        spent if guarantee and not math.isnan(spent) else None,
    )


def _coordinate(noises: Sequence[Mapping[str, Any]], delta: float) -> str:
    """The range of ε a coordinate; of Gauss's noise at the δ of an upload, Laplace's needs none."""
    if not noises:
        return ""
    each = [number_in(one.get("epsilon_per_coordinate")) for one in noises]
    known = [one for one in each if one > 0]
    if not known:
        return ABSENT
    told = " to ".join(dict.fromkeys((epsilon(min(known)), epsilon(max(known)))))
    gauss = any(one.get("kind") == "gaussian" for one in noises)
    return f"{told} (δ = {delta:g})" if delta and gauss else told


def _delta(part: Mapping[str, Any]) -> float:
    found = number_in(part.get("delta", 0))
    return 0.0 if math.isnan(found) else found


def _least(value: Any) -> float:
    """A number to rank by; whatever is not a number comes last."""
    found = number_in(value)
    return -1.0 if math.isnan(found) else found
