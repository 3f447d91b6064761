"""The conclusion: what a family of runs comes to, in sentences that intervals decide, and in a few tiles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from veilrec.metrics.arms import Arm, Family
from veilrec.metrics.statements import Statement
from veilrec.metrics.words import amount, bare, number
from veilrec.report.topics import HISTORY, severity, touching
from veilrec.report.verdicts import MEASURES, Verdict, verdict

__all__ = ["Tile", "conclusion", "tiles"]

MOST = 4  # defences that are told one by one
Said = Mapping[tuple[str, str, str], Statement]  # by what it is about, and by both arms


class Tile(NamedTuple):
    """One number of every arm, on the first screen.

    Attributes:
        title: What it is.
        word: Which of the words that a report explains.
        note: What it is to be held against.
        rows: Each arm, its number, what stands beside it, and how bad it is.
    """

    title: str
    word: str
    note: str
    rows: Sequence[tuple[Arm, str, str, str]]


class Effect(NamedTuple):
    """What a defence does, by intervals: attributes that it hides, of which less is found, and its price."""

    arm: Arm
    hides: Sequence[str]
    lowers: Sequence[str]
    raises: Sequence[str]
    price: float | None
    compared: bool

    @property
    def rank(self) -> tuple[bool, int, int]:
        """Those that do most come first, those that learned nothing last."""
        return bool(self.arm.collapsed), -len(self.hides), -len(self.lowers)


def conclusion(family: Family, claims: Mapping[str, Sequence[Statement]]) -> list[str]:
    """Sentences: what is found without a defence, and what the defences change, as `claims` of pairs show."""
    if not family.audits:
        return []
    audit = family.audits[0]
    base = next((arm for arm in family.arms if not arm.defended), family.arms[0])
    found = {v.attribute: v for v in _verdicts(base, family, audit) if v.leaning != "none"}
    rest = [arm for arm in family.arms if arm.defended and arm is not base]
    said = {(one.about, one.first, one.second): one for one in claims.get(audit, ())}
    effects = sorted(
        (_effect(family, audit, base, arm, list(found), said) for arm in rest), key=lambda e: e.rank
    )
    return [
        _first(family, audit, base, found),
        *_second(family, effects, len(found)),
        *_third(base, rest, audit),
    ]


def tiles(family: Family) -> list[Tile]:
    """Usefulness, the worst attribute, items touched, ε and bytes, of every arm."""
    audit = family.audits[0] if family.audits else ""
    useful = [(a, number(a.utility.value if a.utility else None), "", "") for a in family.arms]
    floor = family.arms[0].floor
    found = [Tile(f"Usefulness: {family.metric}", "popularity", f"popularity {number(floor)}", useful)]
    if worst := [(a, *_worst(family, a, audit)) for a in family.arms if _verdicts(a, family, audit)]:
        found.append(Tile("Worst attribute", "AUC", "AUC; chance 0.5", worst))
    if touched := [(a, *_touched(a, audit)) for a in family.arms if touching(a, audit)]:
        found.append(Tile("Items a person touched", "AUC", "AUC; chance 0.5", touched))
    spent = [(a, _spent(a), "", "") for a in family.arms]
    if family.noisy:
        found.append(Tile("ε over the run", "ε", "small is good; none: no guarantee", spent))
    if sent := [(a, amount(_bytes(a)), "", "") for a in family.arms if _bytes(a)]:
        found.append(Tile("Sent by a device", "upload", "bytes up, each round", sent))
    return found


def _verdicts(arm: Arm, family: Family, audit: str) -> list[Verdict]:
    found = (verdict(arm, audit, attribute) for attribute in family.attributes(audit))
    return [one for one in found if one]


def _first(family: Family, audit: str, base: Arm, found: Mapping[str, Verdict]) -> str:
    """What is found out without a defence, or under the only one."""
    where = f"Under {base.label}" if base.defended else "Without a defence"
    if base.collapsed:
        return f"{where} the model has learned nothing that could leak: it is below popularity."
    tried = family.attributes(audit)
    hidden = [name for name in tried if name not in found]
    touched = touching(base, audit)
    history = touched and touched[1].leaning(0.5) != "none"
    parts = [_named(found.values())] if found else []
    parts += [f"{HISTORY} (AUC {number(touched[1].folded(0.5).value)})"] if touched and history else []
    if not parts:
        return f"{where} no attacker was shown to find {_joined(tried, 'or') or 'anything'}."
    but = f"; {_joined(hidden)} {'was' if len(hidden) == 1 else 'were'} not shown to leak" if hidden else ""
    return f"{where} an attacker finds out {_joined(parts, ', and ' if found else 'and')}{but}."


def _named(found: Any) -> str:
    """``gender, age and region (AUC up to 0.840)``."""
    all_of = list(found)
    areas = [one.leak.value for one in all_of if one.classes]
    upto = "up to " if len(areas) > 1 else ""
    score = f" (AUC {upto}{number(max(areas))})" if areas else ""
    return f"{_joined([one.attribute for one in all_of])}{score}"


def _second(family: Family, effects: Sequence[Effect], tried: int) -> Iterator[str]:
    """What each defence changes, and at which price."""
    if not effects:
        return
    if not any(one.compared for one in effects):
        yield "What the defences change cannot be told: these runs have no seeds or no audits in common."
        return
    told = [_told(family, one, tried) for one in effects[:MOST]]
    more = len(effects) - MOST
    if more > 0:
        told.append(f"{more} more {'stands' if more == 1 else 'stand'} in the table of verdicts")
    text = "; ".join(told)
    yield f"{text[:1].upper()}{text[1:]}."


def _told(family: Family, one: Effect, tried: int) -> str:
    if one.arm.collapsed:
        return f"{one.arm.label} has learned nothing: it is below popularity"
    acts = [f"hides {_all(one.hides, tried)}"] if one.hides else []
    acts += [f"lowers what is found of {_all(one.lowers, tried)}"] if one.lowers else []
    acts += [f"lets more of {_joined(one.raises)} be found"] if one.raises else []
    does = " and ".join(acts) or "hides nothing that could be shown"
    if one.price is None:
        return f"{one.arm.label} {does}, at no cost that could be shown"
    turn = "costs" if one.price > 0 else "gains"
    return f"{one.arm.label} {turn} {number(abs(one.price))} of {family.metric} and {does}"


def _third(base: Arm, rest: Sequence[Arm], audit: str) -> Iterator[str]:
    """Whether any defence covers which items a person touched, where that leaks without one."""
    before = touching(base, audit)
    there = [(arm, way[1]) for arm in rest if not arm.collapsed and (way := touching(arm, audit))]
    if base.collapsed or not before or before[1].leaning(0.5) == "none" or not there:
        return
    hide = [arm.label for arm, one in there if one.leaning(0.5) == "none"]
    if hide:
        yield f"{_joined(hide)} {'hides' if len(hide) == 1 else 'hide'} {HISTORY}."
    else:
        least = min(one.folded(0.5).value for _, one in there)
        who = "No defence here hides" if len(there) > 1 else "It does not hide"
        yield f"{who} {HISTORY} (AUC {number(least)}{' at best' if len(there) > 1 else ''})."


def _effect(family: Family, audit: str, base: Arm, arm: Arm, found: Sequence[str], said: Said) -> Effect:
    """One defence against the base, as far as paired intervals show it."""

    def shown(about: str, first: Arm, second: Arm) -> bool:
        one = said.get((about, first.label, second.label))
        return one is not None and one.shown

    less = [name for name in found if shown(name, arm, base)]
    hides = [name for name in less if (told := verdict(arm, audit, name)) and told.leaning == "none"]
    pairs = ((base, arm, 1), (arm, base, -1))
    price = next(
        (
            sign * abs(one.difference.value)
            for first, second, sign in pairs
            if (one := said.get((family.metric, first.label, second.label))) and one.shown and one.difference
        ),
        None,
    )
    lowers = [name for name in less if name not in hides]
    raises = [name for name in family.attributes(audit) if shown(name, base, arm)]
    compared = any({base.label, arm.label} == {first, second} for _, first, second in said)
    return Effect(arm, hides, lowers, raises, price, compared)


def _worst(family: Family, arm: Arm, audit: str) -> tuple[str, str, str]:
    """The number of the attribute of which most is found, its name, and how bad it is."""
    most = max(_verdicts(arm, family, audit), key=lambda v: (v.leak.value - v.chance) / (1 - v.chance))
    scale = "" if most.classes else f", {MEASURES[most.scale].short}"
    word = "" if arm.collapsed else severity(most.leak, most.chance, most.leaning)
    return number(most.leak.value), f"{most.attribute}{scale}", word


def _touched(arm: Arm, audit: str) -> tuple[str, str, str]:
    found = touching(arm, audit)
    assert found
    most = found[1].folded(0.5)
    return number(most.value), "", "" if arm.collapsed else severity(most, 0.5, found[1].leaning(0.5))


def _spent(arm: Arm) -> str:
    """The ε of a run; of a million and more it does not matter how many, since any rules nothing out."""
    if not arm.epsilon.guarantee:
        return "none"
    return "over 10⁶" if (arm.epsilon.spent or 0.0) >= 10**6 else arm.epsilon.run


def _bytes(arm: Arm) -> float:
    return fmean(float((result.traffic.get("up") or {}).get("mean") or 0) for result in arm.results)


def _all(names: Sequence[str], tried: int) -> str:
    """``all three attributes`` where it is all of several."""
    counts = {2: "two", 3: "three", 4: "four"}
    return f"all {counts.get(tried, bare(tried))} attributes" if tried == len(names) > 2 else _joined(names)


def _joined(names: Sequence[str], last: str = "and") -> str:
    """``gender, age and region``."""
    if len(names) < 2:
        return "".join(names)
    glue = last if last.startswith(",") else f" {last} "
    return f"{', '.join(names[:-1])}{glue}{names[-1]}"
