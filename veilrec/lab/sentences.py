"""Sentences: the finding of one run in plain words, from the numbers of the judge."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from veilrec.attack import GRANTS
from veilrec.lab.threat import Threat
from veilrec.lab.trials import Goal
from veilrec.metrics.measures import Measure
from veilrec.metrics.sentences import About, guessed, hidden, ranked, sight, within, wrong_way

if TYPE_CHECKING:
    from veilrec.lab.verdict import Tried

__all__ = ["sentence"]

FAILED = "The attacker that this goes by says the same of everybody: it has failed, and tells nothing."


def sentence(
    goal: Goal, worst: Tried, leaning: str, floors: Mapping[str, Any], families: int, threat: Threat
) -> str:
    """Say what the worst attacker found out, beside what guessing without looking reaches."""
    scale, scores = "auc" if goal.classes else "spearman", worst.scores
    found = Measure(scores[scale].value, scores[scale].low, scores[scale].high)
    grants = [GRANTS[grant] for grant in threat.grants]
    about = About(goal.name, sight(getattr(worst.attack, "reads", "")), grants, scale, found)
    if leaning == "none":
        return hidden(about, families, FAILED if _mute(goal, worst, found) else "")
    if leaning == "below":
        return wrong_way(about)
    if not goal.classes:
        return within(about, scores["mae"].value, floors["median"]["mae"])
    right, majority = scores["micro_f1"], floors["majority"]["micro_f1"]
    most = str(goal.names[int(torch.bincount(goal.label[goal.label >= 0]).argmax())])
    if right.low > majority:
        return guessed(about, right.value, most, majority)
    return ranked(about, goal.names[: goal.classes], right.value, most, majority)


def _mute(goal: Goal, worst: Tried, found: Measure) -> bool:
    """Whether the attacker says the same of everybody, though users differ in some column."""
    same = found.value == found.low == found.high == 0.5
    return bool(goal.classes) and same and worst.notes.get("kept") != 0
