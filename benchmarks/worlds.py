"""Long-tailed synthetic worlds of known shapes, the same bits for every contestant."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]

FEWEST = 20  # training events of the quietest user
BLOCK = 256  # users drawn at once: bounds memory at BLOCK × items


class Shape(NamedTuple):
    """How large a world is: what a benchmark's cost depends on."""

    users: int
    items: int
    events: int  # training events in all


SHAPES = {
    "ml-100k": Shape(943, 1_682, 98_114),
    "ml-1m": Shape(6_040, 3_706, 988_129),
    "tiny": Shape(60, 200, 2_400),
}


@dataclass(frozen=True)
class World:
    """Who touched what, user by user.

    Attributes:
        shape: Users, items, training events.
        start: ``[users + 1]``; the events of user u are ``item[start[u]:start[u + 1]]``.
        item: ``[events]`` item ids, ascending and distinct within a user.
        held: ``[users]`` one item per user that is not among its training items.
    """

    shape: Shape
    start: Ids
    item: Ids
    held: Ids

    def positives(self, user: int) -> Ids:
        """The training items of one user, ascending."""
        return self.item[self.start[user] : self.start[user + 1]]

    def digest(self) -> str:
        """A short hash of the whole world: contestants that print the same one did the same work."""
        content = b"".join(array.tobytes() for array in (self.start, self.item, self.held))
        return hashlib.sha256(content).hexdigest()[:12]


def make(shape: str | Shape, seed: int = 0) -> World:
    """A world of a given shape (or name in `SHAPES`): the same seed gives the same world."""
    shape = SHAPES[shape] if isinstance(shape, str) else shape
    generator = np.random.Generator(np.random.PCG64(seed))
    activity = _activity(shape, generator)
    log_popularity = -0.9 * np.log(np.arange(1, shape.items + 1) + 10.0)  # Zipf with a flat top
    log_popularity = generator.permutation(log_popularity)
    item, held = [], []
    for first in range(0, shape.users, BLOCK):
        some = activity[first : first + BLOCK]
        # the largest n of log p + Gumbel are n draws without replacement
        gumbel = generator.gumbel(size=(len(some), shape.items))
        order = np.argsort(-(log_popularity + gumbel), axis=1)
        item += [np.sort(row[:count]) for row, count in zip(order, some, strict=True)]
        held += [int(row[count]) for row, count in zip(order, some, strict=True)]
    start = np.concatenate([[0], np.cumsum(activity)])
    return World(shape, start.astype(np.int64), np.concatenate(item).astype(np.int64), np.array(held))


def _activity(shape: Shape, generator: np.random.Generator) -> Ids:
    """Events per user: log-normal above `FEWEST`, at most 60 % of the items, with the exact sum."""
    spare = shape.events - FEWEST * shape.users
    if spare < 0:
        raise ValueError(f"{shape} has fewer than {FEWEST} events a user")
    most = int(0.6 * shape.items) - FEWEST
    if spare > most * shape.users:
        raise ValueError(f"{shape} has more events than 60 % of users × items")
    weight = generator.lognormal(sigma=1.2, size=shape.users)
    extra = np.minimum(spare * weight / weight.sum(), most).astype(np.int64)
    while (missing := spare - int(extra.sum())) > 0:  # what the cap and the rounding took away
        roomy = np.flatnonzero(extra < most)
        chosen = generator.choice(roomy, size=min(missing, len(roomy)), replace=False)
        extra[chosen] += 1
    return np.asarray(FEWEST + extra, dtype=np.int64)
