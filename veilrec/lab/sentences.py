"""Sentences: one finding in plain words, beside what guessing without looking reaches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from veilrec.attack import GRANTS
from veilrec.lab.threat import Threat
from veilrec.lab.trials import Goal

if TYPE_CHECKING:
    from veilrec.lab.verdict import Tried

__all__ = ["sentence"]

FAILED = " The attacker that this goes by says the same of everybody: it has failed, and tells nothing."


def sentence(
    goal: Goal, worst: Tried, leaning: str, floors: Mapping[str, Any], families: int, threat: Threat
) -> str:
    """What the worst attacker found out; what it was granted is said, and nothing is claimed that is luck."""
    sight = "user vectors" if getattr(worst.attack, "reads", "") == "embeddings" else "uploads"
    grants = " and ".join(GRANTS[grant] for grant in threat.grants)
    who = f"An attacker who sees the {sight}" + (f", and was granted {grants}," if grants else "")
    if leaning == "none":
        return _nothing(goal, worst, sight, families, f", with {grants}" if grants else "")
    if leaning == "below":
        score = worst.scores["auc" if goal.classes else "spearman"].value
        what = "AUC" if goal.classes else "rank correlation"
        return (
            f"{who} ranks {goal.name} the wrong way round more often than chance ({what} {score:.2f}): "
            f"whoever turns the answer round has learned it."
        )
    return _something(goal, worst, who, floors) if goal.classes else _value(goal, worst, who, floors)


def _nothing(goal: Goal, worst: Tried, sight: str, families: int, grants: str) -> str:
    several = families > 1
    name = f"No attacker of {families} families finds" if several else "The only attacker does not find"
    key, chance, what = ("auc", "0.50", "AUC") if goal.classes else ("spearman", "0", "rank correlation")
    score = worst.scores[key]
    same = goal.classes and score.value == score.low == score.high == 0.5 and worst.notes.get("kept") != 0
    return (
        f"{name} {goal.name} in the {sight}{grants}: "
        f"{what} {score.value:.2f} [{score.low:.2f}, {score.high:.2f}], chance {chance}."
        + (FAILED if same else "")
    )


def _value(goal: Goal, worst: Tried, who: str, floors: Mapping[str, Any]) -> str:
    off, floor = worst.scores["mae"].value, floors["median"]["mae"]
    return f"{who} guesses {goal.name} to within {off:.1f} on average; without looking: {floor:.1f}."


def _something(goal: Goal, worst: Tried, who: str, floors: Mapping[str, Any]) -> str:
    right, majority = worst.scores["micro_f1"], floors["majority"]["micro_f1"]
    most = str(goal.names[int(torch.bincount(goal.label[goal.label >= 0]).argmax())])
    if right.low > majority:
        return (
            f"{who} guesses {goal.name} right for {round(100 * right.value)} of 100 users; "
            f"always guessing {most}: {round(100 * majority)}."
        )
    pair = (
        f"a {goal.names[0]} and a {goal.names[1]} user" if goal.classes == 2 else "one of a class and one not"
    )
    told, times = who.rstrip(","), round(100 * worst.scores["auc"].value)
    return (
        f"{told}, given {pair}, says which is which {times} times of 100 "
        f"(chance: 50); guessing everyone's {goal.name} it is right for {round(100 * right.value)} of 100, "
        f"always guessing {most} for {round(100 * majority)}."
    )
