"""RandomGuess: guess by the shares of the classes among the known users. The floor of every attack.

Paper: none; every paper on attribute inference compares with it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from veilrec.attack import Attack
from veilrec.keys import Keys
from veilrec.transcript import Transcript

__all__ = ["RandomGuess"]


@dataclass(frozen=True)
class RandomGuess(Attack):
    """Reads nothing: draws each user's class with the frequencies seen among the known users.

    Attributes:
        seed: Of the draws.
    """

    seed: int = 0

    def infer(self, seen: Transcript, known: Tensor, classes: int) -> Tensor:
        share = torch.bincount(known[known >= 0], minlength=classes).double()
        logits = share.clamp(min=1e-12).log().expand(len(known), classes)
        return F.one_hot(Keys.seed(self.seed).fold("guess").choose(logits), classes).double()
