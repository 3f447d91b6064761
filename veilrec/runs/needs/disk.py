"""The disk: what a run will leave there, and what lies there only while it runs."""

from __future__ import annotations

import math

from veilrec.base.limits.fits import Need
from veilrec.interactions import Interactions
from veilrec.lab.examiner import Examiner
from veilrec.runs.needs.counts import Counts

__all__ = ["on_disk"]

WORD = 8  # bytes of an id or a time
LINE = 700  # bytes of a round in both journals
STATES = 3  # two checkpoints and the selected state


def on_disk(counts: Counts, examiner: Examiner) -> tuple[Need, ...]:
    """The files of a run by what they hold."""
    state = 3 * counts.shared  # with two moments of a server that steps by Adam
    devices = counts.store
    return (
        Need("the world", _world(examiner.data)),
        Need("the selected state", counts.shared + devices),
        Need("checkpoints", STATES * (state + devices)),
        Need("the transcript", 2 * _transcript(counts, probed=bool(examiner.audits or counts.record.last))),
        Need("metrics", LINE * counts.rounds),
    )


def _world(data: Interactions) -> int:
    """The log, ids and titles."""
    columns = 2 + (data.rating is not None) + (data.time is not None)
    words = [*data.user_ids, *data.item_ids, *(data.texts or ())]
    features = 0 if data.features is None else data.features.numel() * data.features.itemsize
    labels = WORD * data.n_users * (len(data.attributes) + len(data.values))
    return WORD * columns * len(data) + sum(map(len, words)) + 4 * len(words) + features + labels


def _transcript(counts: Counts, *, probed: bool) -> int:
    """Uploads that are written down, in the rounds that are kept and in the probe."""
    schema, sizes = counts.fleet.schema(), counts.fleet.clients.sizes
    middle = sorted(sizes)[len(sizes) // 2] if sizes else 0
    rows = counts.rows_of(middle)
    each = sum(
        math.prod(schema[name].shape)
        * schema[name].dtype.itemsize
        * (1 if schema[name].table is None else rows)
        for name in counts.kept
    )
    rounds = min(counts.record.last, counts.rounds)
    return (each + WORD) * (rounds * counts.cohort + (counts.clients if probed else 0))
