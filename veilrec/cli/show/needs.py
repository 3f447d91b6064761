"""What a run needs, as people read it: ``veilrec run RECIPE --plan``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from veilrec.cli.show.tables import console, table

if TYPE_CHECKING:
    from veilrec.runs.needs.phases import Needs

__all__ = ["print_needs"]

SMALL = 0.01  # of a phase: parts below are not named


def print_needs(recipe: str, found: Sequence[tuple[Mapping[str, Any], Needs]]) -> None:
    """The needs of the run that takes most, and how many runs there are."""
    settings, most = max(found, key=lambda one: max(phase.bytes for phase in one[1].ahead))
    out, facts, peak = console(), most.facts, most.peak
    told = ", ".join(f"{key} = {value}" for key, value in settings.items())
    if len(found) > 1:
        out.print(f"{len(found)} kinds of run, one after another; this one needs most: {told}")
    out.print(
        f"{recipe}: {facts['rounds']:,} rounds of {facts['cohort']:,} of {facts['clients']:,} devices, "
        f"{facts['looks']:,} looks; {facts['items']:,} items, {facts['events']:,} events to train on"
    )
    shown = table("phase", "MB", "of which", right=("MB",))
    for phase in most.phases:
        shown.add_row(phase.name, megabytes(phase.bytes), _parts(phase.parts, phase.bytes))
    out.print(shown)
    out.print(
        f"peak: {megabytes(peak.bytes)} MB, in {peak.name}; this process may have "
        f"{megabytes(most.room.bytes)} MB ({most.room.limit})"
    )
    disk = sum(part.bytes for part in most.disk)
    out.print(f"on the disk: about {megabytes(disk)} MB a run ({_parts(most.disk, disk)})")
    for note in most.notes:
        out.print(note)


def megabytes(count: int) -> str:
    """Bytes as people count them."""
    return f"{count / 1e6:,.0f}" if count >= 1e7 or not count else f"{count / 1e6:,.1f}"


def _parts(parts: Sequence[Any], whole: int) -> str:
    """The parts that count, the largest first."""
    some = sorted((part for part in parts if part.bytes > SMALL * whole), key=lambda part: -part.bytes)
    return "; ".join(f"{part.name} {megabytes(part.bytes)}" for part in some)
