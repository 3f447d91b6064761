"""The plan: how much work, and in what portions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from veilrec.base.steps import Rates, Stepper, every_rate
from veilrec.errors import BadInput

__all__ = ["Plan"]


@dataclass(frozen=True)
class Plan:
    """How much work, and in what portions.

    Attributes:
        rounds: At most so many.
        cohort: Share of the clients that takes part in a round.
        epochs: Local passes over a client's events in a round.
        batch: Events per local step; each brings its negatives along.
        negatives: Untouched items per event, drawn anew in every pass.
        optimiser: What devices step with; the state for parts that stay on a device stays there too.
        lr: A rate for all parts, or by part: ``{user = 0.01, default = 0.1}``.
        evaluate_every: Rounds between two looks at the validation items.
        patience: Stop after so many looks without a better one; 0 never does.
        chunk: Devices trained at once: memory, never results. 0 chooses what fits a cache; more on a GPU.
        workers: Threads that train chunks side by side; they change no bit.
        precision: Of the weights: float32, or float64 for tests.
        keeps: Where devices' own weights lie between rounds: memory, never results. ``auto`` takes files for
            more than a gigabyte of them, unless on a GPU.
        budget: Stop before the round in which the ε of all of somebody's uploads together would exceed this;
            0 for no budget.
    """

    rounds: int = 100
    cohort: float = 1.0
    epochs: int = 1
    batch: int = 256
    negatives: int = 4
    optimiser: Literal["sgd", "adam"] = "sgd"
    lr: Rates = 0.1
    evaluate_every: int = 10
    patience: int = 0
    chunk: int = 0
    workers: int = 2
    precision: Literal["float32", "float64"] = "float32"
    keeps: Literal["auto", "memory", "disk"] = "auto"
    budget: float = 0.0

    def __post_init__(self) -> None:
        for name, least in LEAST.items():
            if getattr(self, name) < least:
                raise BadInput(f"plan.{name}", f"{getattr(self, name)} is too few", f"give {least} or more")
        if not 0 < self.cohort <= 1:
            raise BadInput("plan.cohort", f"{self.cohort} is no share", "give a number above 0 and up to 1")
        if not 0 <= self.budget < float("inf"):
            raise BadInput(
                "plan.budget", f"{self.budget} is no ε", "give a number above 0, or 0 for no budget"
            )
        if not all(0 <= rate < float("inf") for rate in every_rate(self.lr)):
            raise BadInput("plan.lr", f"{self.lr} is no learning rate", "give a finite number from 0 upwards")

    @property
    def dtype(self) -> torch.dtype:
        """The numbers that weights are made of."""
        return torch.float64 if self.precision == "float64" else torch.float32

    @property
    def stepper(self) -> Stepper:
        """How devices step."""
        return Stepper(self.optimiser, self.lr)

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
LEAST = {
    "rounds": 1,
    "epochs": 1,
    "batch": 1,
    "negatives": 0,
    "evaluate_every": 1,
    "patience": 0,
    "chunk": 0,
    "workers": 1,
}
