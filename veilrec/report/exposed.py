"""Who is most exposed: of how many people of each class an attacker is sure, arm by arm."""

from __future__ import annotations

from typing import NamedTuple

from veilrec.metrics.arms import Arm, Family
from veilrec.metrics.measures import Measure, gathered, pool, read
from veilrec.metrics.words import ABSENT, number
from veilrec.report.figures import PageTable
from veilrec.report.verdicts import verdict

__all__ = ["exposed", "most_exposed"]

SURE = 0.01  # what chance gives: as many as are accused wrongly


class Class(NamedTuple):
    """The people of one class, and the share of them of whom an attacker is sure."""

    users: int
    share: Measure

    def __str__(self) -> str:
        people = round(self.share.value * self.users)
        if not self.share.sure:
            return f"{people} of {self.users}"
        low, high = (round(end * self.users) for end in (self.share.low, self.share.high))
        return f"{people} of {self.users} [{low}, {high}]"


def exposed(family: Family, audit: str) -> PageTable:
    """A row for each class of each attribute, a column for each arm; no rows where runs do not say it."""
    rows = []
    for attribute in family.attributes(audit):
        by_arm = [_classes(arm, audit, attribute) for arm in family.arms]
        for name in dict.fromkeys(name for found in by_arm for name in found):
            cells = [str(found[name]) if name in found else ABSENT for found in by_arm]
            rows.append([f"{attribute}: {name}", *cells])
    head = ["people", *(arm.label for arm in family.arms)]
    return PageTable(head, rows, (0,), "People of whom the attacker is sure, of those attacked [95 %]")


def most_exposed(family: Family, audit: str) -> str:
    """Name the class of which the largest share is found surely; nothing where no share is above chance."""
    found = [
        (one, f"{attribute}: {name}", arm)
        for arm in family.arms
        if not arm.collapsed
        for attribute in family.attributes(audit)
        for name, one in _classes(arm, audit, attribute).items()
        if one.share.sure and one.share.low > SURE
    ]
    if not found:
        return ""
    one, name, arm = max(found, key=lambda each: each[0].share.low)
    under = arm.label if not arm.defended else f"under {arm.label}"
    return (
        f"Most exposed are people of {name} ({under}): an attacker is sure of "
        f"{round(one.share.value * one.users)} of {one.users}. It finds them while one in a hundred of the "
        f"others is taken for one of them; chance would give {number(SURE * one.users, 0)}."
    )


def _classes(arm: Arm, audit: str, attribute: str) -> dict[str, Class]:
    """The classes of an attribute that the verdict's attacker finds, over the seeds."""
    told = verdict(arm, audit, attribute)
    if told is None or told.leaning != "above":
        return {}
    found = gathered(
        (str(group["group"]), (int(group.get("users") or 0), share))
        for entry in told.entries
        for group in entry.get("groups") or ()
        if group.get("by") == attribute and (share := read(group.get("tpr_at_1")))
    )
    return {
        name: Class(seeds[0][0], pool([share for _, share in seeds], "tpr_at_1"))
        for name, seeds in found.items()
    }
