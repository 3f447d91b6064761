"""Components: what an attacker's answer is made of, for the class that is true; the truth is the judge's."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from veilrec.attack import Attack, Seen
from veilrec.lab.threat import Threat
from veilrec.lab.trials import People, Trial
from veilrec.lab.verdict import DIGITS, told
from veilrec.metrics.resampling import combine, mean, summary

__all__ = ["components"]


def components(
    seen: Seen, attack: Attack, trials: Sequence[Trial], people: People, threat: Threat
) -> dict[str, Any]:
    """Mean of the true class over the targets with its interval, and the median, by name.

    FedAU²'s figure 4b has the means. A single user whose input was found badly may have a correction of any
    size, and then the median says more.
    """
    found: dict[str, list[Any]] = {}
    for trial in trials:
        target = trial.draw.target.nonzero().squeeze(1)
        truth, weight = trial.goal.label[target], people.weights(target, threat.resamples)
        for name, each in attack.components(seen, trial.task).items():
            own = each[target, truth].double()  # [targets]
            measured = summary(float(own.mean()), mean(own, weight))
            found.setdefault(name, []).append((measured, float(own.median())))
    return {name: _told(some) for name, some in found.items()}


def _told(draws: Sequence[Any]) -> dict[str, float]:
    """Means over the draws, as ``result.json`` keeps them."""
    one, median = combine([measured for measured, _ in draws]), fmean(middle for _, middle in draws)
    return {**told(one), "median": round(median, DIGITS)}
