"""RandomGuess: guess by the shares of the classes among the known users. The floor of every attack.

Paper: none; every paper on attribute inference compares with it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from veilrec.attack import Attack, Seen, Task
from veilrec.base.keys import Keys

__all__ = ["RandomGuess"]


@dataclass(frozen=True)
class RandomGuess(Attack):
    """Draw each user's class with the frequencies among the known users; nothing that was seen is read.

    >>> known = torch.tensor([0, 0, 0, 1, -1, -1])  # of two users the label is not known
    >>> guess = RandomGuess(seed=2).infer(Seen.of_vectors(torch.zeros(6, 4)), Task(known, classes=2))
    >>> guess.argmax(1)
    tensor([0, 1, 0, 0, 0, 0])

    Attributes:
        seed: Of the draws, beside that of the task.
    """

    seed: int = 0

    @property
    def family(self) -> str:
        return "floor"

    def infer(self, seen: Seen, task: Task) -> Tensor:
        share = torch.bincount(task.known[task.labelled], minlength=task.classes).double()
        logits = share.clamp(min=1e-12).log().expand(len(task.known), task.classes)
        keys = Keys.seed(self.seed).fold("guess").fold(task.seed)
        return F.one_hot(keys.choose(logits), task.classes).double()
