"""Audits of anyone's vectors, as they are saved: which attributes leak, how badly; readable without torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from veilrec.base.files import read_json, write_json
from veilrec.base.limits.schema import (
    Check,
    Wrong,
    anything,
    listed,
    number,
    numbers,
    one_of,
    or_none,
    table,
    text,
    whole,
)
from veilrec.errors import BadInput, Corrupted
from veilrec.metrics.leaks import Leak
from veilrec.metrics.measures import read
from veilrec.metrics.words import bracketed
from veilrec.runs.integrity.results import AUDIT

__all__ = ["KIND", "SEVERITIES", "VERSION", "VectorAudit", "VectorFinding", "severity"]

KIND, VERSION = "audit of vectors", 1
SEVERITIES = {"high": 0.5, "medium": 0.2, "low": 0.0}  # from which share of the way to certainty on
CHANCE = {"auc": 0.5, "spearman": 0.0}

TEXT, COUNT = text(), whole()
ENDS = table(dict.fromkeys(("value", "low", "high"), number()), rest=anything)
SCORES = table(rest=ENDS)


def _verdict(value: Any, place: str) -> None:
    """What is told of a verdict: its own score has a number with its ends."""
    needs: dict[str, Check] = {
        "attacker": TEXT,
        "sentence": TEXT,
        "families": listed(TEXT),
        "leaning": one_of("above", "below", "none"),
        "score": one_of(*CHANCE),
        "replicates": numbers(),
    }
    table(needs, rest=anything)(value, place)
    table({value["score"]: ENDS}, rest=anything)(value, place)


CONTROL = table(
    {
        "users": COUNT,
        "score": one_of(*CHANCE),
        "main": SCORES,
        "control": SCORES,
        "blind": table(rest=number()),
        "difference": ENDS,
        "sentence": TEXT,
    }
)
ATTRIBUTE = table(
    {
        "kind": one_of("class", "value"),
        "known": COUNT,
        "targets": COUNT,
        "floors": table(rest=table(rest=number())),
        "attackers": listed(
            table({"name": TEXT, "scores": SCORES, "p": or_none(number(0, 1))}, rest=anything)
        ),
        "verdict": or_none(_verdict),
    },
    may={
        "classes": listed(TEXT),
        "counts": listed(COUNT),
        "range": numbers(),
        "mean": number(),
        "control": CONTROL,
        "groups": listed(table({"by": TEXT, "group": TEXT, "users": COUNT, "micro_f1": ENDS}, rest=anything)),
    },
    rest=anything,
)
THREAT = table({"known": number(0, 1), "repeats": whole(1)}, rest=anything)
SAVED = table(
    {
        "kind": one_of(KIND),
        "version": whole(),
        "vectors": table({"file": TEXT, "users": COUNT, "width": COUNT}, may={"tensor": TEXT}),
        "attributes": table({"file": TEXT}),
        "seed": whole(-(1 << 63), (1 << 64) - 1),
        "notes": listed(TEXT),
        "audit": table(
            {"attributes": table(rest=ATTRIBUTE), "people": text(64), "threat": THREAT}, rest=anything
        ),
    },
    may={"control": table({"file": TEXT, "users": COUNT}), "options": listed(TEXT)},
)


class VectorFinding(NamedTuple):
    """What an audit says of one attribute.

    Attributes:
        attribute: Its name.
        entry: All that the audit keeps of it.
        leak: What the worst attacker reaches, turned round where it is surely below chance.
        shown: Whether that is more than luck.
        severity: ``high``, ``medium``, ``low`` or ``none``.
    """

    attribute: str
    entry: Mapping[str, Any]
    leak: Leak
    shown: bool
    severity: str

    @property
    def sentence(self) -> str:
        """The finding in plain words."""
        return str(self.entry["verdict"]["sentence"])

    @property
    def share(self) -> float:
        """How much of the way from chance to certainty."""
        return _share(self.leak)

    @property
    def scale(self) -> float:
        """The same between 0.5 and 1: an AUC, or what a rank correlation is worth beside one."""
        return 0.5 + self.share / 2

    @property
    def told(self) -> str:
        """``AUC 0.701 [0.656, 0.741]``."""
        return f"{self.leak.spoken} {bracketed(self.leak.measure)}"


def severity(leak: Leak, *, shown: bool) -> str:
    """How bad a leak is, by the way from chance to certainty; ``none`` where none is shown.

    >>> from veilrec.metrics.measures import Measure
    >>> [severity(Leak(Measure(x), "auc", 0.5, False), shown=True) for x in (0.55, 0.6, 0.75)]
    ['low', 'medium', 'high']
    """
    share = round(_share(leak), 9)
    return next(name for name, least in SEVERITIES.items() if share >= least) if shown else "none"


def _share(leak: Leak) -> float:
    return abs(leak.measure.value - leak.chance) / (1 - leak.chance)


@dataclass(frozen=True, repr=False)
class VectorAudit:
    """A finished audit of vectors.

    Attributes:
        values: What was found, as it is saved.
        name: Where it lies, or what it is about.
    """

    values: Mapping[str, Any] = field(repr=False)
    name: str = ""

    @classmethod
    def load(cls, path: Path | str) -> VectorAudit:
        """An audit from its file.

        Raises:
            BadInput: Where it is no such file, or of a version that this veilrec does not read.
            Corrupted: Where something in it is not what an audit writes.
        """
        path = Path(path)
        if not path.is_file():
            raise BadInput(path, "no such file", "name an audit that `veilrec audit --out FILE` saved")
        values = read_json(path) if _is_object(path) else {}
        if values.get("kind") != KIND:
            raise BadInput(path, "not an audit of vectors", "make one with `veilrec audit --out FILE`")
        if values.get("version") != VERSION:
            what = f"written as version {values.get('version')}"
            raise BadInput(path, what, f"this veilrec reads version {VERSION}; audit the vectors again")
        try:
            AUDIT(values.get("audit"), "audit")
            SAVED(values, "")
        except Wrong as wrong:
            raise Corrupted(f"{path}: {wrong}; restore the file, or audit the vectors again") from wrong
        return cls(values, str(path))

    def save(self, path: Path | str) -> None:
        """Write it as JSON, without anybody's id."""
        write_json(Path(path), dict(self.values), indent=None)

    @property
    def audit(self) -> Mapping[str, Any]:
        """What was found, as results of runs keep it."""
        found: Mapping[str, Any] = self.values["audit"]
        return found

    @cached_property
    def findings(self) -> list[VectorFinding]:
        """One for each attribute that somebody tried, the worst first."""
        found = [
            _finding(name, entry)
            for name, entry in self.audit["attributes"].items()
            if entry.get("verdict") is not None
        ]
        return sorted(found, key=lambda one: (one.shown, one.share), reverse=True)

    def above(self, limit: float) -> list[VectorFinding]:
        """The leaks that are shown and lie above a limit between 0.5 and 1, as an AUC does."""
        return [one for one in self.findings if one.shown and one.scale > limit]

    def __repr__(self) -> str:
        vectors = self.values["vectors"]
        found = "; ".join(f"{one.attribute}: {one.told}, {one.severity}" for one in self.findings)
        return (
            f"<audit of {vectors['users']:,} vectors of {vectors['width']:,} numbers: {found or 'nothing'}>"
        )

    def _repr_html_(self) -> str:
        """A small table for notebooks."""
        head = "<tr><th>attribute</th><th>severity</th><th>worst attacker</th><th>in words</th></tr>"
        rows = (
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"
            for cells in ((one.attribute, one.severity, one.told, one.sentence) for one in self.findings)
        )
        return f"<table><thead>{head}</thead><tbody>{''.join(rows)}</tbody></table>"


def _is_object(path: Path) -> bool:
    """Whether a file begins as an object in JSON does, however it goes on."""
    with path.open("rb") as file:
        return file.read(64).lstrip().startswith(b"{")


def _finding(name: str, entry: Mapping[str, Any]) -> VectorFinding:
    verdict = entry["verdict"]
    score, leaning = verdict["score"], verdict["leaning"]
    measure = read(verdict[score], verdict["replicates"])
    assert measure is not None  # the schema has it
    measure = measure.mirrored(CHANCE[score]) if leaning == "below" else measure
    leak = Leak(measure, score, CHANCE[score], leaning == "below")
    shown = leaning != "none"
    return VectorFinding(name, entry, leak, shown, severity(leak, shown=shown))
