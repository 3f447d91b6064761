"""A portion of work: what some devices will read in one round, drawn from their keys and padded together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from veilrec.base.keys import Keys, below
from veilrec.base.rows import padded, ragged, within
from veilrec.clients import Batch, Clients

__all__ = ["Portion", "Step"]


@dataclass(frozen=True)
class Portion:
    """One round's examples for a chunk of devices, largest device first.

    Attributes:
        cohort: ``[c]`` the clients.
        sizes: Events of each client, descending, so that those still at work are always a prefix.
        known: What does not change from step to step: rows, history, features, attributes, consents.
        epochs: For each local pass, shuffled: user ``[c, p]``, item ``[c, p]``, negative ``[c, p, q]``.
    """

    cohort: Tensor
    sizes: list[int]
    known: Batch
    epochs: list[tuple[Tensor, Tensor, Tensor]]

    @classmethod
    def draw(
        cls,
        clients: Clients,
        cohort: Tensor,
        keys: Keys,
        *,
        epochs: int,
        negatives: int,
        history: int = 0,
        dtype: torch.dtype = torch.float32,
    ) -> Portion:
        """Draw a round's examples; `keys` are the clients' own for this round, ``[c]``.

        A device holds the rows it touches: its items and the negatives of all its passes, in ascending order.
        """
        flat = _Flat.of(clients, cohort)
        passes = []
        for epoch in range(epochs):
            own = keys.fold("epoch").fold(epoch)
            order = flat.shuffle(own.fold("order"))
            passes.append((order, flat.untouched(own.fold("negatives"), negatives)[order]))
        base = flat.client[:, None] * clients.log.n_items  # one number for each (client, item)
        rows, local = _local_tables(
            [base[:, 0] + flat.item, *(base + negative for _, negative in passes)],
            len(cohort),
            clients.log.n_items,
        )
        known = clients.batch(cohort, history=history, rows=rows, dtype=dtype)
        item = local(base[:, 0] + flat.item)
        padded = [
            (flat.pad(flat.seat[order]), flat.pad(item[order]), flat.pad(local(base + negative)))
            for order, negative in passes
        ]
        if history:
            places = torch.arange(len(cohort), device=cohort.device)[:, None, None] * clients.log.n_items
            seen = torch.where(known.history >= 0, local(places + known.history.clamp(min=0)), -1)
            known = known._replace(history=seen)
        return cls(cohort, flat.sizes, known, padded)

    def steps(self, epoch: int, size: int, *, narrow: bool = False) -> Iterator[Step]:
        """One local pass in batches of `size` events, for the clients that still have data.

        With `narrow`, a step that is not the only one reads a table of just the rows it needs.
        """
        user, item, negative = self.epochs[epoch]
        counts = torch.tensor(self.sizes, device=item.device)
        for begin in range(0, self.sizes[0], size):
            active = sum(count > begin for count in self.sizes)
            end = min(begin + size, self.sizes[0])
            place = torch.arange(begin, end, device=item.device)
            weight = (place < counts[:active, None]).to(self.known.weight.dtype)
            batch = prefix(self.known, active)._replace(
                user=user[:active, begin:end],
                item=item[:active, begin:end],
                negative=negative[:active, begin:end],
                weight=weight,
            )
            yield narrowed(batch) if narrow and self.sizes[0] > size else Step(batch, None)


class Step(NamedTuple):
    """One local step of the first clients of a portion."""

    batch: Batch
    place: (
        Tensor | None
    )  # [k, u] the rows of the local tables that the batch's ids mean; None for all of them


def narrowed(batch: Batch) -> Step:
    """The same step on the rows that it names; shorter clients are padded with rows nothing refers to."""
    k, b, q = batch.negative.shape
    index = torch.cat([batch.item, batch.negative.reshape(k, b * q)], 1)  # [k, b (1 + q)]
    flag = torch.zeros(batch.rows.shape, dtype=torch.bool, device=index.device).scatter_(1, index, True)
    client, row = flag.nonzero(as_tuple=True)
    counts = flag.sum(1)
    rank = within(client, counts)
    place = padded(row, client, rank, counts)
    where = torch.empty_like(flag, dtype=torch.int64)  # only what was flagged is read
    where[client, row] = rank
    new = where.gather(1, index)
    there = torch.arange(place.shape[1], device=index.device) < counts[:, None]
    rows = torch.where(there, batch.rows.gather(1, place), -1)
    return Step(batch._replace(rows=rows, item=new[:, :b], negative=new[:, b:].reshape(k, b, q)), place)


def prefix(batch: Batch, k: int) -> Batch:
    """The batch of the first `k` clients."""
    cut = [v[:k] if isinstance(v, Tensor) else {n: a[:k] for n, a in v.items()} for v in batch]
    return Batch(*cut)  # type: ignore[arg-type]


@dataclass(frozen=True)
class _Flat:
    """The events of a cohort without padding, one after another."""

    sizes: list[int]
    client: Tensor  # [e] position in the cohort
    within: Tensor  # [e] position among the client's events
    item: Tensor  # [e]
    seat: Tensor  # [e]
    block: Tensor  # [e] where the events of the same user begin
    gap: Tensor  # [e] (client, seat) block times (items + 1), plus the gap: ascending
    offset: Tensor  # [e] the block part of `gap`
    free: Tensor  # [e] how many items the user has not touched

    @classmethod
    def of(cls, clients: Clients, cohort: Tensor) -> _Flat:
        events, n_items = clients.events, clients.log.n_items
        sizes = [clients.sizes[k] for k in cohort.tolist()]
        counts = torch.tensor(sizes, device=cohort.device)
        client, place = ragged(counts)
        event = events.start[cohort][client] + place
        seat = events.seat[event]
        offset = (client * clients.n_seats + seat) * (n_items + 1)
        return cls(
            sizes=sizes,
            client=client,
            within=place,
            item=events.item[event],
            seat=seat,
            block=torch.arange(len(client), device=cohort.device) - events.rank[event],
            gap=offset + events.gap[event],
            offset=offset,
            free=n_items - events.touched[event],
        )

    def shuffle(self, keys: Keys) -> Tensor:
        """``[e]`` an order of the events that is random within each client and keeps clients apart."""
        words = keys.pick(self.client).at(self.within)
        return ((self.client << 44) | ((words >> 20) & ((1 << 44) - 1))).sort(stable=True).indices

    def untouched(self, keys: Keys, n: int) -> Tensor:
        """``[e, n]`` items that the event's user has not touched, uniformly."""
        place = self.within[:, None] * n + torch.arange(n, device=self.within.device)
        r = below(Keys(keys.value[self.client][:, None]).at(place), self.free[:, None])
        skipped = torch.searchsorted(self.gap, self.offset[:, None] + r, right=True) - self.block[:, None]
        return r + skipped

    def pad(self, values: Tensor) -> Tensor:
        """``[e, …]`` to ``[c, p, …]``, with zeros behind the shorter clients."""
        wide = values.new_zeros(len(self.sizes), self.sizes[0], *values.shape[1:])
        wide[self.client, self.within] = values
        return wide


class _Local:
    """From (client, item) numbers to rows of the local tables."""

    def __init__(self, row: Tensor) -> None:
        self.row = row

    def __call__(self, pair: Tensor) -> Tensor:
        return self.row[pair]


def _local_tables(pairs: list[Tensor], n_clients: int, n_items: int) -> tuple[Tensor, _Local]:
    """The rows each client touches, ``[c, l]`` ascending and padded with -1, and where each one went."""
    touched = torch.zeros(n_clients * n_items, dtype=torch.bool, device=pairs[0].device)
    for pair in pairs:
        touched[pair.reshape(-1)] = True
    pair = touched.nonzero().squeeze(1)
    owner = torch.div(pair, n_items, rounding_mode="floor")
    counts = torch.bincount(owner, minlength=n_clients)
    local = within(owner, counts)
    rows = padded(pair - owner * n_items, owner, local, counts, -1)
    where = torch.empty(
        n_clients * n_items, dtype=torch.int64, device=pair.device
    )  # only touched entries are read
    where[pair] = local
    return rows, _Local(where)
