"""Epsilons: what the ledger of an arm comes to, in few words, to stand beside what the attack reached."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from veilrec.report.arms import Arm, Family
from veilrec.report.numerals import MISSING, bare

__all__ = ["HEADS", "Epsilon", "epsilon_of", "noisy"]

HEADS = ("ε a coordinate", "ε an upload", "ε over the run")
NONE = "none"


class Epsilon(NamedTuple):
    """What is guaranteed by the arm's run that spent most, as text.

    Attributes:
        coordinate: Of each value under noise, from the least to the most: ``30 to 60``.
        upload: Of the largest upload.
        run: Of all uploads of the most exposed user.
        uploads: How many these are.
        guarantee: Whether it holds for all that is uploaded; else it is for what is under noise alone.
    """

    coordinate: str
    upload: str
    run: str
    uploads: str
    guarantee: bool

    @property
    def cells(self) -> list[str]:
        """The three in a row, under `HEADS`; nothing holds for an upload of which a part is in the clear."""
        return [self.coordinate, self.upload, self.run] if self.guarantee else [self.coordinate, NONE, NONE]

    def __str__(self) -> str:
        if self.coordinate == NONE:
            return "ε: none"
        if not self.guarantee:
            return f"ε {self.coordinate} a coordinate under noise, none for an upload"
        return f"ε {self.coordinate} a coordinate, {self.upload} an upload, {self.run} over the run"


def epsilon_of(arm: Arm) -> Epsilon:
    """The ε of an arm; ``none`` where nothing is under noise."""
    ledgers = [result.ledger for result in arm.results]
    most = max(ledgers, key=lambda one: _run(one) or 0.0)
    whole = most.get("composed") or {}
    return Epsilon(
        _coordinate(most),
        bare(_number((most.get("per_upload") or {}).get("epsilon"))),
        bare(_run(most)),
        bare(_number((whole.get("uploads") or {}).get("max"))),
        all(bool(one.get("guarantee")) for one in ledgers),
    )


def noisy(family: Family) -> bool:
    """Whether anything is under noise in any run: else there is no ε to show."""
    return any(result.ledger.get("mechanisms") for arm in family.arms for result in arm.results)


def _coordinate(ledger: Mapping[str, Any]) -> str:
    """``30 to 60``: the smallest and the largest ε of a value that is counted."""
    counted = [one for one in ledger.get("mechanisms") or () if one.get("counted", True)]
    if not counted:
        return NONE
    found = sorted(filter(None, (_number(one.get("epsilon_per_coordinate")) for one in counted)))
    return " to ".join(dict.fromkeys(map(bare, (found[0], found[-1])))) if found else MISSING


def _run(ledger: Mapping[str, Any]) -> float | None:
    return _number(((ledger.get("composed") or {}).get("epsilon") or {}).get("max"))


def _number(value: Any) -> float | None:
    """A number; None for anything else that a file may say."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
