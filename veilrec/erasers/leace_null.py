"""LeaceNull: LEACE that ends where random classes would be, not at exact equality.

Paper: none; ours. The map is that of Belrose et al., "LEACE: Perfect linear concept erasure in closed form",
NeurIPS 2023, with another target.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from veilrec.eraser import Request
from veilrec.erasers.common.linear import Linear
from veilrec.erasers.common.sums import Step, SumEraser

__all__ = ["LeaceNull"]


@dataclass(frozen=True)
class LeaceNull(SumEraser):
    """Bring the mean of each class to a fresh draw of where the mean of so many random users would lie.

    The map needs no label to be applied: it may be learned from others who consent. The difference of a
    vector before and after tells much of its class, less than that by `Lethe`. It stops readers of means
    alone.

    >>> import torch
    >>> from veilrec.base.draws import Draws
    >>> from veilrec.base.keys import Keys
    >>> gender = torch.arange(200) % 2
    >>> vectors = Keys.seed(1).normal(200, 3) + 2.0 * gender[:, None]
    >>> after = LeaceNull().forget(vectors, Request({"gender": gender}), Draws(Keys.seed(0)))
    >>> [round(float(v[gender == 1].mean() - v[gender == 0].mean()), 1) for v in (vectors, after)]
    [2.0, 0.0]

    Attributes:
        attributes: Those to be forgotten; empty for every one that is asked for, in a run all with classes.
        parts: The parts of the model that hold the vectors; empty for all that have a row a user.
        lots: Where draws come from: the operating system, so that nobody can repeat them, or the seed of a
            run, so that everybody can: for tests and published tables, not for a model that is released.
    """

    attributes: Sequence[str] = ()
    parts: Sequence[str] = ()
    lots: Literal["secret", "keyed"] = "secret"

    @property
    def secret(self) -> bool:
        return self.lots == "secret"

    def steps(self, request: Request) -> Sequence[tuple[str, Step]]:
        return [(name, Linear(null=True)) for name in request.labels]
