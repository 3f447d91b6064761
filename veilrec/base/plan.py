"""The plan of a run: rounds, cohorts, local steps, and the sizes in which work is done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import torch

from veilrec.base.limits.bounds import Bounds, Many, Rounds, RoundsOrNone, hold, takes
from veilrec.base.steps import Rates, Stepper
from veilrec.errors import BadInput

__all__ = ["Forwards", "Plan"]

Forwards = Annotated[int, Bounds(2, 1_000_000_000)] | Literal["each", "all"]


@takes("plan")
@dataclass(frozen=True)
class Plan:
    """The amount of work in a run, and the sizes in which it is done.

    Of 1,000 clients a tenth takes part in each round, and 5 passes are 50 rounds:

    >>> plan = Plan(passes=5, cohort=0.1, order="deal")
    >>> plan.size(1000), plan.last(1000)
    (100, 50)

    Attributes:
        rounds: At most so many.
        passes: At most so many times everybody, in place of `rounds`; looks, patience and the rounds that
            are kept then count passes.
        cohort: Share of the clients that takes part in a round; from 2, their number.
        order: A cohort is drawn anew for each round, or everybody takes part once before anybody does again,
            dealt anew into cohorts in each pass.
        forwards: The part of a round that leaves the devices' side: ``each`` upload by itself, sums over so
            many devices or a few more, or one sum over ``all``; smaller rounds are refused. The cryptography
            that hides uploads is not simulated.
        epochs: How often a client goes through its own events in a round.
        batch: Events per local step; each brings its negatives along.
        negatives: Untouched items per event, drawn anew in every epoch.
        optimiser: Optimiser of the devices; its state for parts that stay on a device stays there too.
        lr: A rate for all parts, or by part: ``{user = 0.01, default = 0.1}``.
        evaluate_every: Rounds between two looks at the validation items.
        patience: Stop after so many looks without a better one; 0 never does.
        chunk: Devices trained at once; it changes memory and never results. 0 fits a cache, or fills a GPU.
        workers: Threads that train chunks side by side; they change no bit.
        precision: Precision of the weights: float32, or float64 for tests.
        keeps: Place of devices' own weights between rounds: it changes memory and never results. ``auto``
            takes files for more than a gigabyte of them, unless on a GPU.
        timeout: Seconds without a sign of life after which a process of the run is taken for lost, where it
            has several.
        budget: Stop before the round in which the ε of all uploads of any one user would exceed this number;
            0 for no budget.
    """

    rounds: Rounds = 100
    passes: RoundsOrNone = 0
    cohort: Annotated[float, Bounds(0, 1e9, above=True)] = 1.0
    order: Literal["sample", "deal"] = "sample"
    forwards: Forwards = "each"
    epochs: Annotated[int, Bounds(1, 10_000)] = 1
    batch: Many = 256
    negatives: Annotated[int, Bounds(0, 10_000)] = 4
    optimiser: Literal["sgd", "adam"] = "sgd"
    lr: Rates = 0.1
    evaluate_every: Rounds = 10
    patience: RoundsOrNone = 0
    chunk: Annotated[int, Bounds(0, 1_000_000)] = 0
    workers: Annotated[int, Bounds(1, 256)] = 2
    precision: Literal["float32", "float64"] = "float32"
    keeps: Literal["auto", "memory", "disk"] = "auto"
    timeout: Annotated[float, Bounds(2, 1e6)] = 60.0
    budget: Annotated[float, Bounds(0, 1e9)] = 0.0

    def __post_init__(self) -> None:
        hold(self, "plan")
        if self.cohort > 1 and not (self.cohort >= 2 and float(self.cohort).is_integer()):
            fix = "give a number above 0 and up to 1, or a whole number of clients from 2"
            raise BadInput("plan.cohort", f"{self.cohort} is no share", fix)
        if self.passes and self.order == "sample" and self.cohort != 1:
            what = "cohorts that are drawn anew leave people out of a pass"
            raise BadInput("plan.order", what, 'set it to "deal", or count rounds')

    @property
    def dtype(self) -> torch.dtype:
        """The numbers that weights are made of."""
        return torch.float64 if self.precision == "float64" else torch.float32

    @property
    def stepper(self) -> Stepper:
        """The stepper of the devices."""
        return Stepper(self.optimiser, self.lr)

    def size(self, able: int) -> int:
        """The number of clients that take part in a round, out of so many."""
        wanted = int(self.cohort) if self.cohort > 1 else int(self.cohort * able + 0.5)
        return min(able, max(1, wanted))

    def smallest(self, able: int) -> int:
        """The number of clients in the smallest cohort: where they are dealt, those who are left over."""
        size = self.size(able)
        return able % size or size if self.order == "deal" else size

    def unit(self, able: int) -> int:
        """The number of rounds in a unit of counting: 1, or a whole pass where passes are counted."""
        return -(-able // self.size(able)) if self.passes else 1

    def last(self, able: int) -> int:
        """The round after which training ends."""
        return self.passes * self.unit(able) if self.passes else self.rounds

    def chunk_on(self, device: torch.device, events: int, whole: int = 0) -> int:
        """Devices trained at once, the largest of which has so many events.

        Each uploads so many values of tables that go up whole: a chunk's uploads are held at once.
        """
        if self.chunk:
            return self.chunk
        if device.type != "cpu":
            fits = AT_ONCE_ON_GPU // min(events, self.batch)
            return max(1, min(ON_GPU, fits, HELD_ON_GPU // max(1, whole)))
        return max(1, min(MOST, AT_ONCE // min(events, self.batch), HELD // max(1, whole)))


AT_ONCE = 4096  # events in a step of a chunk: their activations fit the cache of a CPU
MOST = 256  # devices in a chunk
ON_GPU = 2048  # devices in a chunk on a GPU
AT_ONCE_ON_GPU = 1 << 21  # events in a step there: some gigabytes, where a log is long
HELD, HELD_ON_GPU = 1 << 24, 1 << 28  # values in the uploads of a chunk, where tables go up whole
