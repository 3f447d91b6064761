"""Accounting: from what somebody has sent to the ε that it adds up to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Literal, NamedTuple

import torch

from veilrec.privacy.mechanism import DELTA, exact, gaussian_epsilon

__all__ = ["LIMIT", "Charge", "Spent", "spend"]

LIMIT = 4096  # coordinates, and ε of their sum, up to which a privacy loss distribution is computed
STEP = 1e-3  # between two losses of such a distribution; it is rounded so that ε is never too small
ROUNDING = 1e-12  # a sum of floats may come out differently beside other users

ADDED, COMPUTED, CLOSED = "exact addition", "PLD", "Gaussian closed form"


class Charge(NamedTuple):
    """The cost of one unit: a coordinate, or a whole upload where its norm is clipped.

    Attributes:
        kind: The law of the noise.
        ratio: Sensitivity in units of the noise: under Laplace's that is ε.
        whole: The place of the defence whose uploads are the units; -1 where coordinates are.
    """

    kind: Literal["laplace", "gaussian"]
    ratio: Fraction
    whole: int = -1


class Spent(NamedTuple):
    """An ε, the δ that goes with it, and how it was found; a fraction where it was added up exactly."""

    epsilon: Fraction | float
    delta: float
    how: str

    def within(self, budget: float) -> bool:
        """Whether a budget covers what was spent: exactly, or up to rounding where it is no fraction."""
        if isinstance(self.epsilon, Fraction):
            return self.epsilon <= exact(budget)
        return self.epsilon <= budget * (1 + ROUNDING)


def spend(charges: Sequence[Charge], units: Sequence[Sequence[int]], *, alike: bool = False) -> list[Spent]:
    """Add up the cost of so many units of each charge, for several users ``[users][charges]``.

    Laplace's ε are added up, exactly. Gauss's noise composes to Gauss's noise: squares of ratios are added
    up, exactly, and ε at `DELTA` follows in closed form. Sums up to `LIMIT` of uploads that are `alike`, so
    that few different ones occur, give way to a privacy loss distribution: a smaller ε, at `DELTA`.
    """
    every = [tuple(row) for row in units]
    sums = [_total(charges, row, "laplace", 1) for row in every]
    if all(charge.kind == "laplace" for charge in charges):
        return [_pure(tuple(charges), row, total, alike) for row, total in zip(every, sums, strict=True)]
    squares = [float(_total(charges, row, "gaussian", 2)) for row in every]
    smooth = gaussian_epsilon(torch.tensor(squares, dtype=torch.float64).sqrt()).tolist()
    both = any(charge.kind == "laplace" for charge in charges)
    how = f"{ADDED} and {CLOSED}" if both else CLOSED
    return [Spent(float(total) + more, DELTA, how) for total, more in zip(sums, smooth, strict=True)]


def _total(charges: Sequence[Charge], row: Sequence[int], kind: str, power: int) -> Fraction:
    return sum((n * c.ratio**power for c, n in zip(charges, row, strict=True) if c.kind == kind), Fraction(0))


def _pure(charges: tuple[Charge, ...], row: tuple[int, ...], total: Fraction, alike: bool) -> Spent:
    if alike and 1 < sum(row) <= LIMIT and total <= LIMIT:
        found = _distribution(charges, row)
        if found < total:
            return Spent(found, DELTA, COMPUTED)
    return Spent(total, 0.0, ADDED)


@lru_cache(maxsize=4096)
def _distribution(charges: tuple[Charge, ...], row: tuple[int, ...]) -> float:
    """ε at `DELTA` by composing privacy loss distributions."""
    from dp_accounting.pld import privacy_loss_distribution as losses

    whole = None
    for charge, n in zip(charges, row, strict=True):
        if n:
            one = losses.from_laplace_mechanism(
                parameter=float(1 / charge.ratio), value_discretization_interval=STEP
            )
            many = one.self_compose(n)
            whole = many if whole is None else whole.compose(many)
    return math.inf if whole is None else float(whole.get_epsilon_for_delta(DELTA))
