"""Exports: every number of a report as rows, one number each, with its interval and its floor beside it."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from veilrec.metrics.groups import defences, seed_of
from veilrec.metrics.measures import Measure, read
from veilrec.result import Result

__all__ = ["COLUMNS", "columnar", "embedded", "table", "to_csv"]

COLUMNS = (
    *("run", "seed", "data", "model", "defence", "collapsed"),
    *("about", "audit", "attribute", "what", "part", "oracle"),
    *("measure", "value", "low", "high", "floor", "floor_of", "p"),
)
RISKY = ("=", "+", "-", "@", "\t", "\r", "\n")  # what makes a spreadsheet take text for a formula
Row = dict[str, Any]


def table(results: Sequence[tuple[str, Result]]) -> list[Row]:
    """One row for each number: usefulness, leakage by attacker and part, groups, traffic, …"""
    return [{**_of_run(name, result), **row} for name, result in results for row in _rows(result)]


def to_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows as CSV; text that a spreadsheet would run as a formula gets an apostrophe in front."""
    out = io.StringIO()
    heads = list(rows[0]) if rows else list(COLUMNS)
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow([_harmless(head) for head in heads])
    writer.writerows([[_harmless(row.get(head)) for head in heads] for row in rows])
    return out.getvalue()


def columnar(rows: Sequence[Row]) -> dict[str, Any]:
    """The rows as the page keeps them: names once, then values; text that occurs often is a number."""
    heads = list(rows[0]) if rows else list(COLUMNS)
    texts: dict[str, int] = {}
    body = [
        [[texts.setdefault(v, len(texts))] if isinstance(v := row.get(head), str) else v for head in heads]
        for row in rows
    ]
    return {"columns": heads, "texts": list(texts), "rows": body}


def embedded(value: Any) -> str:
    """JSON that can stand inside a script element, whatever it says."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _of_run(name: str, result: Result) -> Row:
    row = dict.fromkeys(COLUMNS)
    return row | {
        "run": name,
        "seed": seed_of(result),
        "data": str(result.data.get("name", "")),
        "model": str((result.settings.get("model") or {}).get("name", "")),
        "defence": " + ".join(defences(result.settings)),
        "collapsed": result.utility.collapsed,
    }


def _rows(result: Result) -> Iterator[Row]:
    yield from _usefulness(result)
    for audit, found in result.privacy.items():
        for attribute, entry in (found.get("attributes") or {}).items():
            for row in _attribute(entry):
                yield {"audit": audit, "attribute": attribute, **row}
        for way, entry in (found.get("membership") or {}).items():
            if isinstance(entry, Mapping) and (one := read(entry)):
                yield {
                    "about": "membership",
                    "audit": audit,
                    "what": way,
                    "measure": "auc",
                    **one.plain(),
                    "floor": 0.5,
                    "floor_of": "chance",
                }
    for way in ("up", "down"):
        if one := read((result.traffic.get(way) or {}).get("mean")):
            yield {"about": "traffic", "what": way, "measure": "bytes per device and round", **one.plain()}
    for phase, seconds in result.timing.items():
        if one := read(seconds):
            yield {
                "about": "time",
                "what": phase,
                "measure": "bytes" if "bytes" in phase else "seconds",
                **one.plain(),
            }


def _usefulness(result: Result) -> Iterator[Row]:
    for metric, value in result.utility.test.items():
        if one := read(value, result.utility_replicates.get(metric) or ()):
            floor = result.utility.floor.get(metric)
            yield {
                "about": "usefulness",
                "measure": metric,
                **one.plain(),
                "floor": floor,
                "floor_of": "popularity",
            }


def _attribute(entry: Mapping[str, Any]) -> Iterator[Row]:
    given = entry.get("verdict") or {}
    for measure in ("auc", "spearman", "r2"):
        if one := read(given.get(measure), given.get("replicates") or ()):
            yield _row(entry, "verdict", given.get("attacker"), measure, one)
    for attacker in entry.get("attackers") or ():
        part, oracle = "+".join(attacker.get("parts") or ()), bool(attacker.get("oracle"))
        more = {"part": part, "oracle": oracle, "p": attacker.get("p")}
        for measure, score in (attacker.get("scores") or {}).items():
            if one := read(score):
                yield {**_row(entry, "attacker", attacker.get("name"), measure, one), **more}
    for part in entry.get("parts") or ():
        if one := read(part.get("auc")):
            yield {**_row(entry, "part", part.get("classifier"), "auc", one), "part": part.get("part")}
    for group in entry.get("groups") or ():
        if one := read(group.get("micro_f1")):
            yield _row(entry, "group", f"{group.get('by')}: {group.get('group')}", "micro_f1", one)


def _row(entry: Mapping[str, Any], about: str, what: str | None, measure: str, one: Measure) -> Row:
    """One number of an audit, with its floor."""
    return {"about": about, "what": what, "measure": measure, **one.plain(), **_floor(entry, measure)}


def _floor(entry: Mapping[str, Any], measure: str) -> Row:
    """The floor of a measure: chance where that is one number, else the majority's or whichever is given."""
    if measure in {"auc", "spearman", "r2"}:
        return {"floor": 0.5 if measure == "auc" else 0.0, "floor_of": "chance"}
    if measure == "tpr_at_1":
        return {"floor": 0.01, "floor_of": "chance"}
    given = entry.get("floors") or {}
    kinds = [kind for kind in ("majority", *given) if measure in (given.get(kind) or {})]
    return {"floor": given[kinds[0]][measure], "floor_of": kinds[0]} if kinds else {}


def _harmless(value: Any) -> Any:
    if isinstance(value, str):
        return f"'{value}" if value.startswith(RISKY) else value
    return "" if value is None else str(value).lower() if isinstance(value, bool) else value
