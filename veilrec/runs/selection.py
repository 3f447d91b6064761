"""Selection: which round's state a run keeps, by what users would have seen on their validation items."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

__all__ = ["Selection"]


@dataclass
class Selection:
    """The best look at the validation items so far; of equal ones the first.

    Attributes:
        metric: What is compared; higher is better.
        first: Rounds up to which no state is kept, because the defence does not guard yet.
        patience: Looks without a better one after which training may stop; 0 for never.
        round: The best look's round, 0 while there was none.
        best: Its value.
        since: Looks after it.
    """

    metric: str
    patience: int = 0
    first: int = 0
    round: int = 0
    best: float = float("-inf")
    since: int = 0

    def look(self, row: Mapping[str, float]) -> bool:
        """Take in a row of metrics; True where it is the best so far. One without the metric is left out."""
        if self.metric not in row or row["round"] <= self.first:
            return False
        if row[self.metric] > self.best:
            self.round, self.best, self.since = int(row["round"]), row[self.metric], 0
            return True
        self.since += 1
        return False

    @property
    def exhausted(self) -> bool:
        """Whether the patience for better looks is used up."""
        return 0 < self.patience <= self.since

    def state(self) -> dict[str, Any]:
        """The state of the selection that a checkpoint keeps."""
        return {**asdict(self), "best": self.best if self.round else None}

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Selection:
        """The reverse of `state`."""
        known = {field.name: state[field.name] for field in fields(cls) if field.name in state}
        return cls(**{**known, "best": float("-inf") if known["best"] is None else known["best"]})
