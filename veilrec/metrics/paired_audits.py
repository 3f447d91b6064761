"""Two audits of the same people in pairs: which attributes leak less after than before, and by how much."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from veilrec.errors import BadInput
from veilrec.metrics.measures import Measure, difference, surprise
from veilrec.metrics.statements import holm, resamples_for
from veilrec.metrics.vector_audits import VectorAudit, VectorFinding
from veilrec.metrics.words import bracketed, number

__all__ = ["AuditChange", "PairedAudits", "paired"]


@dataclass(frozen=True)
class AuditChange:
    """One attribute in two audits.

    Attributes:
        before, after: What each says of it.
        difference: After minus before, on the same resamples of the same people.
        p: The smallest share of misses at which its interval leaves out zero.
        shown: Whether the claim stands among all of them (Holm).
        sentence: The finding in plain words.
    """

    before: VectorFinding
    after: VectorFinding
    difference: Measure
    p: float
    shown: bool
    sentence: str

    @property
    def attribute(self) -> str:
        """What was attacked."""
        return self.before.attribute

    def plain(self) -> dict[str, Any]:
        """The change for machines."""
        return {
            "attribute": self.attribute,
            "score": self.before.leak.score,
            "before": self.before.leak.measure.plain(),
            "after": self.after.leak.measure.plain(),
            "difference": self.difference.plain(),
            "p": self.p,
            "shown": self.shown,
            "sentence": self.sentence,
        }


@dataclass(frozen=True)
class PairedAudits:
    """What two audits show about each other.

    Attributes:
        names: What the two are called.
        users: How many people they are about.
        changes: By attribute, in the order of the first audit's findings.
        notes: What could not be compared, and what a comparison does not tell.
    """

    names: tuple[str, str]
    users: int
    changes: Sequence[AuditChange]
    notes: Sequence[str]

    def plain(self) -> dict[str, Any]:
        """The comparison for machines."""
        changes = [change.plain() for change in self.changes]
        before, after = self.names
        return {
            "before": before,
            "after": after,
            "users": self.users,
            "changes": changes,
            "notes": list(self.notes),
        }


def paired(before: VectorAudit, after: VectorAudit) -> PairedAudits:
    """Two audits of the same people, made alike.

    Raises:
        BadInput: Where they are about other people, or were made by other protocols.
    """
    _refuse_unlike(before, after)
    there = {one.attribute: one for one in after.findings}
    pairs = [(one, there[one.attribute]) for one in before.findings if one.attribute in there]
    if not pairs:
        raise BadInput(f"{before.name} and {after.name}", "no attribute is in both", "audit the same ones")
    sides = [(_side(one), _side(other)) for one, other in pairs]
    chances = [surprise(second, first) for first, second in sides]
    few = any(one.leak.measure.replicates.size < resamples_for(len(pairs)) for one, _ in pairs)
    limit = 0.0 if few and len(pairs) > 1 else holm(chances)
    changes = [
        _change(one, other, p, limit, len(pairs)) for (one, other), p in zip(pairs, chances, strict=True)
    ]
    users = int(before.values["vectors"]["users"])
    return PairedAudits((before.name, after.name), users, changes, _notes(before, after))


def _side(one: VectorFinding) -> Mapping[int, Measure]:
    return {0: one.leak.measure}


def _change(one: VectorFinding, other: VectorFinding, p: float, limit: float, claims: int) -> AuditChange:
    measure = difference(_side(other), _side(one))
    if measure is None:
        fix = "audit both again with this version"
        raise BadInput(one.attribute, "an audit without resamples of its users cannot be paired", fix)
    apart = measure.leaning(0.0) != "none"
    shown = apart and p <= limit
    numbers = f"{one.leak.spoken} {number(one.leak.measure.value)} before, "
    numbers += f"{number(other.leak.measure.value)} after, difference {bracketed(measure, sign=True)}"
    if shown:
        said = f"{one.attribute} leaks {'more' if measure.value > 0 else 'less'} after: {numbers}"
    else:
        said = f"{one.attribute}: no difference shown: {numbers}"
    doubt = (
        f"; p {p:.3f} alone is not sure enough among {claims} claims (Holm)" if apart and not shown else ""
    )
    left = "" if other.shown or not one.shown else " These attackers find nothing of it any more."
    return AuditChange(one, other, measure, p, shown, f"{said}{doubt}.{left}")


def _refuse_unlike(before: VectorAudit, after: VectorAudit) -> None:
    """Refuse two audits whose difference would be one of people, or of the way they were made."""
    names = f"{before.name or 'before'} and {after.name or 'after'}"
    marks = {before.audit["people"], after.audit["people"]}
    if "" in marks:
        what = "too little is known about too few people to pair them without telling who they are"
        raise BadInput(names, what, "audit more people, or more attributes at once")
    if len(marks) > 1:
        fix = "audit the same users with the same file about them, and the same attributes"
        raise BadInput(names, "audits of other people, or other labels", fix)
    for what, one, other in _terms(before, after):
        if one != other:
            raise BadInput(names, f"not made alike: {what} is {one} and {other}", "audit both alike")


def _terms(before: VectorAudit, after: VectorAudit) -> list[tuple[str, Any, Any]]:
    """What must be the same in both."""
    one, other = before.audit["threat"], after.audit["threat"]
    terms = [(key, one.get(key), other.get(key)) for key in sorted({*one, *other})]
    terms.append(("seed", before.values["seed"], after.values["seed"]))
    return [*terms, ("who attacks", _attackers(before), _attackers(after))]


def _attackers(audit: VectorAudit) -> str:
    every = {one["name"] for entry in audit.audit["attributes"].values() for one in entry["attackers"]}
    return ", ".join(sorted(every))


def _notes(before: VectorAudit, after: VectorAudit) -> list[str]:
    first, second = ([one.attribute for one in audit.findings] for audit in (before, after))
    notes = [f"{name} is in one of the two only: not compared." for name in {*first} ^ {*second}]
    told = (
        "True of these two files; vectors of another training may differ. How useful the vectors still are, "
    )
    return [*sorted(notes), f"{told}an audit does not tell: measure that as well."]
