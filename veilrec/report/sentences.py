"""Sentences: what an attacker achieves over the seeds of an arm, in the words of a single run."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Any

from veilrec.metrics.leaks import mute
from veilrec.metrics.measures import Measure, pool, read
from veilrec.metrics.sentences import About, guessed, hidden, ranked, sight, within, wrong_way
from veilrec.report.verdicts import Verdict, attacker_of

__all__ = ["sentence"]


def sentence(one: Verdict) -> str:
    """Say what the attacker achieves beside guessing: the run's own words, or the same over seeds."""
    told = str(one.entries[0]["verdict"].get("sentence") or "")
    if len(one.entries) == 1 and told:
        return told
    about = About(one.attribute, _sight(one), one.grants, one.scale, one.measure)
    if one.leaning == "none":
        families = {name for entry in one.entries for name in entry["verdict"].get("families") or ()}
        return hidden(about, len(families), _failed(one))
    if one.leaning == "below":
        return wrong_way(about)
    return _of_classes(one, about) if one.classes else _of_values(one, about)


def _failed(one: Verdict) -> str:
    """A word where the attacker of some seed says the same of everybody."""
    count = sum(mute(attacker_of(entry)) for entry in one.entries)
    who = f"In {count} of {len(one.entries)} seeds the attacker that this goes by"
    return f"{who} says the same of everybody: it has failed." if count else ""


def _of_classes(one: Verdict, about: About) -> str:
    right, floor = _score(one, "micro_f1"), _floor(one, "micro_f1", "majority")
    if right is None or floor is None:
        return f"{about.who} tells {one.attribute} better than chance."
    most = _majority(one.entries[0])
    if right.low > floor:
        return guessed(about, right.value, most, floor)
    return ranked(about, one.entries[0].get("classes") or (), right.value, most, floor)


def _of_values(one: Verdict, about: About) -> str:
    off, floor = _score(one, "mae"), _floor(one, "mae")
    if off is None or floor is None:
        return f"{about.who} tells {one.attribute} better than chance."
    return within(about, off.value, floor)


def _sight(one: Verdict) -> str:
    """Name what the attackers of the seeds look at."""
    reads = [str(attacker_of(entry).get("reads", "")) for entry in one.entries]
    return " or ".join(dict.fromkeys(map(sight, reads)))


def _score(one: Verdict, measure: str) -> Measure | None:
    """A score of the verdict's attackers, over the seeds."""
    found = [read((attacker_of(entry).get("scores") or {}).get(measure)) for entry in one.entries]
    there = [score for score in found if score]
    return pool(there) if there else None


def _floor(one: Verdict, measure: str, kind: str = "") -> float | None:
    """The score of guessing without looking, over the seeds: by one kind of guess, or by the best."""
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
