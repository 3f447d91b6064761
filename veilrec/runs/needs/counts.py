"""Counts: how many devices a run will meet, what each comes to keep, and in what portions they work."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from veilrec.base.params import Scope, part_of
from veilrec.engine import fused
from veilrec.engine.devices import private_rows
from veilrec.engine.devices.store import MUCH
from veilrec.engine.in_process import InProcess
from veilrec.rounds import Federation
from veilrec.wire.transcript import Record

__all__ = ["Counts"]

WORD = 8  # bytes of an id
GAPS = 1.5  # times the rows of tables of their own that devices keep in memory, as measured with FedRAP


@dataclass(frozen=True)
class Counts:
    """What a federation amounts to.

    Attributes:
        federation: The federation.
        record: What will be written down of its uploads.
    """

    federation: Federation
    record: Record
    _chunks: dict[frozenset[str], Sequence[Tensor]] = field(default_factory=dict, repr=False)

    @cached_property
    def fleet(self) -> InProcess:
        """The devices, which are all in this process before a run begins."""
        fleet = self.federation.fleet
        assert isinstance(fleet, InProcess)
        return fleet

    @property
    def clients(self) -> int:
        """Devices that have events."""
        return len(self.federation.able)

    @property
    def cohort(self) -> int:
        """Devices in a round."""
        return self.federation.plan.size(self.clients)

    @property
    def rounds(self) -> int:
        """Rounds until the end, where nothing ends training earlier."""
        return self.federation.last

    @property
    def items(self) -> int:
        """Items of the log."""
        return self.fleet.clients.log.n_items

    @property
    def users(self) -> int:
        """Users of the log."""
        return self.fleet.clients.log.n_users

    @cached_property
    def number(self) -> int:
        """Bytes of a weight."""
        return self.federation.plan.dtype.itemsize

    @cached_property
    def shared(self) -> int:
        """Bytes of the weights that all devices share."""
        return self.number * self._numel(self.fleet.model.names(Scope.SHARED))

    @cached_property
    def own(self) -> int:
        """Bytes of what a device keeps of one shape, with its optimiser's state."""
        model = self.fleet.model
        tables, kept = private_rows.names_of(model), model.names(Scope.EXPOSED, Scope.PRIVATE)
        helpers = [name for name in kept if model.parts[part_of(name)].helper]
        plain = [name for name in kept if name not in tables and name not in helpers]
        stepper, momentum = self.federation.plan.stepper, self.federation.defence.helpers.momentum
        copies = 1 + 2 * (stepper.kind == "adam") + (stepper.kind != "adam" and bool(stepper.momentum))
        return self.number * (copies * self._numel(plain) + (2 if momentum else 1) * self._numel(helpers))

    @cached_property
    def widest(self) -> int:
        """Bytes of the largest weight of one shape that a device keeps."""
        model = self.fleet.model
        kept = set(model.names(Scope.EXPOSED, Scope.PRIVATE)) - set(private_rows.names_of(model))
        return self.number * max((model.get_parameter(name).numel() for name in kept), default=0)

    @cached_property
    def row(self) -> int:
        """Bytes of a row of the item tables that a device keeps as its own, in all of them together."""
        tables = private_rows.names_of(self.fleet.model)
        copies = 1 + 2 * (self.federation.plan.stepper.kind == "adam")
        width = sum(int(self.fleet.model.get_parameter(name)[0].numel()) for name in tables)
        return self.number * copies * width + WORD if tables else 0

    @cached_property
    def met(self) -> int:
        """Devices that will have taken part at least once: as many as are to be expected."""
        plan, n, size = self.federation.plan, self.clients, self.cohort
        if plan.order == "deal" or size == n:
            return min(n, size * self.rounds)
        missed: float = (1 - size / n) ** self.rounds
        return math.ceil(n * (1 - missed))

    def rows_of(self, events: int, times: float = 1.0) -> int:
        """The item rows that a device with so many events has touched after so many rounds."""
        plan = self.federation.plan
        others = max(1, self.items - events)
        drawn = events * plan.negatives * plan.epochs * times
        missed: float = (1 - 1 / others) ** drawn
        return min(self.items, events + math.ceil(others * (1 - missed)))

    @cached_property
    def kept_rows(self) -> int:
        """The rows of tables of its own that a device keeps at the end, in the mean."""
        if not self.row or not self.clients:
            return 0
        times = self.rounds * self.cohort / self.clients
        kinds = Counter(self.fleet.clients.sizes)
        rows = sum(count * self.rows_of(events, times) for events, count in kinds.items() if events)
        return math.ceil(rows / self.clients)

    @cached_property
    def store(self) -> int:
        """Bytes of what all devices keep."""
        return self.met * (self.own + self.row * self.kept_rows)

    @cached_property
    def store_in_memory(self) -> int:
        """The same with the gaps between rows, which are given up and made anew in every round, and grow."""
        grows = self.widest // 2  # of a column, which is there one and a half times while it grows
        return self.met * (self.own + grows + int(GAPS * self.row * self.kept_rows))

    @property
    def on_disk(self) -> bool:
        """Whether devices keep that in files."""
        keeps, most = self.federation.plan.keeps, self.clients * (self.own + self.row * self.items)
        return keeps == "disk" or (
            keeps == "auto" and self.fleet.keys.value.device.type == "cpu" and most > MUCH
        )

    @cached_property
    def kept(self) -> set[str]:
        """The weights of uploads that are written down."""
        return self.record.chosen(self.fleet.schema()) if self.record.last else set()

    def together(self, read: set[str] | None) -> frozenset[str]:
        """The weights of which a chunk has only the sum, where these are read device by device."""
        return fused.summed(self.fleet.task(), self.fleet.clients.sizes, read)

    def chunks(self, together: frozenset[str]) -> list[Tensor]:
        """The chunks that take most: of the largest devices, and of those that touch most rows together."""
        every, sizes = self.every_chunk(together), self.fleet.clients.sizes
        rows = [len(chunk) * self.rows_of(sizes[int(chunk[0])]) for chunk in every]
        widest = int(torch.tensor(rows).argmax())
        return [every[0]] if widest == 0 else [every[0], every[widest]]

    def every_chunk(self, together: frozenset[str]) -> Sequence[Tensor]:
        """All chunks of a round with everybody."""
        if together not in self._chunks:
            self._chunks[together] = self.fleet.chunks(self.federation.able, together)
        return self._chunks[together]

    def _numel(self, names: list[str]) -> int:
        return sum(self.fleet.model.get_parameter(name).numel() for name in names)
