"""Mechanisms: what a defence declares of its noise, so that a ledger can account for it.

The ε of Gaussian noise is worked out here and not by dp-accounting, which answers the same: a defence needs σ
before anything runs, on devices that have no accountant, and a ledger asks for thousands of users at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import torch
from torch import Tensor

from veilrec.base.params import part_of

__all__ = ["DELTA", "Law", "Mechanism", "counted", "exact", "gaussian_epsilon", "gaussian_ratio"]

DELTA = 1e-5  # of every (ε, δ) that is not pure
HALVINGS = 100  # of an interval: float64 has no more to give
Law = Literal["laplace", "gaussian", "exponential"]


@dataclass(frozen=True)
class Mechanism:
    """Clipping and noise on one entry of an upload, or draws in its place.

    Attributes:
        defence: Who adds it.
        name: The entry.
        kind: ``laplace`` or ``gaussian`` noise; ``exponential`` where values such as item numbers are drawn,
            each with a probability proportional to e to the power of score / scale.
        scale: λ of Laplace's noise, σ of Gauss's, what scores are divided by.
        clip: Bound on each value before the noise, or on the norm of all that the defence covers; on scores.
        by: Which of the two: ``value`` or ``norm``.
        rows: ``all`` where a table goes up whole; ``touched`` where the row numbers tell what was touched.
        width: Values in a row of a table, or in a weight that is not a table; how many are drawn.
        table: Rows of the table; None for a weight that is not a table.
        place: The defence's place in a chain.
        every: ``upload`` where it is added once, ``epoch`` where after every local one: the last counts.
    """

    defence: str
    name: str
    kind: Law
    scale: Fraction
    clip: Fraction
    width: int
    table: int | None = None
    by: Literal["value", "norm"] = "value"
    rows: Literal["touched", "all"] = "touched"
    place: int = 0
    every: Literal["upload", "epoch"] = "upload"

    @property
    def part(self) -> str:
        """The part of the model that the weight belongs to."""
        return part_of(self.name)

    @property
    def coordinates(self) -> int:
        """The most values that one upload holds under this name."""
        return self.width * (1 if self.table is None else self.table)

    @property
    def ratio(self) -> Fraction:
        """Sensitivity in units of the noise: what is clipped to ±clip differs by 2·clip at most.

        Of the odds of a draw both the score and what they are normed by may differ by as much.
        """
        return (4 if self.kind == "exponential" else 2) * self.clip / self.scale

    @property
    def epsilon(self) -> float:
        """ε of one coordinate or draw, for any two values; at `DELTA` where the noise is Gauss's."""
        if self.kind != "gaussian":
            return float(self.ratio)
        return float(gaussian_epsilon(torch.tensor([float(self.ratio)], dtype=torch.float64)))


def counted(declared: Sequence[Mechanism]) -> list[Mechanism]:
    """Keep of several noises on a weight the one whose upload costs least: no other undoes its guarantee.

    Those after it work on its output, those before it on its input, and it clips whatever comes in.
    """
    best: dict[str, Mechanism] = {}
    for mechanism in declared:
        known = best.get(mechanism.name)
        if known is None or _cost(mechanism) < _cost(known):
            best[mechanism.name] = mechanism
    return list(best.values())


def _cost(mechanism: Mechanism) -> float:
    """ε of all values of an upload under a name; a norm bounds them together, and is charged once."""
    if mechanism.by == "norm":
        return mechanism.epsilon
    if mechanism.kind != "gaussian":
        return mechanism.epsilon * mechanism.coordinates
    whole = float(mechanism.ratio) * mechanism.coordinates**0.5
    return float(gaussian_epsilon(torch.tensor([whole]))[0])


def exact(number: float) -> Fraction:
    """A number as it was written: 0.02 is 1/50."""
    return Fraction(str(number))


def gaussian_epsilon(ratio: Tensor, delta: float = DELTA) -> Tensor:
    """``[n]`` ε of Gaussian noise whose sensitivity is `ratio` times its standard deviation, ``[n]``.

    After Balle and Wang, "Improving the Gaussian Mechanism for Differential Privacy", ICML 2018:
    δ = Φ(r/2 − ε/r) − e^ε Φ(−r/2 − ε/r), solved for t in ε = r (r/2 + t).
    """
    r = ratio.double()
    low, high = -r / 2, torch.full_like(r, 40.0)  # ε = 0; a δ below any float
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        above = _delta(r, middle) > delta
        low, high = torch.where(above, middle, low), torch.where(above, high, middle)
    # Where even ε = 0 has a smaller δ, the interval has shrunk onto its lower end.
    return (r * (r / 2 + high)).clamp(min=0)


def gaussian_ratio(epsilon: float, delta: float = DELTA) -> float:
    """The reverse of `gaussian_epsilon`: the sensitivity that such an ε allows, in units of σ."""
    low, high = torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    while bool(_delta(high, epsilon / high - high / 2) <= delta):
        low, high = high, 2 * high
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        fits = _delta(middle, epsilon / middle - middle / 2) <= delta
        low, high = torch.where(fits, middle, low), torch.where(fits, high, middle)
    return float(low)


def _delta(ratio: Tensor, t: Tensor) -> Tensor:
    """δ at ε = r (r/2 + t): Φ(−t) − φ(t)·M(r + t) with Mills' ratio M, in which nothing overflows."""
    root = math.sqrt(2)
    tail: Tensor = torch.special.erfc(t / root)
    mills: Tensor = torch.special.erfcx((ratio + t) / root)
    return (tail - torch.exp(-t.square() / 2) * mills) / 2
