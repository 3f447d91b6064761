"""Comparison: runs side by side, and which of their differences are more than luck; without torch.

Runs that differ only by seed are one group. A statement about two groups rests on pairs of runs with the same
seed: users are resampled alike in both (the replicates in a result), and the spread between seeds widens the
interval as Student's t asks for. Drawing three seeds again and again would call every third chance a finding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from veilrec.errors import BadInput, nearest
from veilrec.metrics.alike import chosen_audit, of_one_log, refuse_mixtures
from veilrec.metrics.groups import Group, grouped
from veilrec.metrics.leaks import BEFORE, NamedRun, of_before
from veilrec.metrics.statements import Statement, statements_of

__all__ = ["Comparison", "compare"]


@dataclass(frozen=True)
class Comparison:
    """Groups and what can be said about them.

    Attributes:
        metric, protocol, users, floor: Of utility; the floor is what popularity reaches.
        audit: The protocol of the attack, or nothing.
        groups: In the order in which they were named.
        statements: What the pairs show.
        notes: What could not be compared, as sentences.
    """

    metric: str
    protocol: str
    users: int
    floor: float
    audit: str
    groups: Sequence[Group]
    statements: Sequence[Statement]
    notes: Sequence[str]


def compare(runs: Sequence[NamedRun], *, metric: str = "", audit: str = "") -> Comparison:
    """Runs side by side; nothing is merged that was measured differently.

    Raises:
        BadInput: For other data, another protocol, another threat, or the same run twice.
    """
    runs = of_one_log(runs)
    refuse_mixtures(runs)
    first = runs[0].result.utility
    metric = metric or first.select
    for run in runs:
        if metric not in run.result.utility.test:
            raise BadInput(
                "--metric", f'{run.name} has no "{metric}"', nearest(metric, run.result.utility.test)
            )
    audit = chosen_audit(runs, audit)
    groups = grouped(runs)
    floor = float(first.floor[metric])
    return Comparison(
        metric,
        first.protocol,
        first.users,
        floor,
        audit,
        groups,
        statements_of(groups, metric, [audit])[audit],
        _notes(groups, metric, audit),
    )


def _notes(groups: Sequence[Group], metric: str, audit: str) -> list[str]:
    return [*_on_attacks(groups, audit), *_on_groups(groups, metric)]


def _on_attacks(groups: Sequence[Group], audit: str) -> Iterator[str]:
    """Say who was attacked and by what else, what the attacker is given, and which scores are turned."""
    if not audit:
        yield "No run was attacked: veilrec attack RUN says what each gives away."
        return
    runs = [run for group in groups for run in group.runs.values()]
    if without := [run.name for run in runs if audit not in run.result.privacy]:
        yield f"Without audit {audit}: {', '.join(without)}."
    if others := dict.fromkeys(name for run in runs for name in run.result.privacy if name != audit):
        yield f"Also audited by {', '.join(others)}: see them with --audit NAME."
    if told := _threat(groups, audit):
        yield told
    if any(leak.turned for group in groups for leak in group.leaks(audit).values()):
        yield "Surely below chance is leakage too: such scores are turned round."


def _on_groups(groups: Sequence[Group], metric: str) -> Iterator[str]:
    """Say which groups have not learned, and where intervals or seeds are lacking."""
    for group in groups:
        if group.collapsed:
            many = f"{group.collapsed} of {len(group.runs)} runs are" if len(group.runs) > 1 else "the run is"
            yield f"{group.label}: {many} below the popularity floor; low leakage is not ranked."
    if any(one is None or not one.sure for one in (group.mean(metric) for group in groups)):
        yield f"No resamples of {metric} are in the results: no interval, and no difference claimed."
    fewest = min(len(group.runs) for group in groups)
    if len(groups) > 1 and fewest < 3:
        yield f"{fewest} seed{'s' if fewest > 1 else ''} in a group: three or more tell a defence from luck."


def _threat(groups: Sequence[Group], audit: str) -> str:
    """A sentence on what the audit's attacker is granted, or knows and nobody can."""
    runs = [
        run.result.privacy[audit] for g in groups for run in g.runs.values() if audit in run.result.privacy
    ]
    granted = list(dict.fromkeys(str(grant) for one in runs for grant in one.get("grants") or ()))
    said = f"Audit {audit} grants the attacker {', and '.join(granted)}." if granted else ""
    chosen = (
        f" Audit {audit} chooses with the truth in hand: an oracle."
        if any(r.get("oracle") for r in runs)
        else ""
    )
    before = f" Audit {audit}: {BEFORE}." if any(map(of_before, runs)) else ""
    return (said + chosen + before).strip()
