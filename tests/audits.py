"""Audits of vectors with a planted leak, of any strength; each is made once a process."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from veilrec.lab.anyone.audited import audited
from veilrec.lab.anyone.outsider import Outsider
from veilrec.lab.match_ids import Audience
from veilrec.metrics.vector_audits import VectorAudit

USERS = 200
OUTSIDER = Outsider(repeats=1, learners=("logistic",))


def audience(strength: float, first: int = 0, users: int = USERS) -> Audience:
    """People by number; the first column of their vectors has their sex, and the second their age."""
    rows = np.arange(first, first + users)
    draws = np.stack([np.random.default_rng(row).normal(size=6) for row in rows])
    sex = np.array([np.random.default_rng(row + 10**6).integers(0, 2) for row in rows])
    vectors = draws[:, :4].astype(np.float32)
    vectors[:, 0] += strength * (sex - 0.5)
    vectors[:, 1] += strength * draws[:, 4]
    return Audience(
        vectors,
        [f"person-{row:06}" for row in rows],
        {"sex": sex, "coin": (draws[:, 5] > 0).astype(np.int64)},
        {"sex": ("female", "male"), "coin": ("heads", "tails")},
        {"age": draws[:, 4] * 10 + 40},
    )


@lru_cache
def audit_of(strength: float, control: float | None = None) -> VectorAudit:
    """An audit of people whose vectors leak so much, and of a control whose vectors leak as much or less."""
    others = None if control is None else ("control.npy", audience(control, first=10_000))
    return audited(OUTSIDER, audience(strength), ("v.npy", "users.csv"), others, options=["--by-position"])
