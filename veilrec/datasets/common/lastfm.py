"""Common form of the datasets from Last.fm: they have no times, and the order of rows stands for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from veilrec.datasets.reading.assemble import Log, Titles, assemble
from veilrec.datasets.reading.cores import among, cut, enough, left_out
from veilrec.datasets.reading.people import DescribedUsers
from veilrec.interactions import Interactions

__all__: list[str] = []

ORDER = "no times: a user's events are in the order of their rows, and the last one is held out"


def listened(
    name: str,
    log: Log,
    people: DescribedUsers,
    titles: Titles | None,
    least: tuple[int, int],
    notes: Sequence[str],
) -> Interactions:
    """A log in the order of its rows, of users and artists that have enough of each other.

    `least` has the fewest artists of a user and the fewest users of an artist.
    """
    stay = enough(replace(log, time=None), *least, "played")
    rows = np.arange(log.table.length, dtype=np.int64)
    left = cut(replace(log, time=rows), stay)
    gone = left_out("row", {"of users or items with too few others": int((~stay).sum())})
    built = assemble(name, left, among(people, left), titles, absent=[*notes, *gone, ORDER])
    return replace(built, time=None)  # places in a file are no times: they have done their work
