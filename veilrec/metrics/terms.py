"""Terms: the protocol under which a finding holds, so that nobody reads it without."""

from __future__ import annotations

from typing import NamedTuple

from veilrec.metrics.arms import Arm, Family
from veilrec.metrics.leaks import only_read

__all__ = ["Terms", "protocols", "terms"]

ORACLE = "oracle: chosen with the truth in hand"


class Terms(NamedTuple):
    """The protocol under which a finding holds."""

    audit: str
    grants: list[str]
    oracle: bool
    readers: bool = False  # whether nobody learns, so that the verdict is the one who reads most

    def __str__(self) -> str:
        granted = f"granted: {', and '.join(self.grants)}" if self.grants else "nothing granted"
        chosen = "nobody learns: the one who reads most" if self.readers else "chosen without the truth"
        return f"Audit {self.audit}; {granted}; {ORACLE if self.oracle else chosen}"


def terms(arm: Arm, audit: str) -> Terms:
    """Grants to the attackers of an audit in any run of an arm, and whether the truth chose them."""
    found = [result.privacy[audit] for result in arm.results if audit in result.privacy]
    grants = dict.fromkeys(str(grant) for one in found for grant in one.get("grants") or ())
    entries = [entry for one in found for entry in (one.get("attributes") or {}).values()]
    readers = only_read(attacker for entry in entries for attacker in entry.get("attackers") or ())
    return Terms(audit, list(grants), any(bool(one.get("oracle")) for one in found), readers)


def protocols(family: Family, audit: str) -> list[str]:
    """The protocols that arms were audited under by that name: one, unless they were not made alike."""
    there = [arm for arm in family.arms if any(audit in result.privacy for result in arm.results)]
    return list(dict.fromkeys(str(terms(arm, audit)) for arm in there))
