"""Sentences: what an attacker achieves over the seeds of an arm, in the words of a single run."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Any

from veilrec.metrics.measures import mute
from veilrec.report.measures import Measure, pool, read
from veilrec.report.numerals import number, out_of_100
from veilrec.report.verdicts import Verdict, attacker_of

__all__ = ["sentence"]

VECTORS = "embeddings"  # what reads user vectors; everything else reads uploads


def sentence(one: Verdict) -> str:
    """What the attacker achieves beside what guessing would: the run's own words, or the same over seeds."""
    told = str(one.entries[0]["verdict"].get("sentence") or "")
    if len(one.entries) == 1 and told:
        return told
    if one.leaning == "none":
        return _nothing(one)
    if one.leaning == "below":
        return (
            f"{_who(one)} ranks {one.attribute} the wrong way round more often than chance "
            f"({_called(one)} {number(one.measure.value, 2)}): whoever turns the answer round has learned it."
        )
    return _of_classes(one) if one.classes else _of_values(one)


def _nothing(one: Verdict) -> str:
    families = len({name for entry in one.entries for name in entry["verdict"].get("families") or ()})
    who = f"No attacker of {families} families finds" if families > 1 else "The only attacker does not find"
    granted = f", with {' and '.join(one.grants)}" if one.grants else ""
    ends = ""
    if one.measure.sure:
        ends = f" [{number(one.measure.low, 2)}, {number(one.measure.high, 2)}]"
    return (
        f"{who} {one.attribute} in {_sight(one)}{granted}: "
        f"{_called(one)} {number(one.measure.value, 2)}{ends}, chance {number(one.chance, 2)}.{_failed(one)}"
    )


def _failed(one: Verdict) -> str:
    """A word where the attacker of some seed says the same of everybody."""
    count = sum(mute(attacker_of(entry)) for entry in one.entries)
    who = f" In {count} of {len(one.entries)} seeds the attacker that this goes by"
    return f"{who} says the same of everybody: it has failed." if count else ""


def _of_classes(one: Verdict) -> str:
    right, floor = _score(one, "micro_f1"), _floor(one, "micro_f1", "majority")
    if right is None or floor is None:
        return f"{_who(one)} tells {one.attribute} better than chance."
    most = _majority(one.entries[0])
    if right.low > floor:
        return (
            f"{_who(one)} guesses {one.attribute} right for {out_of_100(right.value)} of 100 users; "
            f"always guessing {most}: {out_of_100(floor)}."
        )
    return (
        f"{_who(one)}{'' if one.grants else ','} given {_pair(one)}, says which is which "
        f"{out_of_100(one.measure.value)} times of 100 (chance: 50); guessing everyone's {one.attribute} "
        f"it is right for {out_of_100(right.value)} of 100, always guessing {most} for {out_of_100(floor)}."
    )


def _pair(one: Verdict) -> str:
    classes = one.entries[0].get("classes") or []
    return f"a {classes[0]} and a {classes[1]} user" if len(classes) == 2 else "one of a class and one not"


def _of_values(one: Verdict) -> str:
    off, floor = _score(one, "mae"), _floor(one, "mae")
    if off is None or floor is None:
        return f"{_who(one)} tells {one.attribute} better than chance."
    return (
        f"{_who(one)} guesses {one.attribute} to within {off.value:.1f} on average; "
        f"without looking: {floor:.1f}."
    )


def _who(one: Verdict) -> str:
    granted = f", and was granted {' and '.join(one.grants)}," if one.grants else ""
    return f"An attacker who sees {_sight(one)}{granted}"


def _sight(one: Verdict) -> str:
    reads = [str(attacker_of(entry).get("reads", "")) for entry in one.entries]
    seen = ("the user vectors" if name == VECTORS else "the uploads" for name in reads)
    return " or ".join(dict.fromkeys(seen))


def _called(one: Verdict) -> str:
    return {"auc": "AUC", "spearman": "rank correlation"}.get(one.scale, "R²")


def _score(one: Verdict, measure: str) -> Measure | None:
    """A score of the verdict's attackers, over the seeds."""
    found = [read((attacker_of(entry).get("scores") or {}).get(measure)) for entry in one.entries]
    there = [score for score in found if score]
    return pool(there) if there else None


def _floor(one: Verdict, measure: str, kind: str = "") -> float | None:
    """What guessing without looking gives, over the seeds: by one kind of guess, or by the best of them."""
    found = []
    for entry in one.entries:
        guesses = entry.get("floors") or {}
        chosen = [guesses.get(kind) or {}] if kind else list(guesses.values())
        found += [min((score.value for guess in chosen if (score := read(guess.get(measure)))), default=None)]
    there = [value for value in found if value is not None]
    return fmean(there) if there else None


def _majority(entry: Mapping[str, Any]) -> str:
    classes, counts = entry.get("classes") or [], entry.get("counts") or []
    most = max(range(len(counts)), key=counts.__getitem__, default=-1)
    return str(classes[most]) if 0 <= most < len(classes) else "the most frequent class"
