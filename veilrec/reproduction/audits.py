"""Audits that a recipe asks for by now and a finished run does not have: they need no training."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from veilrec.errors import BadInput
from veilrec.lab.presets import PRESETS, preset
from veilrec.metrics.alike import FREE
from veilrec.recipe.settings import shown
from veilrec.reproduction.cells import PaperCell
from veilrec.reproduction.numbers import WORST
from veilrec.result import Result

__all__ = ["Lack", "attacks", "lacking"]


class Lack(NamedTuple):
    """An audit that a finished run should have: of which cell, which one, and what is wrong with it."""

    cell: str
    audit: str
    why: str

    def command(self, out: Path) -> str:
        """The command that makes what is lacking, where the runs lie in `out`."""
        return f"veilrec attack {(out / self.cell).as_posix()} --preset {self.audit}"


def attacks(audit: str, attacker: str) -> bool:
    """Whether an audit has an attacker of a name; one that somebody put together may have any."""
    found = PRESETS.get(audit.partition("@")[0])
    if found is None or attacker == WORST:
        return True
    return attacker in {name or entry for entry, one in found.attacks.items() for name in one.unfold()}


def lacking(cell: PaperCell, result: Result) -> list[Lack]:
    """Audits that are not in a result, or were made by another protocol than their name stands for now."""
    try:
        threat = cell.recipe(has_data=False).values["threat"]
    except BadInput:  # a recipe that cannot be read is told with the settings that differ
        return []
    found = []
    for name in threat["also"]:
        audit = preset(name, threat["attributes"])
        if audit.name not in result.privacy:
            found.append(Lack(cell.name, audit.name, "not made"))
            continue
        then = result.privacy[audit.name].get("threat") or {}
        now = {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(audit.threat).items()}
        told = [
            f"{key} was {shown(then[key])}, is {shown(value)}"
            for key, value in now.items()
            if key in then and then[key] != value and key not in FREE
        ]
        found += [Lack(cell.name, audit.name, "; ".join(told))] if told else []
    return found
