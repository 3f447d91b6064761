"""Along: what attackers find while a model is trained, at each look at the validation items.

It is a curve beside the others, and only that: no state is selected by it, and no defence stops by it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from veilrec.engine.probe import public, see
from veilrec.errors import BadInput
from veilrec.interactions import Interactions
from veilrec.lab.lab import Audit, People, audit, fitting
from veilrec.lab.presets import preset
from veilrec.lab.threat import Threat
from veilrec.protocol import State
from veilrec.rounds import Federation

__all__ = ["MARK", "Along", "unattacked"]

MARK = "bacc@"  # before the name of an attribute: balanced accuracy of the attacker that the verdict goes by
REPEATS = 5  # draws of known users, where the protocol has more: there are many looks
RESAMPLES, PERMUTATIONS = 100, 99  # as few as may be: nothing of them is kept


@dataclass(frozen=True)
class Along:
    """Attacks each state that is looked at.

    Attributes:
        data: The log; its attributes are the truth that attacks are judged by.
        audit: The protocol.
        seed: Of known users and attackers.
    """

    data: Interactions
    audit: Audit
    seed: int = 0

    @classmethod
    def of(cls, data: Interactions, threat: Threat, seed: int) -> Along:
        """The protocol that a threat names, with fewer draws and without what a curve has no use for.

        Raises:
            BadInput: Where there is no such protocol, or one that reads rounds of training that were kept.
        """
        named = preset(threat.along, threat.attributes, "threat.along")
        if any(one.kept for attack in named.attacks.values() for one in attack.unfold().values()):
            what = f'"{threat.along}" reads rounds that were kept, and none is while a model is trained'
            raise BadInput("threat.along", what, "name a protocol that reads the state, as fedau2 does")
        repeats = min(REPEATS, named.threat.repeats)
        short = replace(named.threat, repeats=repeats, by_part=False, membership=False)
        short = replace(short, resamples=RESAMPLES, permutations=PERMUTATIONS)
        return cls(data, replace(named, threat=short), seed)

    def look(self, federation: Federation, state: State) -> dict[str, float]:
        """The balanced accuracy on each attribute with classes, as ``bacc@gender``."""
        one, seen = self.audit, see(federation, state, self.audit.threat.grants)
        able = fitting(one, public(federation))
        people = self.people.sharing(federation.clients)
        found = audit(seen, people, one.threat, able, self.seed, sound=False)["attributes"]
        scores = {name: _score(entry) for name, entry in found.items()}
        return {f"{MARK}{name}": score for name, score in scores.items() if score is not None}

    @cached_property
    def people(self) -> People:
        """The truth."""
        return People.of(self.data)


def unattacked(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows of metrics without what attackers found: what may decide how training goes on."""
    return [{name: value for name, value in row.items() if not name.startswith(MARK)} for row in rows]


def _score(entry: Mapping[str, Any]) -> float | None:
    """Balanced accuracy of the verdict's attacker; None where nobody answers, or there are no classes."""
    name = (entry["verdict"] or {}).get("attacker")
    told = next((one for one in entry["attackers"] if one["name"] == name), None)
    found = told["scores"].get("balanced_accuracy") if told else None
    return None if found is None else float(found["value"])
