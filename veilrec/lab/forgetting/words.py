"""Words: what a receipt says in sentences, for people who do not read tables.

No sentence has two numbers of which one seems to deny the other: where nothing is found there is no number,
and what is found stands beside that of before, in the same unit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from veilrec.metrics.measures import SURE
from veilrec.metrics.words import out_of_100

__all__ = ["Left", "by_chance", "conclusion", "left", "limits"]

Look = Mapping[str, Any]
SLIGHT = 0.02  # leakage that differs by less is told as the same


class Left(NamedTuple):
    """What an erasure left of one attribute.

    Attributes:
        name, classes: Of the attribute.
        before: The look that told most before; None where none told anything.
        after: The same of after.
        vectors: Whether all that was to be looked at was: of those who asked, by who knows all others.
        lists: Whether the lists tell it, None where nobody looked.
        difference: Whether old and new vectors together tell it; None where nobody looked.
        history: Whether what users touched tells it; None where nobody looked.
    """

    name: str
    classes: Sequence[str]
    before: Look | None
    after: Look | None
    vectors: bool
    lists: bool | None
    difference: bool | None
    history: bool | None

    @property
    def pair(self) -> str:
        """``a M and a F user``."""
        several = len(self.classes) != 2
        return "one of a class and one not" if several else f"one {self.classes[0]} and one {self.classes[1]}"


def left(name: str, entry: Mapping[str, Any]) -> Left:
    """Sum up what a receipt has about one attribute."""
    rows = list(entry["vectors"])
    asked = entry.get("requesters") or {}
    before = [row["before"] for row in rows] + [asked[key] for key in ("before",) if key in asked]
    after = [row["after"] for row in rows] + [asked[key] for key in ("naive", "adaptive") if key in asked]
    lists = [row["after"] for row in entry.get("lists") or ()]
    both = (entry.get("difference") or {}).get("both")
    return Left(
        name,
        entry.get("classes") or (),
        _most(before),
        _most(after),
        all("auc" in look for look in (after[len(rows) :] if asked else after)),
        _tells(lists),
        _tells([both] if both else []),
        _tells([entry["history"]] if entry.get("history") else []),
    )


def _most(looks: Iterable[Look]) -> Look | None:
    """The look that is surely furthest from chance; None where none surely is."""
    sure = [look for look in looks if look.get("leaning") in ("above", "below")]
    return max(sure, key=lambda look: float(look["leakage"]), default=None)


def _tells(looks: Sequence[Look]) -> bool | None:
    if _most(looks):
        return True
    return False if looks and all("auc" in look for look in looks) else None


def by_chance(entries: Iterable[Mapping[str, Any]]) -> str:
    """Say how many looks at what is left there were, and how many chance would raise if nothing were."""
    several = [look for entry in entries for look in _after(entry) if "auc" in look]
    if not several:
        return ""
    looks = f"{len(several)} looks" if len(several) > 1 else "1 look"
    return f"{looks} at what is left; if nothing were, chance alone would raise {SURE * len(several):.2g}."


def _after(entry: Mapping[str, Any]) -> list[Look]:
    """What was looked at after an erasure, and should tell nothing any more."""
    asked = entry.get("requesters") or {}
    vectors = [row["after"] for row in entry["vectors"]]
    vectors += [asked[key] for key in ("naive", "adaptive") if key in asked]
    return vectors + [row["after"] for row in entry.get("lists") or ()]


def conclusion(found: Sequence[Left]) -> list[str]:
    """Two sentences: what the vectors still tell, and what else does."""
    return [_of_vectors(found), _of_the_rest(found)]


def _of_vectors(found: Sequence[Left]) -> str:
    told = [one for one in found if one.after is not None]
    unknown = [one for one in found if not one.vectors and one.after is None]
    clean = [one for one in found if one.after is None and one.vectors]
    if not told and not clean:
        return f"Whether the vectors still tell {_all(found)} could not be measured in full."
    said = [_told(told)] if told else []
    if clean:
        said.append(f"no attacker that was tried reads {_any(clean)} from the vectors{_from(clean)}")
    if unknown:
        said.append(f"of {_all(unknown)} it could not be measured in full")
    return _sentence("; ".join(said))


def _from(clean: Sequence[Left]) -> str:
    """``any longer; before, …``: what there was to be erased."""
    if len(clean) > 1 or clean[0].before is None:
        known = any(one.before is not None for one in clean)
        return " any longer" if known else ", and none did before"
    return f" any longer (before: {_right(clean[0].before)} of 100 pairs told apart)"


def _told(told: Sequence[Left]) -> str:
    """The attribute of which most is left, with the number before in the same unit; the others by name."""
    worst = max(told, key=lambda one: float(one.after["leakage"]) if one.after else 0.0)
    assert worst.after is not None
    others = [one for one in told if one is not worst]
    lead = f"the vectors still tell {_all([worst, *others])}"
    how = ", with its answers turned round," if worst.after["turned"] else ""
    of_which = f" of {worst.name}" if others else ""
    said = f"{lead}: given {worst.pair}{of_which}, the best attacker{how} says which is which "
    said += f"{_right(worst.after)} times of 100"
    return f"{said}, {_beside(worst)}"


def _beside(one: Left) -> str:
    now = float(one.after["leakage"]) if one.after else 0.0
    was = float(one.before["leakage"]) if one.before else 0.0
    if one.before is None:
        return "and before nobody could"
    if abs(now - was) < SLIGHT:
        return "as before"
    return (
        f"{'more' if now > was else 'less'} than before ({_right(one.before)}); a coin would say it 50 times"
    )


def _right(look: Look) -> str:
    """How often of 100 two users are told apart, by answers that are turned round where they must be."""
    return out_of_100(0.5 + float(look["leakage"]))


def _of_the_rest(found: Sequence[Left]) -> str:
    """What tells the attributes beside the vectors; forgotten they are only where nothing does."""
    stay = f"the history of what users touched stays, and {_history(found)}"
    listed = [one for one in found if one.lists]
    unseen = [one for one in found if one.lists is None]
    if listed:
        return _sentence(f"the lists that users are shown still tell {_all(listed)}; {stay}")
    if unseen:
        said = f"whether the lists that users are shown tell {_all(unseen)} was not looked at"
        return _sentence(f"{said}; {stay}")
    if any(one.after is not None or not one.vectors for one in found):
        return _sentence(f"no attacker that was tried reads it from the lists that users are shown; {stay}")
    if all(one.before is None for one in found):
        return _sentence(f"nor do the lists tell it, so that nothing was seen to go; {stay}")
    return _sentence(f"nor do the lists tell it: this model has forgotten {_all(found)}, but {stay}")


def _history(found: Sequence[Left]) -> str:
    told = [one for one in found if one.history]
    return f"{_all(told)} can be read from it" if told else "may tell it"


def limits(found: Sequence[Left], who: Look | None = None, *, keyed: bool = False) -> list[str]:
    """What a receipt is not, and what it does not rule out."""
    names = _all(found)
    said = [
        f"Nothing but {names} was erased, as attackers infer it, and only from vectors that stand for users.",
        f"The history of what users touched stays where it was, and {_history(found)}.",
        "This is no deletion of data under any law, and no proof: it says what these attackers found.",
    ]
    copies = [one for one in found if one.difference]
    if copies:
        said.append(
            f"Whoever has a copy of the vectors from before reads {_all(copies)} from what changed: "
            "copies that are out undo this erasure."
        )
    if who and _most([who["after"]]):
        said.append("Who asked can be told from the vectors: to ask is to be seen.")
    if keyed:
        said.append("Not for release: draws came from a seed, and whoever knows it can undo a part of this.")
    return said


def _all(found: Sequence[Left]) -> str:
    return _joined([one.name for one in found], "and")


def _any(found: Sequence[Left]) -> str:
    return _joined([one.name for one in found], "or")


def _joined(names: Sequence[str], word: str) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    *most, last = names
    return f"{', '.join(most)} {word} {last}" if most else last


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."
