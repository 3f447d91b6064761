"""Fits: what is held at once against what there is; what cannot fit is refused with the setting to lower."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from veilrec.base.limits.machine import Room
from veilrec.errors import BadInput

__all__ = ["Need", "refuse"]

SURE = 0.8  # of an estimate: what is refused would not fit even if so much less were needed than it says
MB = 1e6


@dataclass(frozen=True)
class Need:
    """One thing that is held.

    Attributes:
        name: What it is, in words.
        bytes: How large.
        setting: The setting it grows with, in proportion; empty for none.
        value: That setting's value, as far as it counts.
        certain: Whether it is there already, and no estimate.
    """

    name: str
    bytes: int
    setting: str = ""
    value: float = 0
    certain: bool = False


def refuse(name: str, parts: Sequence[Need], room: Room) -> None:
    """Refuse what cannot fit into the memory that this process may have in all.

    Raises:
        BadInput: Naming the setting to lower, and to what.
    """
    needed, certain = _total(parts), _total([part for part in parts if part.certain])
    if certain + SURE * (needed - certain) <= room.bytes:
        return
    what = (
        f"{name} needs about {needed / MB:,.0f} MB of memory, "
        f"and there are {room.bytes / MB:,.0f} ({room.limit})"
    )
    grown: dict[str, list[Need]] = {}
    for part in parts:
        grown.setdefault(part.setting, []).append(part)
    grown.pop("", None)
    if not grown:
        raise BadInput("memory", what, "run it where there is more, or on fewer users and items")
    worst = max(grown.values(), key=_total)
    where = f"{what}, most of it for {max(worst, key=lambda part: part.bytes).name}"
    raise BadInput(worst[0].setting, where, _fix(worst[0], _total(worst), needed - room.bytes))


def _total(parts: Sequence[Need]) -> int:
    return sum(part.bytes for part in parts)


def _fix(part: Need, whole: int, over: int) -> str:
    """What to lower a setting to, so that all that grows with it is smaller by as much as is over."""
    if part.setting == "plan.keeps":
        return 'set it to "disk"'
    enough = int(part.value * (whole - over) / max(1, whole))
    if enough < 1:
        return "lower it, and take fewer users and items, or a machine with more memory"
    rounded = enough - enough % 10 ** max(0, len(str(enough)) - 2)
    return f"lower it from {part.value:,.0f} to {rounded:,}"
