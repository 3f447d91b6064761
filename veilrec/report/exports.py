"""Exports: every number of a report as rows, one number each, with its interval and its floor beside it."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from veilrec.metrics.groups import defences, seed_of, useful_in
from veilrec.metrics.measures import Measure, read
from veilrec.report.verdicts import MEASURES, SCALES
from veilrec.result import Result

__all__ = ["COLUMNS", "embedded", "table", "to_csv"]

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


def embedded(value: Any) -> str:
    """JSON that can stand inside a script element, whatever it says."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _of_run(name: str, result: Result) -> Row:
    return dict.fromkeys(COLUMNS) | {
        "run": name,
        "seed": seed_of(result),
        "data": str(result.data.get("name", "")),
        "model": str((result.settings.get("model") or {}).get("name", "")),
        "defence": " + ".join(defences(result.settings)),
        "collapsed": result.utility.collapsed,
    }


def _rows(result: Result) -> Iterator[Row]:
    for metric in result.utility.test:
        one, floor = useful_in(result, metric), result.utility.floor.get(metric)
        yield from _row("usefulness", metric, one, floor=floor, floor_of="popularity")
    for audit, found in result.privacy.items():
        for attribute, entry in (found.get("attributes") or {}).items():
            yield from ({"audit": audit, "attribute": attribute, **row} for row in _attribute(entry))
        for way, entry in (found.get("membership") or {}).items():
            if isinstance(entry, Mapping):
                beside = {"audit": audit, "what": way, "floor": 0.5, "floor_of": "chance"}
                yield from _row("membership", "auc", read(entry), **beside)
    for way in ("up", "down"):
        mean = read((result.traffic.get(way) or {}).get("mean"))
        yield from _row("traffic", "bytes per device and round", mean, what=way)
    for phase, value in result.timing.items():
        yield from _row("time", "bytes" if "bytes" in phase else "seconds", read(value), what=phase)


def _attribute(entry: Mapping[str, Any]) -> Iterator[Row]:
    given = entry.get("verdict") or {}
    for scale in SCALES:
        one = read(given.get(scale), given.get("replicates") or ())
        yield from _row("verdict", scale, one, what=given.get("attacker"), **_floor(entry, scale))
    for attacker in entry.get("attackers") or ():
        part, oracle = "+".join(attacker.get("parts") or ()), bool(attacker.get("oracle"))
        more = {"what": attacker.get("name"), "part": part, "oracle": oracle, "p": attacker.get("p")}
        for measure, score in (attacker.get("scores") or {}).items():
            yield from _row("attacker", measure, read(score), **more, **_floor(entry, measure))
    for part in entry.get("parts") or ():
        more = {"what": part.get("classifier"), "part": part.get("part")}
        yield from _row("part", "auc", read(part.get("auc")), **more, **_floor(entry, "auc"))
    for group in entry.get("groups") or ():
        who = f"{group.get('by')}: {group.get('group')}"
        right = read(group.get("micro_f1"))
        yield from _row("group", "micro_f1", right, what=who, **_floor(entry, "micro_f1"))
        sure = read(group.get("tpr_at_1"))
        yield from _row("group", "tpr_at_1", sure, what=who, **_floor(entry, "tpr_at_1"))


def _row(about: str, measure: str, one: Measure | None, **more: Any) -> Iterator[Row]:
    """One number with what stands beside it; nothing where it was not measured."""
    if one:
        yield {"about": about, "measure": measure, **one.plain(), **more}


def _floor(entry: Mapping[str, Any], measure: str) -> Row:
    """The floor of a measure: chance where that is one number, else the majority's or whichever is given."""
    if measure in MEASURES and (chance := MEASURES[measure].chance) is not None:
        return {"floor": chance, "floor_of": "chance"}
    given = entry.get("floors") or {}
    kinds = [kind for kind in ("majority", *given) if measure in (given.get(kind) or {})]
    return {"floor": given[kinds[0]][measure], "floor_of": kinds[0]} if kinds else {}


def _harmless(value: Any) -> Any:
    if isinstance(value, str):
        return f"'{value}" if value.startswith(RISKY) else value
    return "" if value is None else str(value).lower() if isinstance(value, bool) else value
