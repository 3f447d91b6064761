"""Accounting: from what somebody has sent to the ε that it adds up to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

import torch

from veilrec.privacy.mechanism import DELTA, Law, exact, gaussian_epsilon

__all__ = ["LIMIT", "Charge", "Spent", "spend"]

LIMIT = 4096  # coordinates, and ε of their sum, up to which a privacy loss distribution is computed
SURE = 100  # ε of a draw from which nothing is gained by a distribution, and e^ε soon is no float
STEP = 1e-3  # between two losses of such a distribution; it is rounded so that ε is never too small
ROUNDING = 1e-12  # a sum of floats may come out differently beside other users

ADDED, COMPUTED, CLOSED = "exact addition", "PLD", "Gaussian closed form"


class Charge(NamedTuple):
    """The cost of one unit: a coordinate, a draw, or a whole upload where its norm is clipped.

    Attributes:
        kind: The law of the noise.
        ratio: Sensitivity in units of the noise: but for Gauss's that is ε.
        whole: The place of the defence whose uploads are the units; -1 where coordinates are.
    """

    kind: Law
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

    The ε of Laplace's noise and of draws are added up, exactly. Gauss's noise composes to Gauss's noise:
    squares of ratios are added up, exactly, and ε at `DELTA` follows in closed form. Sums up to `LIMIT` of
    uploads that are `alike`, so that few different ones occur, give way to a privacy loss distribution: a
    smaller ε, at `DELTA`.
    """
    every = [tuple(row) for row in units]
    pure = [charge for charge in charges if charge.kind != "gaussian"]
    sums = [_total(charges, row, pure, 1) for row in every]
    if len(pure) == len(charges):
        return [_pure(tuple(charges), row, total, alike) for row, total in zip(every, sums, strict=True)]
    rest = [charge for charge in charges if charge.kind == "gaussian"]
    squares = [float(_total(charges, row, rest, 2)) for row in every]
    smooth = gaussian_epsilon(torch.tensor(squares, dtype=torch.float64).sqrt()).tolist()
    how = f"{ADDED} and {CLOSED}" if pure else CLOSED
    return [Spent(float(total) + more, DELTA, how) for total, more in zip(sums, smooth, strict=True)]


def _total(charges: Sequence[Charge], row: Sequence[int], of: Sequence[Charge], power: int) -> Fraction:
    return sum((n * c.ratio**power for c, n in zip(charges, row, strict=True) if c in of), Fraction(0))


def _pure(charges: tuple[Charge, ...], row: tuple[int, ...], total: Fraction, alike: bool) -> Spent:
    sure = any(n and c.kind == "exponential" and c.ratio > SURE for c, n in zip(charges, row, strict=True))
    if alike and 1 < sum(row) <= LIMIT and total <= LIMIT and not sure:
        found = _distribution(charges, row)
        if found < total:
            return Spent(found, DELTA, COMPUTED)
    return Spent(total, 0.0, ADDED)


@lru_cache(maxsize=4096)
def _distribution(charges: tuple[Charge, ...], row: tuple[int, ...]) -> float:
    """ε at `DELTA` by composing privacy loss distributions."""
    whole = None
    for charge, n in zip(charges, row, strict=True):
        if n:
            many = _losses(charge).self_compose(n)
            whole = many if whole is None else whole.compose(many)
    return math.inf if whole is None else float(whole.get_epsilon_for_delta(DELTA))


def _losses(charge: Charge) -> Any:
    """The privacy losses of one unit: of a draw, the worst that its ε allows."""
    from dp_accounting.pld import privacy_loss_distribution as losses
    from dp_accounting.pld.common import DifferentialPrivacyParameters

    if charge.kind == "laplace":
        return losses.from_laplace_mechanism(float(1 / charge.ratio), value_discretization_interval=STEP)
    return losses.from_privacy_parameters(
        DifferentialPrivacyParameters(float(charge.ratio), 0.0), value_discretization_interval=STEP
    )
