"""Usefulness: what an erasure cost the lists, by the same users before and after."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from veilrec.lab.trials import People
from veilrec.metrics.resampling import Measured, mean, summary

__all__ = ["usefulness"]

DIGITS = 6
RESAMPLES = 500


def usefulness(metrics: Mapping[str, tuple[Tensor, Tensor]], people: People) -> dict[str, Any]:
    """By metric the means before and after, and their paired difference with its interval.

    ``metrics`` have two values a user, ``[users]`` each, NaN for who was not tested.
    """
    found: dict[str, Any] = {}
    for name, (before, after) in metrics.items():
        tested = (before + after).isfinite()
        if not bool(tested.any()):
            found[name] = {"missing": "nobody was tested on both sides"}
            continue
        weight = people.weights(tested, RESAMPLES)
        pairs = {"before": before, "after": after, "difference": after - before}
        told = {key: _told(value[tested].double(), weight) for key, value in pairs.items()}
        found[name] = {**told, "users": int(tested.sum())}
    return found


def _told(value: Tensor, weight: Tensor) -> dict[str, float]:
    measured: Measured = summary(float(value.mean()), mean(value, weight))
    return {key: round(number, DIGITS) for key, number in measured.plain().items()}
