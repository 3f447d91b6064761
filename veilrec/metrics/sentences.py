"""Sentences: what an attacker found out about one attribute, beside what guessing without looking reaches.

Nothing is claimed that is luck, and what the attacker was granted is said. A run and a report over its seeds
speak alike: both are told from what results keep about the attribute.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from veilrec.metrics.leaks import attacker_of, mute
from veilrec.metrics.measures import Measure, average, pool, read
from veilrec.metrics.words import bracketed, number, out_of_100

__all__ = ["About", "both_ways", "guessed", "hidden", "ranked", "sentence", "sight_of", "within", "wrong_way"]

SPOKEN = {"auc": ("AUC", "0.50"), "spearman": ("rank correlation", "0")}  # a measure and its chance
OTHERWISE = ("R²", "0")
SIGHTS = {  # what an attacker looks at who reads no uploads
    "embeddings": "the user vectors",
    "lists": "what users are shown",
    "difference": "the user vectors from before and after the erasure",
}
PLACES = 2
NAMED = 3  # attackers that are named; of more how many
LUCK = 20  # an interval of 95 % excludes chance once in so many where nothing leaks
BETTER = {  # what an attacker whose interval excludes chance did, on either side
    "auc": {"above": "right more often than chance", "below": "wrong more often than chance"},
    "spearman": {"above": "closer than chance", "below": "surely the wrong way round"},
}
Entry = Mapping[str, Any]  # what a result says about one attribute


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


def sentence(
    attribute: str,
    entries: Sequence[Entry],
    leaning: str,
    measure: Measure,
    grants: Sequence[str],
    scale: str = "auc",
) -> str:
    """Say what the verdict's attacker achieves beside what guessing would.

    Args:
        attribute: What was attacked.
        entries: What each run says about it, one a seed, with its verdict.
        leaning: ``above``, ``below`` or ``none``: where the `measure` over all of them lies against chance.
        measure: What the attacker reaches on the `scale`, which is that of the verdicts.
        grants: What the attacker was given, in words.
    """
    about = About(attribute, sight_of(entries), grants, scale, measure)
    if leaning == "none":
        families = {name for entry in entries for name in entry["verdict"].get("families") or ()}
        return hidden(about, len(families), _failed(entries), _though(entries, scale))
    if leaning == "below":
        return wrong_way(about, entries[0].get("classes") or ())
    return _of_classes(about, entries) if scale == "auc" else _of_values(about, entries)


def sight_of(entries: Sequence[Entry]) -> str:
    """Name what the attackers look at: user vectors, lists, or else uploads."""
    reads = [attacker_of(entry).get("reads") for entry in entries]
    return " or ".join(dict.fromkeys(SIGHTS.get(str(one), "the uploads") for one in reads))


def _failed(entries: Sequence[Entry]) -> str:
    """A word where the attacker of some seed says the same of everybody."""
    count = sum(mute(attacker_of(entry)) for entry in entries)
    who = "The" if len(entries) == 1 else f"In {count} of {len(entries)} seeds the"
    told = f"{who} attacker that this goes by says the same of everybody: it has failed, and tells nothing."
    return told if count else ""


def _though(entries: Sequence[Entry], scale: str) -> str:
    """A clause on attackers by whom no verdict goes, and whose interval excludes chance; empty for none."""
    sides: dict[str, list[str]] = {}
    for name, side in _beside(entries, scale):
        if name not in sides.setdefault(side, []):
            sides[side].append(name)
    told = [
        f"{_few(sides[side])} {'was' if len(sides[side]) == 1 else 'were'} {how}"
        for side, how in BETTER.get(scale, {}).items()
        if side in sides
    ]
    late = f"; chosen after the fact, one in {LUCK} would be by luck"
    return f", though {' and '.join(told)}{late}" if told else ""


def _beside(entries: Sequence[Entry], scale: str) -> Iterator[tuple[str, str]]:
    """The attackers by whom no verdict goes, and on which side of chance each lies over all seeds."""
    chance, every = (
        float(SPOKEN.get(scale, OTHERWISE)[1]),
        [entry.get("attackers") or () for entry in entries],
    )
    chosen = {entry["verdict"].get("attacker") for entry in entries}
    for name in dict.fromkeys(one.get("name") for one in every[0] if chosen != {one.get("name")}):
        each = [one for attackers in every for one in attackers if one.get("name") == name and _blind(one)]
        scores = list(filter(None, (read((one.get("scores") or {}).get(scale)) for one in each)))
        if len(scores) == len(entries):
            yield str(name).rpartition("/")[2], pool(scores, scale).leaning(chance)


def _blind(attacker: Entry) -> bool:
    """Whether an attacker does without the truth, and is no floor."""
    return not attacker.get("oracle") and attacker.get("family") != "floor"


def _few(names: Sequence[str]) -> str:
    """``mlp, lda and logistic``; of many names how many more there are."""
    more = len(names) - NAMED
    shown = [*names[:NAMED], f"{more} more"] if more > 0 else names
    return f"{', '.join(shown[:-1])} and {shown[-1]}" if len(shown) > 1 else shown[0]


def _of_classes(about: About, entries: Sequence[Entry]) -> str:
    right, floor = _score(entries, "micro_f1"), _floor(entries, "micro_f1", "majority")
    if right is None or floor is None:
        return f"{about.who} tells {about.attribute} better than chance."
    most = _majority(entries[0])
    if right.low > floor:
        return guessed(about, right.value, most, floor)
    return ranked(about, entries[0].get("classes") or (), most)


def _of_values(about: About, entries: Sequence[Entry]) -> str:
    off, floor = _score(entries, "mae"), _floor(entries, "mae", "median")
    if off is None or floor is None:
        return f"{about.who} tells {about.attribute} better than chance."
    return within(about, off.value, floor)


def _score(entries: Sequence[Entry], measure: str) -> Measure | None:
    """A score of the verdict's attackers, over the seeds."""
    found = [read((attacker_of(entry).get("scores") or {}).get(measure)) for entry in entries]
    there = [score for score in found if score]
    return pool(there, measure) if there else None


def _floor(entries: Sequence[Entry], measure: str, kind: str) -> float | None:
    """The score of one kind of guess, without looking, over the seeds."""
    found = [read(((entry.get("floors") or {}).get(kind) or {}).get(measure)) for entry in entries]
    return average(score.value if score else None for score in found)


def _majority(entry: Entry) -> str:
    classes, counts = entry.get("classes") or [], entry.get("counts") or []
    most = max(range(len(counts)), key=counts.__getitem__, default=-1)
    return str(classes[most]) if 0 <= most < len(classes) else "the most frequent class"


def hidden(about: About, families: int, more: str = "", though: str = "") -> str:
    """Say that no attacker of so many families finds it; `though` a clause, `more` a sentence behind it."""
    several = f"No attacker of {families} families finds"
    who = several if families > 1 else "The only attacker does not find"
    called, chance = SPOKEN.get(about.scale, OTHERWISE)
    granted = f", with {' and '.join(about.grants)}" if about.grants else ""
    reached = _kept(bracketed(about.measure, PLACES))
    said = f"{who} {about.attribute} in {about.sight}{granted}: {called} {reached}, chance {chance}{though}."
    return f"{said} {more}".rstrip()


def wrong_way(about: About, classes: Sequence[str]) -> str:
    """Say that the attacker reads it turned round: it is surely below chance."""
    called, chance = SPOKEN.get(about.scale, OTHERWISE)
    reached = f"{called} {_kept(number(about.measure.value, PLACES))}, chance {chance}"
    how = f"ranks users by it the wrong way round ({reached}), so that its order, turned round, is right"
    if about.scale == "auc":
        wrong = out_of_100(1 - about.measure.value)
        how = f"given {_pair(classes)}, it takes the one for the other {wrong} times of 100 ({reached}), "
        how += "so that its answers, turned round, are right as often"
    return f"{about.who} reads {about.attribute} turned round: {how}."


def both_ways(about: About, turned: int, seeds: int) -> str:
    """Say that the attacker reads it turned round in some seeds; the measure has those turned back."""
    called, chance = SPOKEN.get(about.scale, OTHERWISE)
    reached = _kept(bracketed(about.measure, PLACES))
    return (
        f"{about.who} reads {about.attribute}, turned round in {turned} of {seeds} seeds: "
        f"{called} {reached} once those are turned, chance {chance}."
    )


def _pair(classes: Sequence[str]) -> str:
    return f"a {classes[0]} and a {classes[1]} user" if len(classes) == 2 else "one of a class and one not"


def guessed(about: About, right: float, most: str, floor: float) -> str:
    """Say for how many of 100 users the guess of a class is right, and for how many always `most` is."""
    return (
        f"{about.who} guesses {about.attribute} right for {out_of_100(right)} of 100 users "
        f"(always saying {most} is right for {out_of_100(floor)})."
    )


def ranked(about: About, classes: Sequence[str], most: str) -> str:
    """Say how often two users are told apart, where guesses are no better than the largest class.

    How often those guesses are right is not said: next to the share of the largest class it would read as if
    nothing had been found.
    """
    times = out_of_100(about.measure.value)
    return (
        f"{about.who.rstrip(',')}, given {_pair(classes)}, says which is which {times} times of 100 "
        f"(chance: 50); to guess the {about.attribute} of one user, always saying {most} serves as well."
    )


def within(about: About, off: float, floor: float) -> str:
    """Say how far a guess of a value is off on average, and without looking."""
    return (
        f"{about.who} guesses {about.attribute} to within {off:.1f} on average; without looking: {floor:.1f}."
    )


def _kept(told: str) -> str:
    """A number with a plain hyphen, as results have kept sentences from the first: same run, same bytes."""
    return told.replace("−", "-")
