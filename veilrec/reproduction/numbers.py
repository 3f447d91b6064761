"""Numbers: what runs reached, over their seeds and users, and the doubt about it.

The interval is that of `veilrec.metrics.measures`: users resampled alike in all runs, widened by the
spread of the seeds as Student's t asks for. Of a score whose resamples a result does not keep, the ends of
its interval stand in; two such scores are then compared as if they were of different people, which is
wider.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from veilrec.metrics.groups import useful_in
from veilrec.metrics.leaks import mute, of_before, only_read
from veilrec.metrics.measures import Measure, difference, gathered, widened
from veilrec.result import Result

__all__ = ["WORST", "Quantity", "floors_of", "minus", "rests_on_before", "value_of"]

WORST, SHUFFLED = "worst", "shuffled"


class Quantity(NamedTuple):
    """A quantity measured of a run: usefulness, an attacker's score, or that of an attack on one part.

    Attributes:
        score: A metric of usefulness such as ``hr@20``, a score of the attack such as ``macro_f1``, or a part
            of an attacker's answer; or ``shuffled``, what the attacker of the verdict reaches by luck.
        attribute, audit, attacker, part: Of the attack; without an attribute it is usefulness. The attacker
            `WORST` is the one that the audit's verdict goes by, in each run its own; its AUC is turned where
            it is surely below chance.
    """

    score: str
    attribute: str = ""
    audit: str = ""
    attacker: str = ""
    part: str = ""


def value_of(result: Result, what: Quantity) -> Measure | None:
    """A number of a run, or None where it was not measured."""
    if not what.attribute:
        return _useful(result, what.score)
    entry = _entry(result, what)
    if what.part:
        found = next((one for one in entry.get("parts") or () if one.get("part") == what.part), None)
        return None if found is None else _told(found.get(what.score), found, what.score)
    if what.score == SHUFFLED:
        return _told((entry.get("verdict") or {}).get(SHUFFLED), {}, SHUFFLED)
    name = _worst(entry) if what.attacker == WORST else what.attacker
    attacker = next((one for one in entry.get("attackers") or () if one.get("name") == name), None)
    if attacker is None:
        return None
    scores = {**((attacker.get("notes") or {}).get("components") or {}), **(attacker.get("scores") or {})}
    return _upright(_told(scores.get(what.score), attacker, what.score), entry, what)


def _upright(found: Measure | None, entry: Mapping[str, Any], what: Quantity) -> Measure | None:
    """The AUC of the verdict's attacker as whoever turns it round has it, where it is surely below chance."""
    below = (entry.get("verdict") or {}).get("leaning") == "below"
    return found.mirrored(0.5) if found and below and (what.attacker, what.score) == (WORST, "auc") else found


def _worst(entry: Mapping[str, Any]) -> str | None:
    """The attacker that the verdict goes by; of those who only read gradients, the one who reads most.

    Such attackers learn from nobody. Runs of before that was the verdict's own rule are read by it as well.
    """
    attackers = entry.get("attackers") or ()
    real = [one for one in attackers if one.get("family") != "floor" and not one.get("oracle")]
    reads = {str(one["name"]): (one.get("scores") or {}).get("auc", {}).get("value") for one in real}
    known = {name: abs(value - 0.5) for name, value in reads.items() if value is not None}
    if known and only_read(attackers):
        return max(known, key=known.__getitem__)
    name = (entry.get("verdict") or {}).get("attacker")
    return None if name is None else str(name)


def rests_on_before(result: Result, what: Quantity) -> bool:
    """Whether a number of the verdict's attacker was chosen when only scores above chance counted.

    Attackers who only read gradients were chosen on either side of it then, too.
    """
    attackers = _entry(result, what).get("attackers") or ()
    before = of_before(result.privacy.get(what.audit) or {})
    return what.attacker == WORST and before and bool(attackers) and not only_read(attackers)


def floors_of(results: Sequence[Result], what: Quantity) -> dict[str, float]:
    """Scores of blind guesses, by kind of guess, mean over the runs."""
    found = gathered(
        (guess, float(reached[what.score]))
        for result in results
        for guess, reached in (_entry(result, what).get("floors") or {}).items()
        if what.score in reached
    )
    return {guess: fmean(some) for guess, some in found.items()}


def minus(first: Mapping[int, Measure], second: Mapping[int, Measure]) -> Measure | None:
    """Subtract the second from the first, over the seeds that both have; None where there is none."""
    pairs = [(first[seed], second[seed]) for seed in sorted(first.keys() & second.keys())]
    paired = difference(first, second)
    if paired is not None or not pairs:
        return paired
    below = fmean(math.hypot(a.value - a.low, b.high - b.value) for a, b in pairs)
    above = fmean(math.hypot(a.high - a.value, b.value - b.low) for a, b in pairs)
    return widened([one.value - other.value for one, other in pairs], below, above)


def _useful(result: Result, metric: str) -> Measure | None:
    found = useful_in(result, metric)
    return found if found is None or found.sure else replace(found, low=found.value, high=found.value)


def _entry(result: Result, what: Quantity) -> Mapping[str, Any]:
    audit = result.privacy.get(what.audit) or {}
    return (audit.get("attributes") or {}).get(what.attribute) or {}


def _told(score: Mapping[str, Any] | None, kept: Mapping[str, Any], name: str) -> Measure | None:
    """A score with its ends, which are the score itself where nothing was resampled."""
    if not score or score.get("value") is None:
        return None
    again = np.asarray((kept.get("replicates") or {}).get(name) or (), dtype=np.float64)
    value = float(score["value"])
    if name == SHUFFLED:
        return Measure(value)
    low, high = float(score.get("low", value)), float(score.get("high", value))
    return Measure(value, low, high, again, mute=mute(kept))
