"""LEACE: no linear reader finds the attribute any more, at the least change of the vectors.

Paper: Belrose et al., "LEACE: Perfect linear concept erasure in closed form", NeurIPS 2023, theorem 4.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from veilrec.eraser import Request
from veilrec.erasers.common.linear import Linear
from veilrec.erasers.common.sums import Step, SumEraser

__all__ = ["LEACE"]


@dataclass(frozen=True)
class LEACE(SumEraser):
    """Make the means of all classes equal, by one map for everybody that needs no label to be applied.

    The means become exactly equal over those who are learned from. Whoever knows the labels of a part of
    them therefore finds the rest on the other side, where random classes would lie on either: what was read
    is turned round. `LeaceNull` ends at the distance of random classes instead. Readers of more than means
    are not stopped by either.

    >>> import torch
    >>> vectors = torch.tensor([[0.0, 1.0], [0.0, -1.0], [4.0, 1.0], [4.0, -1.0]])
    >>> LEACE().forget(vectors, Request({"gender": torch.tensor([0, 0, 1, 1])}))
    tensor([[ 2.,  1.],
            [ 2., -1.],
            [ 2.,  1.],
            [ 2., -1.]])

    Attributes:
        attributes: Those to be forgotten; empty for every one that is asked for, in a run all with classes.
        parts: The parts of the model that hold the vectors; empty for all that have a row a user.
    """

    exact: ClassVar[bool] = True

    attributes: Sequence[str] = ()
    parts: Sequence[str] = ()

    def steps(self, request: Request) -> Sequence[tuple[str, Step]]:
        return [(name, Linear()) for name in request.labels]
