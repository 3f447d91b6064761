"""The page of an audit of vectors: the conclusion, what to do next, and how it was measured; no script."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from veilrec import __version__
from veilrec.metrics.measures import read
from veilrec.metrics.vector_audits import VectorAudit, VectorFinding
from veilrec.metrics.words import bare, bracketed, number, out_of_100
from veilrec.report.audit.advice import advice
from veilrec.report.audit.words import conclusion, doubts, least_p, protocol, terms
from veilrec.report.figures import PageTable
from veilrec.report.names import attacker_words
from veilrec.report.template import policy, template, text_of

__all__ = ["audit_page"]

BADGES = {"high": "high", "medium": "medium", "low": "low", "none": "nothing shown"}
SCORES = {
    "auc": "AUC [95 %]",
    "balanced_accuracy": "balanced accuracy",
    "micro_f1": "right",
    "tpr_at_1": "TPR at 1 %",
    "spearman": "rank correlation [95 %]",
    "r2": "R²",
    "mae": "mean error",
}
FULL = ("auc", "spearman")


def audit_page(audit: VectorAudit, title: str = "") -> str:
    """The whole page as text; the same audit gives the same bytes."""
    found, style = audit.findings, text_of("style.css") + text_of("audit/audit.css")
    text: str = template("audit/audit.html").render(
        title=title or "What these vectors give away about their users",
        meta=_meta(audit),
        conclusion=conclusion(audit),
        doubts=doubts(audit),
        tiles=[_tile(one) for one in found],
        controls=[_control(one) for one in found if one.entry.get("control")],
        advice=advice(audit),
        protocol=protocol(audit),
        attackers=[{"attribute": one.attribute, "table": _attackers(one, least_p(audit))} for one in found],
        groups=[
            {"attribute": one.attribute, "table": _groups(one)} for one in found if one.entry.get("groups")
        ],
        made_up=_made_up(audit),
        terms=terms(audit),
        mark=_mark(audit),
        style=style,
        policy=policy([style]),
    )
    return text.lstrip().encode("utf-8", "replace").decode("utf-8")


def _mark(audit: VectorAudit) -> str:
    """Which veilrec made the page, and of which audit; no clock: the same audit gives the same page."""
    told = json.dumps(_timeless(audit.values), sort_keys=True).encode("utf-8", "replace")
    return f"Page of veilrec {__version__}; audit {hashlib.sha256(told).hexdigest()[:12]}."


def _timeless(value: Any) -> Any:
    """What was found, without the seconds that it took."""
    if isinstance(value, Mapping):
        return {key: _timeless(entry) for key, entry in value.items() if key != "seconds"}
    return [_timeless(entry) for entry in value] if isinstance(value, list | tuple) else value


def _meta(audit: VectorAudit) -> str:
    """``als.npz (user_factors): 943 users, 32 numbers each; attributes from u.user.``"""
    vectors, control = audit.values["vectors"], audit.values.get("control")
    which = f" ({vectors['tensor']})" if "tensor" in vectors else ""
    told = (
        f"{vectors['file']}{which}: {bare(vectors['users'])} users, {bare(vectors['width'])} numbers each; "
    )
    told += f"attributes from {audit.values['attributes']['file']}"
    return f"{told}; control {control['file']}: {bare(control['users'])} users." if control else f"{told}."


def _tile(one: VectorFinding) -> dict[str, Any]:
    """All that the template says about one attribute."""
    figure, unit = _figure(one)
    measure, verdict = one.leak.measure, one.entry["verdict"]
    luck = read(verdict.get("shuffled"))
    beside = f"; with shuffled labels {number(luck.value, 2)}" if luck else ""
    turned = ", turned round" if one.leak.turned else ""
    return {
        "attribute": one.attribute,
        "severity": one.severity,
        "badge": BADGES[one.severity],
        "figure": figure,
        "unit": unit,
        "places": {end: _place(one, getattr(measure, end)) for end in ("low", "value", "high")},
        "ends": (f"{one.leak.chance:g}", "1"),
        "numbers": f"{one.leak.spoken} {bracketed(measure)}{turned}; chance {one.leak.chance:g}",
        "sentence": one.sentence,
        "proof": f"{_who(verdict['attacker'])}, {one.told}{turned}; chance {one.leak.chance:g}{beside}.",
    }


def _who(attacker: str) -> str:
    """``logistic regression``: all of them read the vectors."""
    return attacker_words(attacker).rpartition(", ")[2]


def _figure(one: VectorFinding) -> tuple[str, str]:
    """One number that needs no statistics, and what it counts."""
    measure = one.leak.measure
    if one.leak.score == "auc":
        return out_of_100(measure.value), "of 100 pairs told apart; a coin: 50"
    return number(measure.value, 2), "of 1: how well its guesses are in order; a coin: 0"


def _place(one: VectorFinding, value: float) -> float:
    """The place of a value between chance and certainty, in 100."""
    return round(min(100.0, max(0.0, 100 * (value - one.leak.chance) / (1 - one.leak.chance))), 1)


def _control(one: VectorFinding) -> dict[str, Any]:
    """Main, control and blind as bars from chance to certainty."""
    found = one.entry["control"]
    key = found["score"]
    sides = []
    for name in ("main", "control"):
        measure = read(found[name][key])
        assert measure is not None  # the schema has it
        measure = measure.mirrored(one.leak.chance) if one.leak.turned else measure
        ends = {end: max(0.0, _place(one, getattr(measure, end))) for end in ("low", "high")}
        sides.append(
            {"name": name, "at": max(0.0, _place(one, measure.value)), "told": bracketed(measure), **ends}
        )
    blind = {"name": "blind", "at": 0, "low": None, "high": None, "told": number(found["blind"][key])}
    scale = f"{one.leak.spoken}, from {one.leak.chance:g} (chance) to 1 (certain), with 95 % intervals; "
    return {
        "attribute": one.attribute,
        "sides": [*sides, blind],
        "scale": f"{scale}{bare(found['users'])} people in the control.",
        "sentence": found["sentence"],
    }


def _attackers(one: VectorFinding, least: float) -> PageTable:
    every = sorted(
        one.entry["attackers"], key=lambda entry: entry["name"] != one.entry["verdict"]["attacker"]
    )
    keys = [key for key in SCORES if any(key in entry["scores"] for entry in every)]
    rows = [
        [
            _who(entry["name"]),
            *(_score(entry["scores"].get(key), full=key in FULL) for key in keys),
            _luck(entry.get("p"), least),
        ]
        for entry in every
    ]
    rows += [
        [f"guess: {name}", *(number(reached.get(key)) for key in keys), ""]
        for name, reached in one.entry["floors"].items()
    ]
    head = ["attacker", *(SCORES[key] for key in keys), "p"]
    return PageTable(
        head, rows, caption=f"{one.attribute}: the verdict's attacker first, and guesses that see nothing"
    )


def _luck(p: float | None, least: float) -> str:
    """A p-value; the smallest that so many deals of labels can give is a bound."""
    if p is None:
        return ""
    return f"p ≤ {number(least)}" if p <= least else number(p)


def _score(entry: Any, *, full: bool) -> str:
    measure = read(entry)
    return bracketed(measure) if full or measure is None else number(measure.value)


def _groups(one: VectorFinding) -> PageTable:
    worst = _who(str(one.entry["verdict"]["attacker"]))
    rows = [
        [f"{group['by']}: {group['group']}", bare(group["users"]), bracketed(read(group["micro_f1"]), 2)]
        for group in one.entry["groups"]
    ]
    caption = f"Share of right guesses of {one.attribute} by {worst}"
    return PageTable(["group", "users attacked", "right"], rows, caption=caption)


def _made_up(audit: VectorAudit) -> PageTable:
    """What the attackers say of made-up tables with known answers, where they were asked."""
    rows = [
        [str(one.get("control")), str(one.get("must_say")), "says so" if one.get("passed") else "does not"]
        for one in audit.audit.get("controls") or ()
    ]
    return PageTable(
        ["made-up table", "it must say", ""], rows, left=(0, 1, 2), caption="Tables with known answers"
    )
