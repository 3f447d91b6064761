"""A log described in numbers and plain words, for people who have just loaded it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import torch
from torch import Tensor

from veilrec.datasets.reading.times import unit_of
from veilrec.interactions import Interactions

__all__: list[str] = []

ROWS = 5
START = datetime(1970, 1, 1, tzinfo=UTC)


def describe(log: Interactions, rows: int = ROWS) -> dict[str, Any]:
    """Counts, long tail, period, attributes and first rows of a log, ready for JSON."""
    fame = torch.bincount(log.item, minlength=log.n_items).sort(descending=True).values
    top = max(1, log.n_items // 10)
    moments = _moments(log)
    return {
        "name": log.name,
        "users": log.n_users,
        "items": log.n_items,
        "events": len(log),
        "density": len(log) / max(1, log.n_users * log.n_items),
        "period": [min(moments), max(moments)] if moments else None,
        "events_per_user": _spread(log.counts),
        "events_per_item": _spread(fame),
        "share_of_top_tenth_of_items": float(fame[:top].sum()) / max(1, len(log)),
        "attributes": {name: _shares(log, name) for name in log.attributes},
        "values": {name: _amounts(value) for name, value in log.values.items()},
        "titles": log.texts is not None,
        "first_rows": [_row(log, place) for place in range(min(rows, len(log)))],
        "report": list(log.report),
    }


def _spread(numbers: Tensor) -> dict[str, float]:
    values = numbers.sort().values
    if not len(values):
        return {}
    middle = {"median": values[len(values) // 2].item(), "mean": float(values.double().mean())}
    return {"least": values[0].item(), **middle, "most": values[-1].item()}


def _amounts(value: Tensor) -> dict[str, float]:
    """The spread of a continuous attribute, and of how many users it is known."""
    there = value[~value.isnan()]
    return {"known": len(there), **_spread(there)}


def _shares(log: Interactions, name: str) -> dict[str, int]:
    """The number of users in each class."""
    codes = log.attributes[name]
    counts = torch.bincount(codes[codes >= 0], minlength=len(log.classes[name])).tolist()
    found = dict(zip(log.classes[name], counts, strict=True))
    return found | ({"(unknown)": unknown} if (unknown := int((codes < 0).sum())) else {})


def _row(log: Interactions, place: int) -> dict[str, Any]:
    """One event, with the ids that people know."""
    item = int(log.item[place])
    row: dict[str, Any] = {"user": log.user_ids[int(log.user[place])], "item": log.item_ids[item]}
    if log.texts is not None:
        row["title"] = log.texts[item]
    if log.rating is not None:
        row["rating"] = float(log.rating[place])
    if log.time is not None:
        row["time"] = _written(int(log.time[place]), _unit(log))
    return row


def _moments(log: Interactions) -> list[str]:
    if log.time is None or not len(log):
        return []
    return [_written(int(edge), _unit(log)) for edge in (log.time.min(), log.time.max())]


def _unit(log: Interactions) -> int:
    assert log.time is not None
    return unit_of(log.time.numpy()) or 1


def _written(count: int, unit: int) -> str:
    """A time for people; counts too small to be dates stay counts."""
    if count < 100_000_000:
        return str(count)
    return (START + timedelta(seconds=count // unit)).strftime("%Y-%m-%d %H:%M:%S")
