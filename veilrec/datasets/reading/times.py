"""Times as whole numbers: seconds since 1970 or finer, from numbers or from dates."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from veilrec.datasets.reading.table import TextTable

__all__: list[str] = []

EARLY, LATE = 631_152_000, 4_102_444_800  # 1990 and 2100, in seconds
UNITS = (1, 1_000, 1_000_000, 1_000_000_000)  # parts of a second in one count


def times_of(table: TextTable, column: str, form: str | None = None) -> NDArray[np.int64]:
    """``[rows]`` the times in a column of numbers, or of dates (ISO 8601, or `form` as in strptime)."""
    if column in table.numbers:
        return _counted(table, column)
    return _dated(table, column, form)


def unit_of(times: NDArray[np.int64]) -> int | None:
    """The unit of times, in counts a second, by the middle of the times; None where no unit fits."""
    middle = float(np.median(times))
    for unit in UNITS:
        if (EARLY * unit if unit > 1 else 0) <= middle <= LATE * unit:
            return unit
    return None


def _counted(table: TextTable, column: str) -> NDArray[np.int64]:
    values = table.numbers[column]
    table.refuse(values < 0, column, '{column} is "{value}": before 1970', "give seconds since 1970")
    table.refuse(
        values != np.floor(values), column, '{column} is "{value}", not a whole number', "give seconds"
    )
    unit = unit_of(values.astype(np.int64, copy=False)) if float(values.max()) < 2**63 else None
    far = values > (LATE if unit is None else LATE * unit)
    what = '{column} is "{value}": later than the year 2100'
    table.refuse(far, column, what, "give seconds (or milliseconds) since 1970")
    return values.astype(np.int64, copy=False)


def _dated(table: TextTable, column: str, form: str | None) -> NDArray[np.int64]:
    codes, words = table.tokens[column]
    moments = [_moment(word, form) for word in words]
    bad = np.array([moment is None for moment in moments])
    kind = f'a date like "{form}"' if form else "a number or a date like 2024-12-31"
    table.refuse(
        bad[codes], column, f'{{column}} is "{{value}}", not {kind}', "correct it, or pass --time-format"
    )
    fine = any(moment is not None and moment.microsecond for moment in moments)
    unit = 1_000_000 if fine else 1
    counts = np.array(
        [round(moment.timestamp() * unit) for moment in moments if moment is not None], dtype=np.int64
    )
    outside = (counts < 0) | (counts > LATE * unit)
    table.refuse(
        outside[codes], column, '{column} is "{value}": not between 1970 and 2100', "correct the date"
    )
    return counts[codes]


def _moment(word: str, form: str | None) -> datetime | None:
    """The moment a word means, in UTC where it names no zone."""
    try:
        moment = datetime.strptime(word, form) if form else datetime.fromisoformat(word)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
