"""Common form of the datasets from Last.fm: they have no times, and the order of rows stands for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from veilrec.datasets.common.given_order import in_given_order
from veilrec.datasets.reading.assemble import Log, Titles
from veilrec.datasets.reading.cores import enough, left_out
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
    log = replace(log, time=None)
    stay = enough(log, *least, "played")
    gone = left_out("row", {"of users or items with too few others": int((~stay).sum())})
    return in_given_order(name, log, stay, people=people, titles=titles, notes=[*notes, *gone, ORDER])
