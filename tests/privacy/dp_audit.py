"""An audit of a mechanism's ε by its outputs: what so many samples prove, and what they cannot.

A mechanism with ε tells two inputs apart by a factor of at most e^ε in the probability of any event. So
events that are seen prove a lower bound on ε. The event is chosen on one half of the samples and counted on
the other, with the interval of Clopper and Pearson. A bound above the claim refutes it. A bound below it
proves nothing where so many samples could not have shown more: no ε beyond the logarithm of their number is
ever seen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

__all__ = ["Audit", "audit"]

Outputs = NDArray[np.float64]
Sampler = Callable[[int, int], Outputs]
"""``sample(arm, n)``: n outputs for one of two inputs, the two ends of what is clipped."""

EVENTS = 1000  # thresholds that are tried on the first half


class Audit(NamedTuple):
    """The findings of an audit of noise.

    Attributes:
        claimed: The ε that was claimed, at `delta`.
        delta: The δ that goes with it.
        lower: The ε that the outputs prove, with `confidence`.
        limit: The most that so many outputs could prove.
        samples: Of each input.
        confidence: That `lower` is no more than the true ε.
    """

    claimed: float
    delta: float
    lower: float
    limit: float
    samples: int
    confidence: float

    @property
    def verdict(self) -> Literal["holds", "violated", "not_verifiable"]:
        """Refuted, beyond what can be seen, or neither: it held where it could have failed."""
        if self.lower > self.claimed:
            return "violated"
        return "not_verifiable" if self.claimed > self.limit else "holds"


def audit(
    sample: Sampler,
    epsilon: float,
    *,
    delta: float = 0.0,
    samples: int = 10**6,
    confidence: float = 0.999,
) -> Audit:
    """Hold the outputs of a mechanism for two inputs against the ε that it claims.

    Args:
        sample: Gives ``[n]`` outputs for input 0 or 1.
        epsilon: The claim.
        delta: Of the claim.
        samples: Of each input; half of them choose the event, the others count.
        confidence: Of the bound.
    """
    alpha, half = (1 - confidence) / 2, samples // 2  # two intervals have to hold
    arms = [np.asarray(sample(arm, 2 * half), dtype=np.float64) for arm in (0, 1)]
    chosen = [np.sort(arm[:half]) for arm in arms]
    threshold = np.quantile(np.concatenate(chosen), np.linspace(0, 1, EVENTS))
    above = [
        half - np.searchsorted(arm, threshold, "left") for arm in chosen
    ]  # outputs from each threshold on
    cases = [  # an event, and the input that makes it likely
        (side, likely, _bound(seen[likely], seen[1 - likely], half, alpha, delta))
        for side, seen in (("above", above), ("below", [half - count for count in above]))
        for likely in (0, 1)
    ]
    side, likely, bounds = max(cases, key=lambda case: float(case[2].max()))
    best = threshold[int(bounds.argmax())]
    counts = [np.array([np.count_nonzero((arm[half:] >= best) == (side == "above"))]) for arm in arms]
    lower = float(_bound(counts[likely], counts[1 - likely], half, alpha, delta)[0])
    limit = float(_bound(np.array([half]), np.array([0]), half, alpha, delta)[0])
    return Audit(epsilon, delta, lower, limit, 2 * half, confidence)


def _bound(
    likely: NDArray[np.int64], other: NDArray[np.int64], n: int, alpha: float, delta: float
) -> Outputs:
    """``[k]`` the ε that counts ``[k]`` of an event in n samples of either input prove; 0 at least."""
    least = np.where(likely > 0, beta.ppf(alpha, np.maximum(likely, 1), n - likely + 1), 0.0)
    most = np.where(other < n, beta.ppf(1 - alpha, other + 1, np.maximum(n - other, 1)), 1.0)
    return np.asarray(np.log(np.maximum((least - delta) / most, 1.0)))
