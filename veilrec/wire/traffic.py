"""Traffic: how many bytes cross the codec, by client, direction and kind of message."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from veilrec.base.params import Params
from veilrec.wire import codec
from veilrec.wire.codec import Schema, Spec
from veilrec.wire.uploads import Exchange, Posts

__all__ = ["Traffic"]

UP, DOWN = ("upload", "posts"), ("letter", "posts")  # kinds of message, as they are counted
COUNTERS = (
    "messages",
    "most up",
    "most down",
    *(f"up {kind}" for kind in UP),
    *(f"down {kind}" for kind in DOWN),
)


class Traffic:
    """Counts each chunk as it passes; give it to `Federation.rounds` as a watch.

    A client that takes part in a round receives a letter and everybody's posts so far, and sends an upload
    and, where it consents, posts of its own. Sizes are those of `wire.encode`, computed from the schema.

    What devices ask recommendations with, where the server scores, is beside it: how often they ask depends
    on people and not on training, so it is told how long one question is.

    Attributes:
        up, down: ``[clients]`` bytes so far.
        query: Bytes of one question; 0 where devices score for themselves.
        reads: The values it reads of an upload: none, only how many rows there are.
    """

    tag = "traffic"
    reads = ()

    def __init__(self, down: Schema, n_clients: int, n_seats: int = 1, query: Schema | None = None) -> None:
        self.up = torch.zeros(n_clients, dtype=torch.int64)
        self.down = torch.zeros(n_clients, dtype=torch.int64)
        self._n_seats = n_seats
        self._letter = _longest(down)
        self.query = _longest(query) if query else 0
        self._count = dict.fromkeys(COUNTERS, 0)
        self._told = self._totals()  # at the end of the last round

    def __call__(self, exchange: Exchange) -> None:
        """Count one chunk of one round."""
        received = exchange.received
        cohort = received.cohort.cpu()
        upload, posts = self._uploads(exchange), self._posts(received.posts, cohort)
        public = _size(exchange.sent.posts)
        up, down = upload + posts, self._letter + public
        self.up[cohort] += up
        self.down[cohort] += down
        count, n = self._count, len(cohort)
        count["messages"] += n
        count["up upload"] += int(upload.sum())
        count["up posts"] += int(posts.sum())
        count["down letter"] += n * self._letter
        count["down posts"] += n * public
        count["most up"] = max(count["most up"], int(up.max()) if n else 0)
        count["most down"] = max(count["most down"], down if n else 0)

    def finish(self) -> dict[str, int]:
        """The end of a round: its bytes over all clients."""
        before, self._told = self._told, self._totals()
        return {way: total - before[way] for way, total in self._told.items()}

    def summary(self) -> dict[str, Any]:
        """Bytes per client and round, in all, and by kind of message."""
        count, each = self._count, max(1, self._count["messages"])
        totals = {"up": int(self.up.sum()), "down": int(self.down.sum())}
        table: dict[str, Any] = {
            way: {"mean": total / each, "max": count[f"most {way}"], "total": total}
            for way, total in totals.items()
        }
        kinds = {
            "up": {kind: count[f"up {kind}"] for kind in UP},
            "down": {kind: count[f"down {kind}"] for kind in DOWN},
        }
        return {
            **table,
            "by_kind": kinds,
            "messages": count["messages"],
            "clients": int((self.down > 0).sum()),
            **({"query": self.query} if self.query else {}),
        }

    def state(self) -> Params:
        """All counters as tensors, for checkpoints between two rounds."""
        counters = torch.tensor(list(self._count.values()), dtype=torch.int64)
        return {"up": self.up, "down": self.down, "counters": counters}

    def restore(self, state: Params) -> None:
        """The reverse of `state`."""
        self.up, self.down = state["up"].clone(), state["down"].clone()
        self._count = dict(zip(COUNTERS, state["counters"].tolist(), strict=True))
        self._told = self._totals()

    def merge(self, other: Params) -> None:
        """Add what another counter, of other clients, has in its `state`."""
        self.up, self.down = self.up + other["up"], self.down + other["down"]
        for name, count in zip(COUNTERS, other["counters"].tolist(), strict=True):
            most = name.startswith("most")
            self._count[name] = max(self._count[name], count) if most else self._count[name] + count

    def _totals(self) -> dict[str, int]:
        return {"up_bytes": int(self.up.sum()), "down_bytes": int(self.down.sum())}

    def _uploads(self, exchange: Exchange) -> Tensor:
        """``[c]`` bytes of each client's upload, by the schema of the letter that it answers."""
        received, schema = exchange.received, exchange.schema
        tables = [name for name, spec in schema.items() if spec.table is not None]
        if not tables:
            return torch.full((len(received.cohort),), codec.size(schema, {}), dtype=torch.int64)
        counts = torch.stack([received.row_counts(name).cpu() for name in tables], 1)
        kinds, which = counts.unique(dim=0, return_inverse=True)
        sizes = [codec.size(schema, dict(zip(tables, rows, strict=True))) for rows in kinds.tolist()]
        return torch.tensor(sizes, dtype=torch.int64)[which]

    def _posts(self, posts: Posts, cohort: Tensor) -> Tensor:
        """``[c]`` bytes of what each client posts: the rows of its own users."""
        if not len(posts.owner):
            return torch.zeros(len(cohort), dtype=torch.int64)
        client = torch.div(posts.owner.cpu(), self._n_seats, rounding_mode="floor")
        counts = torch.bincount(client, minlength=len(self.up))[cohort]
        sizes = [_size({name: value[:n] for name, value in posts.values.items()}) for n in counts.tolist()]
        return torch.tensor(sizes, dtype=torch.int64)


def _longest(schema: Schema) -> int:
    """Bytes of a message with every row of its tables."""
    return codec.size(schema, {name: spec.table or 0 for name, spec in schema.items()})


def _size(posts: Params) -> int:
    """Bytes of a message with posts; no post, no message."""
    if not sum(len(value) for value in posts.values()):
        return 0
    return codec.size({name: Spec(tuple(value.shape), value.dtype) for name, value in posts.items()}, {})
