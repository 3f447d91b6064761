"""The small print: what the attacker saw and was granted, what is guaranteed, how every run was set."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from veilrec.metrics.arms import Arm, Family
from veilrec.metrics.groups import flat
from veilrec.metrics.measures import average, read
from veilrec.metrics.words import ABSENT, bare, bracketed, count, duration, number, shown
from veilrec.report.figures import PageTable

__all__ = ["AuditSection", "LedgerSection", "audits", "ledgers", "runs", "settings", "utility_table"]

NOTHING = "no formal guarantee"
TOO_MUCH = 20  # a composed ε beyond which a guarantee rules nothing out, as the ledger itself has it


@dataclass(frozen=True)
class AuditSection:
    """One protocol of attack, and the arms that were judged by it."""

    name: str
    arms: list[Arm]
    sees: list[str]
    grants: list[str]
    oracle: bool
    threat: PageTable
    attributes: PageTable
    controls: PageTable
    uploads: list[str]


@dataclass(frozen=True)
class LedgerSection:
    """The guarantees of an arm's defences, as a report shows them.

    `kind` is ``sure``, ``weak`` (accounted for, with what limits it among the `flags`) or ``open``.
    """

    arm: Arm
    kind: str
    flags: list[str]
    statement: str
    budget: str
    notes: list[str]


def audits(family: Family) -> list[AuditSection]:
    """Each protocol once, for all arms that share it word for word."""
    found: dict[str, list[tuple[Arm, str, Mapping[str, Any]]]] = {}
    for arm in family.arms:
        for name, entry in arm.first.privacy.items():
            told = [name, entry.get("threat"), entry.get("grants"), entry.get("oracle")]
            found.setdefault(json.dumps(told, sort_keys=True, default=str), []).append((arm, name, entry))
    return [_audit(alike) for alike in found.values()]


def ledgers(family: Family) -> list[LedgerSection]:
    """The guarantees of each arm; over several seeds the largest sum."""
    return [_ledger(arm) for arm in family.arms]


def utility_table(family: Family) -> PageTable:
    """Every metric of every arm, popularity on top."""
    utility = family.first.utility
    names = list(utility.test)
    rows = [["popularity (floor)", ABSENT, *(number(utility.floor.get(name), 4) for name in names)]]
    for arm in family.arms:
        means = [average(r.utility.test.get(name) for r in arm.results) for name in names]
        flagged = " (collapsed)" if arm.collapsed else ""
        rows.append([f"{arm.label}{flagged}", str(len(arm.runs)), *(number(value, 4) for value in means)])
    return PageTable(["defence", "seeds", *names], rows)


def runs(family: Family) -> PageTable:
    """Every run by name."""
    rows = [
        [
            name,
            arm.label,
            shown(seed),
            f"{result.selected} of {result.rounds}",
            result.stopped,
            duration(result.timing.get("total")),
            result.fingerprint[:12],
            result.data_fingerprint[:12],
        ]
        for arm in family.arms
        for seed, (name, result) in arm.runs.items()
    ]
    return PageTable(
        ["run", "defence", "seed", "round kept", "ended by", "time", "recipe", "data"], rows, (0, 1, 4, 6, 7)
    )


def settings(arm: Arm) -> tuple[PageTable, PageTable, PageTable]:
    """The recipe of an arm, where it ran, and its data, as dotted names and values."""
    first = arm.first
    return (
        _pairs(flat({k: v for k, v in first.settings.items() if k != "seed"}, every=True), "setting"),
        _pairs(flat(first.environment, every=True), "environment"),
        _pairs(
            {k: v for k, v in flat(first.data, every=True).items() if not k.startswith("attributes.")}, "data"
        ),
    )


def _audit(alike: list[tuple[Arm, str, Mapping[str, Any]]]) -> AuditSection:
    _, name, first = alike[0]
    threat = first.get("threat") or {}
    attributes = [
        [attribute, *_classes(entry), bare(entry.get("known")), bare(entry.get("targets"))]
        for attribute, entry in (first.get("attributes") or {}).items()
    ]
    return AuditSection(
        name,
        [arm for arm, _, _ in alike],
        list(dict.fromkeys(str(entry.get("sees", "")) for *_, entry in alike)),
        [str(sentence) for sentence in first.get("grants") or ()],
        bool(first.get("oracle")),
        _pairs(flat({k: v for k, v in threat.items() if k != "grants"}, every=True), "protocol"),
        PageTable(["attribute", "classes, with users", "known", "targets"], attributes, (0, 1)),
        _controls(next((entry["controls"] for *_, entry in alike if entry.get("controls")), [])),
        [told for arm, name, _ in alike for told in _uploads(arm, name, several=len(alike) > 1)],
    )


def _controls(found: Sequence[Mapping[str, Any]]) -> PageTable:
    """What an audit's attackers say of made-up tables whose answers are known; no rows where nobody asked."""
    head = ["control", "it must say", "says so", "attacker", "AUC [95 %]"]
    rows = [
        [
            *(str(one.get(key)) for key in ("control", "must_say")),
            "yes" if one.get("passed") else "no",
            str(one.get("attacker")),
            bracketed(read(one.get("auc"))),
        ]
        for one in found
    ]
    return PageTable(head, rows, (0, 1, 2, 3), "Controls: the same attackers on made-up tables")


def _uploads(arm: Arm, audit: str, *, several: bool) -> Iterator[str]:
    """Leakage by the number of kept uploads, a sentence for each attribute and seed."""
    for seed, result in arm.seeds.items():
        for one in (result.privacy.get(audit) or {}).get("uploads") or ():
            who = [arm.label] * several + [f"seed {seed}"] * (len(arm.runs) > 1)
            yield f"{', '.join(who)}: {one.get('sentence')}" if who else str(one.get("sentence"))


def _classes(entry: Mapping[str, Any]) -> list[str]:
    if entry.get("kind") == "value":
        low, high = (entry.get("range") or [None, None])[:2]
        return [f"a number from {bare(low)} to {bare(high)}, mean {bare(entry.get('mean'))}"]
    pairs = zip(entry.get("classes") or (), entry.get("counts") or (), strict=False)
    return [", ".join(f"{label} ({count(users)})" for label, users in pairs)]


def _ledger(arm: Arm) -> LedgerSection:
    found = [result.ledger for result in arm.results if result.ledger]
    if not found:
        return LedgerSection(arm, "open", [NOTHING], "", "", [])
    first = max(found, key=lambda one: _epsilon(one) or 0.0)  # the seed in which most was spent
    guarantee = len(found) == len(arm.results) and all(one.get("guarantee") for one in found)
    limits = _limits(first, arm) if guarantee else []
    return LedgerSection(
        arm,
        "open" if not guarantee else "weak" if limits else "sure",
        [NOTHING] if not guarantee else limits or ["formal guarantee"],
        _statement(first),
        "" if first.get("budget") is None else bare(first["budget"]),
        [str(note) for note in first.get("notes") or ()],
    )


def _limits(ledger: Mapping[str, Any], arm: Arm) -> list[str]:
    """List what keeps an accounted ε from protecting: its size, and what goes up beside the values."""
    notes = " ".join(str(note) for note in ledger.get("notes") or ())
    touched = any(one.get("rows") == "touched" for one in ledger.get("mechanisms") or ())
    posts = any(((r.traffic.get("by_kind") or {}).get("up") or {}).get("posts") for r in arm.results)
    told = {
        "ε accounted, too large to protect": (_epsilon(ledger) or 0.0) > TOO_MUCH,
        "values only: touched rows in the clear": touched and "touched rows" in notes,
        "posts in the clear": bool(posts) or "users post" in notes,
    }
    return [words for words, holds in told.items() if holds]


def _statement(ledger: Mapping[str, Any]) -> str:
    """The ledger's sentence; nothing where the heading says the same already."""
    told = str(ledger.get("statement") or "")
    return "" if told.lower().strip(". ") == NOTHING else told[:1].upper() + told[1:]


def _epsilon(ledger: Mapping[str, Any]) -> float | None:
    value = ((ledger.get("composed") or {}).get("epsilon") or {}).get("max")
    return float(value) if isinstance(value, int | float) else None


def _pairs(values: Mapping[str, Any], what: str) -> PageTable:
    return PageTable([what, "value"], [[key, shown(value)] for key, value in values.items()], (0, 1))
