"""Sentences: what an attacker found out about one attribute, beside what guessing without looking reaches.

Nothing is claimed that is luck, and what the attacker was granted is said. A run and a report over its seeds
speak alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from veilrec.metrics.measures import Measure
from veilrec.metrics.words import bracketed, number, out_of_100

__all__ = ["About", "guessed", "hidden", "ranked", "sight", "within", "wrong_way"]

SPOKEN = {"auc": ("AUC", "0.50"), "spearman": ("rank correlation", "0")}  # a measure and its chance
OTHERWISE = ("R²", "0")
PLACES = 2


class About(NamedTuple):
    """The subject of a sentence: an attribute, its users and its attackers.

    Attributes:
        attribute: What was attacked.
        sight: What the attacker sees: ``the uploads``.
        grants: What it has beyond that.
        scale: The measure of the verdict: ``auc``, ``spearman`` or ``r2``.
        measure: What the worst attacker reaches.
    """

    attribute: str
    sight: str
    grants: Sequence[str]
    scale: str
    measure: Measure

    @property
    def who(self) -> str:
        """``An attacker who sees the uploads, and was granted the user vectors,``."""
        granted = f", and was granted {' and '.join(self.grants)}," if self.grants else ""
        return f"An attacker who sees {self.sight}{granted}"


def sight(reads: str) -> str:
    """Name what an attacker looks at, by its reading: one reads user vectors, all others uploads."""
    return "the user vectors" if reads == "embeddings" else "the uploads"


def hidden(about: About, families: int, more: str = "") -> str:
    """Say that no attacker of so many families finds it; `more` is a sentence behind it."""
    several = f"No attacker of {families} families finds"
    who = several if families > 1 else "The only attacker does not find"
    called, chance = SPOKEN.get(about.scale, OTHERWISE)
    granted = f", with {' and '.join(about.grants)}" if about.grants else ""
    reached = _kept(bracketed(about.measure, PLACES))
    said = f"{who} {about.attribute} in {about.sight}{granted}: {called} {reached}, chance {chance}."
    return f"{said} {more}".rstrip()


def wrong_way(about: About) -> str:
    """Say that the attacker is surely below chance."""
    called, _ = SPOKEN.get(about.scale, OTHERWISE)
    reached = _kept(number(about.measure.value, PLACES))
    return (
        f"{about.who} ranks {about.attribute} the wrong way round more often than chance "
        f"({called} {reached}): whoever turns the answer round has learned it."
    )


def guessed(about: About, right: float, most: str, floor: float) -> str:
    """Say for how many of 100 users the guess of a class is right, and for how many always `most` is."""
    return (
        f"{about.who} guesses {about.attribute} right for {out_of_100(right)} of 100 users; "
        f"always guessing {most}: {out_of_100(floor)}."
    )


def ranked(about: About, classes: Sequence[str], right: float, most: str, floor: float) -> str:
    """Say how often two users are told apart, where guesses are no better than the largest class."""
    pair = f"a {classes[0]} and a {classes[1]} user" if len(classes) == 2 else "one of a class and one not"
    return (
        f"{about.who.rstrip(',')}, given {pair}, says which is which {out_of_100(about.measure.value)} times "
        f"of 100 (chance: 50); guessing everyone's {about.attribute} it is right for {out_of_100(right)} of "
        f"100, always guessing {most} for {out_of_100(floor)}."
    )


def within(about: About, off: float, floor: float) -> str:
    """Say how far a guess of a value is off on average, and without looking."""
    return (
        f"{about.who} guesses {about.attribute} to within {off:.1f} on average; without looking: {floor:.1f}."
    )


def _kept(told: str) -> str:
    """A number with a plain hyphen, as results have kept sentences from the first: same run, same bytes."""
    return told.replace("−", "-")
