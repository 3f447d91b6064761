"""Given order: logs whose files put each user's events in order, beyond what their times can tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from veilrec.datasets.reading.assemble import Log, Titles, assemble
from veilrec.datasets.reading.cores import Mask, among, cut
from veilrec.datasets.reading.people import DescribedUsers
from veilrec.interactions import Interactions

__all__: list[str] = []


def in_given_order(
    name: str,
    log: Log,
    stay: Mask,
    *,
    people: DescribedUsers | None = None,
    titles: Titles | None = None,
    notes: Sequence[str] = (),
) -> Interactions:
    """The rows that `stay`, each user's in the order of the file, with the times that they had, if any."""
    rows, times = np.arange(log.table.length, dtype=np.int64), log.time
    left = cut(replace(log, time=rows), stay)
    known = None if people is None else among(people, left)
    built = assemble(name, left, known, titles, absent=notes)
    place = built.time
    assert place is not None  # it was given above
    return replace(built, time=None if times is None else torch.from_numpy(times)[place])
