"""The schema of ``result.json``: types, ranges and lengths of what reports and later commands read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from veilrec.base.limits.schema import (
    Wrong,
    anything,
    flag,
    listed,
    number,
    numbers,
    or_none,
    table,
    text,
    whole,
)

__all__ = ["AUDIT", "check_result"]

TEXT = text()
FREE = table(rest=anything)
SEED = whole(-(1 << 63), (1 << 64) - 1)
SHARE = number(0, 1.000001)  # a mean of ones may be rounded up
SHARES = table(rest=SHARE, most=1 << 10)
MEASURE = table(may={name: or_none(number()) for name in ("value", "low", "high")}, rest=anything)
SCORES = table(rest=or_none(MEASURE))
AGAIN = table(rest=numbers())

UTILITY = table(
    {
        "test": SHARES,
        "validation": SHARES,
        "floor": SHARES,
        "collapsed": flag,
        "select": text(200, r"[^@]+@\d{1,9}"),
        "protocol": TEXT,
        "users": whole(),
    }
)
WAY = table(may={name: number(0) for name in ("mean", "max", "total")}, rest=number(0))
ERASED = table({"name": TEXT, "rounds": whole(), "settled": flag}, rest=number(0))
TRAFFIC = table(
    may={"up": WAY, "down": WAY, "by_kind": table(rest=table(rest=number(0))), "erasing": listed(ERASED)},
    rest=number(0),
)
NAMED = table({"name": TEXT}, rest=anything)
SETTINGS = table(
    may={
        "model": NAMED,
        "seed": SEED,
        "defence": listed(FREE, 1 << 10),
        "eraser": listed(FREE, 1 << 10),
        "attack": listed(FREE, 1 << 10),
        "plugin": listed(FREE, 1 << 10),
        **dict.fromkeys(("data", "protocol", "plan", "evaluation", "record", "threat"), FREE),
    },
    rest=anything,
)
ATTACKER = table(
    {"name": TEXT},
    may={
        "reads": TEXT,
        "parts": listed(TEXT),
        "classifier": or_none(TEXT),
        "family": TEXT,
        "oracle": flag,
        "scores": SCORES,
        "replicates": AGAIN,
        "p": or_none(SHARE),
        "validation": or_none(number()),
        "seconds": number(0),
        "notes": or_none(FREE),
    },
    rest=anything,
)
VERDICT = table(
    may={
        "attacker": or_none(TEXT),
        "families": listed(TEXT),
        "score": TEXT,
        "leaning": TEXT,
        "replicates": numbers(),
        "sentence": TEXT,
        "auc": or_none(MEASURE),
        "rank": or_none(MEASURE),
        "shuffled": or_none(MEASURE),
    },
    rest=anything,
)
APART = table({"left_out": number(0), "verdict": or_none(VERDICT)}, rest=anything)
FOUND = table({"sentence": TEXT}, may={"kind": TEXT, "reads": TEXT, "attribute": TEXT}, rest=anything)
CONTROL = table(
    may={
        **dict.fromkeys(("control", "must_say", "attacker"), TEXT),
        "says": listed(TEXT),
        "passed": flag,
        "auc": or_none(MEASURE),
    },
    rest=anything,
)
PART = table(may={"part": TEXT, "classifier": or_none(TEXT), "replicates": AGAIN}, rest=anything)
ATTRIBUTE = table(
    may={
        "kind": TEXT,
        "classes": listed(TEXT),
        "counts": listed(whole()),
        "range": or_none(numbers()),
        "mean": or_none(number()),
        "known": whole(),
        "targets": whole(),
        "floors": table(rest=table(rest=or_none(number()))),
        "attackers": listed(ATTACKER, 1 << 12),
        "verdict": or_none(VERDICT),
        "without_copies": or_none(APART),
        "without_zeros": or_none(APART),
        "parts": listed(PART, 1 << 14),
        "groups": listed(FREE, 1 << 14),
    },
    rest=anything,
)
AUDIT = table(
    may={
        "threat": or_none(FREE),
        "seed": SEED,
        "grants": listed(TEXT),
        "oracle": flag,
        "sees": TEXT,
        "attributes": table(rest=ATTRIBUTE),
        "membership": or_none(FREE),
        "rule": TEXT,
        "soundness": listed(FOUND),
        "controls": listed(CONTROL),
        "uploads": listed(FOUND),
        "seconds": number(0),
    },
    rest=anything,
)
COUNTS = ("users", "items", "events", "clients", "training", "validation", "test")
DATA = table(
    may={
        "name": TEXT,
        **{
            name: whole()
            for name in ("users", "items", "events", "clients", "training", "validation", "test")
        },
        "attributes": table(rest=table(rest=whole(), most=1 << 20)),
        "values": FREE,
        "features": or_none(
            table({"width": whole(), "names": listed(TEXT)}, may={"blurred": flag}, rest=anything)
        ),
        "report": listed(TEXT),
    },
    rest=anything,
)
LEDGER = table(
    may={
        "guarantee": flag,
        "statement": TEXT,
        "notes": listed(TEXT),
        "mechanisms": listed(FREE),
        "per_upload": or_none(FREE),
        "composed": or_none(FREE),
        "budget": or_none(number(0)),
    },
    rest=anything,
)
RESULT = table(
    {
        "version": whole(),
        "utility": UTILITY,
        "selected": whole(1),
        "rounds": whole(1),
        "stopped": TEXT,
        "traffic": TRAFFIC,
        "timing": table(rest=number(0)),
        "environment": FREE,
        "data": DATA,
        "settings": SETTINGS,
        "fingerprint": text(200),
        "data_fingerprint": text(200),
        "privacy": table(rest=AUDIT, most=1 << 10),
        "discloses": listed(FREE),
        "ledger": LEDGER,
        "curves": table(rest=listed(or_none(number()), 1 << 24)),
        "utility_replicates": AGAIN,
    },
    may={"files": FREE, "erased": listed(FREE, 1 << 20)},
)


def check_result(values: Mapping[str, Any]) -> None:
    """Hold a result against the schema, and what must fit together against each other.

    Raises:
        Wrong: With the place of the first fault.
    """
    RESULT(values, "")
    if values["selected"] > values["rounds"]:
        raise Wrong("selected", f"is above the number of rounds, {values['rounds']}")
    if values["utility"]["select"] not in values["utility"]["test"]:
        raise Wrong("utility.select", "was not measured")
    if values["utility"]["floor"].keys() != values["utility"]["test"].keys():
        raise Wrong("utility.floor", "was measured by other metrics than the test")
    lengths = {len(curve) for curve in values["curves"].values()}
    if len(lengths) > 1:
        raise Wrong("curves", "are not of one length")
