"""Examples: what some devices will read in one round, drawn from their keys and padded together.

`Portion` is the shape that pairwise and pointwise models read; a model or a protocol may bring another one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from veilrec.base.keys import Keys, below
from veilrec.base.plan import Plan
from veilrec.base.rows import padded, ragged, within
from veilrec.clients import Batch, Clients
from veilrec.wire.uploads import Letter

__all__ = ["Draw", "Examples", "LocalStep", "Portion", "Sequences"]


Local = Callable[[Tensor], Tensor]  # (client, item) numbers → rows of the local tables


class LocalStep(NamedTuple):
    """One local step of the first clients of some examples."""

    batch: Batch
    place: Tensor | None  # [k, u] the rows of the local tables that the batch's ids mean; None for all


@dataclass(frozen=True)
class Examples(ABC):
    """One round's examples for a chunk of devices, largest device first.

    Attributes:
        cohort: ``[c]`` the clients.
        sizes: Examples of each client; descending where some are done before others, so that those still at
            work are always a prefix.
        known: What does not change from step to step: rows, history, features, attributes, consents.
    """

    cohort: Tensor
    sizes: list[int]
    known: Batch

    def paces(self, size: int) -> list[int]:
        """Steps of an epoch for each client, in batches of so many examples."""
        return [-(-n // size) for n in self.sizes]

    @abstractmethod
    def steps(self, epoch: int, size: int, *, narrow: bool = False) -> Iterator[LocalStep]:
        """Batches of `size` examples for one epoch, of the clients that still have some.

        With `narrow`, a step that is not the only one reads a table of just the rows it needs.
        """


@dataclass(frozen=True)
class Draw:
    """The material from which some devices draw their examples, on the devices themselves.

    Attributes:
        clients: All devices' own data.
        cohort: ``[c]`` the devices at hand, the largest first.
        keys: Their own keys for the round, ``[c]``.
        plan: How many epochs, and negatives for each event.
        letter: What they received.
        held: ``[c, r]`` the rows that they keep of item tables of their own, -1 where padded; None if none.
    """

    clients: Clients
    cohort: Tensor
    keys: Keys
    plan: Plan
    letter: Letter
    held: Tensor | None = None

    def portion(self, history: int = 0, also: Tensor | None = None) -> Portion:
        """Every event once an epoch, shuffled, with its negatives.

        Args:
            history: How many of a user's latest items `Batch.history` holds; -1 for all.
            also: ``[c, n]`` items whose rows the devices need beside their own, -1 for none.
        """
        epochs, negatives = self.plan.epochs, self.plan.negatives
        settings = {"epochs": epochs, "negatives": negatives, "history": history}
        return Portion.draw(
            self.clients, self.cohort, self.keys, **settings, dtype=self.plan.dtype, also=also
        )

    def sequences(self, length: int, also: Tensor | None = None) -> Sequences:
        """Each user's latest items in the order of time, with negatives drawn once for the round."""
        return Sequences.draw(self, length, also)


@dataclass(frozen=True)
class Portion(Examples):
    """Events one by one, for models that score pairs of a user and an item.

    Attributes:
        epochs: For each epoch, shuffled: user ``[c, p]``, item ``[c, p]``, negative ``[c, p, q]``.
    """

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
        also: Tensor | None = None,
    ) -> Portion:
        """Draw a round's examples; `keys` are the clients' own for this round, ``[c]``.

        A device holds the rows it touches: its items and the negatives of all its epochs, in ascending order.
        """
        flat = _Flat.of(clients, cohort)
        passes = []
        for epoch in range(epochs):
            own = keys.fold("epoch").fold(epoch)
            order = flat.shuffle(own.fold("order"))
            passes.append((order, flat.untouched(own.fold("negatives"), negatives)[order]))
        base = flat.client[:, None] * clients.log.n_items  # one number for each (client, item)
        touched = [base[:, 0] + flat.item, *(base + negative for _, negative in passes)]
        touched += [] if also is None else [_pairs(also, clients.log.n_items)]
        rows, local = _local_tables(touched, len(cohort), clients.log.n_items)
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

    def steps(self, epoch: int, size: int, *, narrow: bool = False) -> Iterator[LocalStep]:
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
            yield narrowed(batch) if narrow and self.sizes[0] > size else LocalStep(batch, None)


@dataclass(frozen=True)
class Sequences(Examples):
    """Ordered histories of bounded length: one step an epoch, which reads all of them.

    A batch holds positions in time order: ``item [c, t]`` behind the padding of shorter ones, whose weight is
    0, and ``negative [c, t, q]``. `known.history` is the same items; what `Draw.letter` brought is added by
    whoever asked, as named tensors in `Batch.more`.
    """

    @classmethod
    def draw(cls, draw: Draw, length: int, also: Tensor | None = None) -> Sequences:
        """The latest `length` items of each user; a device holds the rows of all that is named."""
        clients, cohort, n_items = draw.clients, draw.cohort, draw.clients.log.n_items
        seats, q = clients.seats[cohort], draw.plan.negatives
        history = clients.events.history(seats, length).flatten(1)  # [c, seats · t]
        there = history >= 0
        user = torch.arange(seats.shape[1], device=cohort.device).repeat_interleave(length)
        untouched = _Flat.of(clients, cohort).apart(
            draw.keys.fold("negatives"), seats.shape[1], length, q, n_items
        )
        asked = [history, untouched.flatten(1), *([] if also is None else [also])]
        rows, local = _local_tables([_pairs(items, n_items) for items in asked], len(cohort), n_items)
        base = torch.arange(len(cohort), device=cohort.device) * n_items
        item = torch.where(there, local(base[:, None] + history.clamp(min=0)), 0)
        known = clients.batch(cohort, history=0, rows=rows, dtype=draw.plan.dtype)._replace(
            user=user.expand(len(cohort), -1),
            item=item,
            negative=local(base[:, None, None] + untouched),
            weight=there.to(draw.plan.dtype),
            history=torch.where(there, item, -1).unflatten(1, (-1, length)),
        )
        return cls(cohort, there.sum(1).tolist(), known)

    def bringing(self, **more: Tensor) -> Sequences:
        """The same examples with named tensors ``[c, …]`` in `Batch.more`."""
        return replace(self, known=self.known._replace(more={**self.known.more, **more}))

    def local(self, items: Tensor) -> Tensor:
        """Items ``[c, …]`` as rows of the local tables; -1 where there is none."""
        flat = items.flatten(1)
        found = torch.searchsorted(_ascending(self.known.rows), flat.contiguous())
        return torch.where(flat >= 0, found, -1).reshape(items.shape)

    def paces(self, size: int) -> list[int]:
        return [1] * len(self.sizes)

    def steps(self, epoch: int, size: int, *, narrow: bool = False) -> Iterator[LocalStep]:
        yield LocalStep(self.known, None)


def narrowed(batch: Batch) -> LocalStep:
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
    return LocalStep(batch._replace(rows=rows, item=new[:, :b], negative=new[:, b:].reshape(k, b, q)), place)


def prefix(batch: Batch, k: int) -> Batch:
    """The batch of the first `k` clients."""
    cut = [v[:k] if isinstance(v, Tensor) else {n: a[:k] for n, a in v.items()} for v in batch]
    return Batch(*cut)  # type: ignore[arg-type]


@dataclass(frozen=True)
class _Flat:
    """The events of a cohort without padding, one after another."""

    sizes: list[int]
    counts: Tensor  # [c] the same
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
            counts=counts,
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

    def apart(self, keys: Keys, seats: int, length: int, n: int, n_items: int) -> Tensor:
        """``[c, seats · length, n]`` items that each seat's user has not touched, uniformly."""
        clients, each = len(self.sizes), n_items + 1
        offset = torch.arange(clients * seats, device=self.gap.device) * each
        block = torch.searchsorted(self.gap, offset)
        free = n_items - (torch.searchsorted(self.gap, offset + each) - block)
        place = torch.arange(seats * length * n, device=self.gap.device)
        of = torch.arange(clients, device=self.gap.device)[:, None] * seats + place // max(1, length * n)
        r = below(Keys(keys.value[:, None]).at(place), free[of])
        skipped = torch.searchsorted(self.gap, offset[of] + r, right=True) - block[of]
        return (r + skipped).reshape(clients, seats * length, n)

    def pad(self, values: Tensor) -> Tensor:
        """``[e, …]`` to ``[c, p, …]``, with zeros behind the shorter clients."""
        return padded(values, self.client, self.within, self.counts)


def _pairs(items: Tensor, n_items: int) -> Tensor:
    """``[c, n]`` items, -1 for none, to one number for each (client, item)."""
    client = torch.arange(len(items), device=items.device)[:, None] * n_items
    return (client + items)[items >= 0]


def _ascending(rows: Tensor) -> Tensor:
    """Rows with what pads them behind all others."""
    return torch.where(rows < 0, 1 << 62, rows)


def _local_tables(pairs: list[Tensor], n_clients: int, n_items: int) -> tuple[Tensor, Local]:
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
    return rows, where.__getitem__
