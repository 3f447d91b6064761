"""EarlyStop: end training before the model has learned more of people than it needs.

Paper: Zhao et al., "Privacy-Aware Representation Decoupling in Federated Recommendation against Attribute
Inference Attacks" (PARD; §IV, the rival Early-stop, which ends where it is as useful as APM).
Acts at: stop.
"""

from __future__ import annotations

from dataclasses import dataclass

from veilrec.base.limits.bounds import RoundsOrNone, Share
from veilrec.defence import Defence
from veilrec.errors import BadInput
from veilrec.protocol import State

__all__ = ["EarlyStop"]

ROUNDS = 10  # where nothing else ends training


@dataclass(frozen=True)
class EarlyStop(Defence):
    """End training after some rounds, or as soon as a validation metric reaches a target.

    A run keeps the best look at its validation items. Where `metric` is the one that selects
    (`evaluation.select`), the look that reaches the target is the best so far, so that the last state is the
    one kept. With `rounds` it is the best look until then: let `plan.evaluate_every` divide `rounds`, so that
    the last round is one. It promises nothing formally.

    To be as useful as another run, and no more, take what that run reached on its validation items
    (`utility.validation` in its result). The result's `stopped` shows whether the target was reached: it is
    ``defence`` then, or where `rounds` ended training first.

    Beside a defence that warms up it ends nothing before the first round that is guarded.

    >>> EarlyStop(rounds=5).stop(State(round=5, server={}), [])
    True
    >>> by_target = EarlyStop(metric="ndcg@10", target=0.2)
    >>> [by_target.stop(State(round=1, server={}), [{"ndcg@10": seen}]) for seen in (0.1, 0.25)]
    [False, True]

    Attributes:
        rounds: End after so many; 0 for no such end. If nobody says, 0 beside a target and 10 without one.
        metric: The metric that is compared with the target at each look at the validation items.
        target: End where the metric is this high; 0 for no such end.
    """

    rounds: RoundsOrNone | None = None
    metric: str = "ndcg@10"
    target: Share = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rounds == 0 and not self.target:
            raise BadInput("defence.rounds", "nothing ever ends training", "give rounds, or a target")

    @property
    def watches(self) -> tuple[str, ...]:  # type: ignore[override]
        return (self.metric,) if self.target else ()

    def stop(self, state: State, history: list[dict[str, float]]) -> bool:
        last = (0 if self.target else ROUNDS) if self.rounds is None else self.rounds
        if last and state.round >= last:
            return True
        return bool(self.target) and bool(history) and self._reached(history[-1])

    def _reached(self, row: dict[str, float]) -> bool:
        """True if the last round was a look, and reached the target."""
        return self.metric in row and row[self.metric] >= self.target
