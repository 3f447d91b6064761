"""Statements: what a ledger says, in the words and numbers of a result."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from statistics import median
from typing import TYPE_CHECKING, Any

from veilrec.base.params import part_of
from veilrec.metrics.words import epsilon
from veilrec.privacy.accounting import LIMIT, Spent, spend

if TYPE_CHECKING:
    from veilrec.privacy.ledger import Ledger

__all__ = ["SEEDED", "lacks", "tell"]

NOTHING = "no formal guarantee"
TOO_MUCH = 20  # an ε beyond which a guarantee rules nothing out: e^20 is half a thousand million

SEEDED = "the noise of a simulation comes from its seed: not private"
BASIC = (
    "ε holds for the values of uploads, whatever any two devices hold",
    "ε per coordinate is not ε of an upload: all coordinates of an upload may change at once",
    "sampling of users amplifies nothing: the server sees each upload by itself",
)
COUNTED = "numbers of examples are in the clear: the server weighs uploads by them"
TOUCHED = "the set of touched rows is in the clear: noise is on the rows that are sent"
TWICE = "noise on noise: each alone would hold, since what follows is post-processing; the smaller ε counts"
EPOCHS = "noise after every local epoch: the last one counts, what went before it is its input"
LOOKS = "looks at held-out items and the probe round of attacks are not counted"
ASKED = (
    "questions of looks at held-out items are counted, beside the uploads, and not those of the probe round; "
    "how often people ask for recommendations only their own devices count"
)
POSTED = "what consenting users post is in the clear"
FINITE = "noise is made of finitely many bits: where λ is above the clip, the ε of a value may be 0.01 more"


def tell(ledger: Ledger) -> dict[str, Any]:
    """A ledger as ``result.json`` holds it; users are the clients that took part."""
    took_part = (ledger.uploads > 0).nonzero().squeeze(1).tolist()
    if not ledger.counted or not took_part:
        return _blank(ledger.budget)
    each, uploads = ledger.spent(), ledger.uploads[took_part]
    spent = [each[k] for k in took_part]
    upload = spend(ledger.charges, [ledger.largest.tolist()], alike=ledger.alike)[0]
    composed = {
        "uploads": {"max": int(uploads.max()), "mean": float(uploads.double().mean())},
        "epsilon": _distribution([Fraction(one.epsilon) for one in spent]),
        "delta": max(one.delta for one in spent),
        "how": _how(spent),
    }
    return {
        "guarantee": ledger.guarantee,
        "statement": _statement(ledger, upload, composed),
        "mechanisms": _mechanisms(ledger),
        "per_upload": {"epsilon": float(upload.epsilon), "delta": upload.delta, "how": upload.how},
        "composed": composed,
        "budget": ledger.budget or None,
        "notes": _notes(ledger),
        **_question(ledger),
    }


def lacks(ledger: Ledger) -> str:
    """The reason why there is no guarantee; empty where there is one."""
    if not ledger.declared:
        return "no defence declares what its noise is worth"
    if ledger.bare:
        parts = dict.fromkeys(part_of(name) for name in ledger.bare)
        return f"without noise leaves {', '.join(parts)}"
    if ledger.loose:
        return f"{', '.join(ledger.loose)} changes uploads after the noise and declares nothing"
    if ledger.posts:
        return f"users who consent post {', '.join(ledger.posts)} without noise"
    return ""


def _question(ledger: Ledger) -> dict[str, Any]:
    """What a question for recommendations costs, where devices ask under noise, and what all of them do."""
    one = ledger.question
    if one is None:
        return {}
    found: dict[str, Any] = {"per_question": {"epsilon": float(one.epsilon), "delta": one.delta}}
    if asked := [n for n in ledger.asked.tolist() if n]:
        spent = [each for each, n in zip(ledger.spent("questions"), ledger.asked.tolist(), strict=True) if n]
        found["questions"] = {
            "asked": {"max": max(asked), "mean": sum(asked) / len(asked)},
            "epsilon": _distribution([Fraction(each.epsilon) for each in spent]),
            "delta": max(each.delta for each in spent),
        }
    return found


def _distribution(epsilons: Sequence[Fraction]) -> dict[str, float]:
    mean = sum(epsilons, Fraction(0)) / len(epsilons)
    return {"max": float(max(epsilons)), "mean": float(mean), "median": float(median(epsilons))}


def _statement(ledger: Ledger, upload: Spent, composed: dict[str, Any]) -> str:
    """One sentence: ε per coordinate, per upload and over the run."""
    single = sorted(m.epsilon for m in ledger.counted)
    most, uploads = composed["epsilon"]["max"], composed["uploads"]["max"]
    each = dict.fromkeys(epsilon(float(one)) for one in (single[0], single[-1]))
    told = (
        f"ε = {' to '.join(each)} per coordinate, at most {epsilon(float(upload.epsilon))} per upload and "
        f"{epsilon(most)} over the run ({uploads} uploads of a user)"
    )
    told += f", at δ = {composed['delta']:g}" if composed["delta"] else ""
    told += _asked(ledger)
    if not ledger.guarantee:
        return f"{NOTHING}: {lacks(ledger)}; what is under noise: {told}"
    weak = "; an ε this large rules nothing out by itself" if upload.epsilon > TOO_MUCH else ""
    return f"values are differentially private: {told}{weak}"


def _asked(ledger: Ledger) -> str:
    """The end of the sentence: what questions cost beside the uploads."""
    told, found = "", _question(ledger)
    if one := found.get("per_question"):
        told = f"; each question for recommendations {epsilon(one['epsilon'])} more"
    if every := found.get("questions"):
        told += f", {epsilon(every['epsilon']['max'])} for the {every['asked']['max']} that one user asked"
    return told


def _mechanisms(ledger: Ledger) -> list[dict[str, Any]]:
    """One entry for each part and noise; ``counted`` where its ε is the one that is charged."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for mechanism in ledger.declared:
        entry = {
            "defence": mechanism.defence,
            "part": mechanism.part,
            "kind": mechanism.kind,
            "scale": float(mechanism.scale),
            "clip": float(mechanism.clip),
            "clip_by": mechanism.by,
            "rows": mechanism.rows,
            "epsilon_per_coordinate": mechanism.epsilon,
            "counted": mechanism in ledger.counted,
        }
        known = found.setdefault((mechanism.place, *entry.values()), {**entry, "coordinates": 0})
        known["coordinates"] += mechanism.coordinates
    return list(found.values())


def _notes(ledger: Ledger) -> list[str]:
    touched = any(m.table is not None and m.rows == "touched" for m in ledger.counted)
    twice = len(ledger.counted) < sum(m.name not in ledger.asks for m in ledger.declared)
    epochs = any(m.every == "epoch" for m in ledger.counted)
    finite = any(m.kind == "laplace" and m.scale > m.clip for m in ledger.counted)
    told = {TOUCHED: touched, TWICE: twice, EPOCHS: epochs, POSTED: bool(ledger.posts), FINITE: finite}
    told[COUNTED] = "examples" in ledger.counts
    if others := [name for name in ledger.counts if name != "examples"]:
        told[f"counts are in the clear: {', '.join(others)}"] = True
    simulated = () if ledger.secret else (ASKED if ledger.asks else LOOKS, SEEDED)
    return [*(note for note, holds in told.items() if holds), *BASIC, *simulated]


def _how(spent: Sequence[Spent]) -> str:
    found = dict.fromkeys(one.how for one in spent)
    return next(iter(found)) if len(found) == 1 else f"PLD, beyond {LIMIT:,} coordinates exact addition"


def _blank(budget: float) -> dict[str, Any]:
    return {
        "guarantee": False,
        "statement": NOTHING,
        "mechanisms": [],
        "per_upload": None,
        "composed": None,
        "budget": budget or None,
        "notes": [],
    }
