"""Adversaries: heads that guess an attribute from a user's vector, and what their gradients give away.

Paper: Li et al., "FedAU²: Attribute Unlearning for User-Level Federated Recommender Systems with Adaptive and
Robust Adversarial Training", AAAI 2026, §4.3.
Eq. (10) → `Adversary` with noise on both paths (DSVAE); without it on the mean (VAE); without any (plain).
"""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from veilrec.base.keys import Keys

__all__ = ["Adversary", "Head", "mean_over", "part_named"]

Head = Literal["dsvae", "vae", "plain"]


def part_named(prefix: str, attribute: str) -> str:
    """The part that guesses an attribute; a dot would end its name."""
    return prefix + attribute.replace(".", "_")


def mean_over(each: Tensor, who: Tensor) -> Tensor:
    """The mean of ``each [seats]`` over some of them; 0 where there is nobody."""
    return (each * who).sum() / who.sum().clamp(min=1)


class Affine(nn.Module):
    """``x @ weight``, with a bias or without; laid out ``[in, out]``."""

    def __init__(self, width: int, height: int, *, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width, height))
        self.bias = nn.Parameter(torch.empty(height)) if bias else None

    def initial(self, last: str, keys: Keys) -> Tensor:
        """N(0, 2 / (in + out)); biases N(0, 0.001²)."""
        if last == "bias":
            return 0.001 * keys.normal(self.weight.shape[1])
        return math.sqrt(2 / sum(self.weight.shape)) * keys.normal(*self.weight.shape)

    def forward(self, x: Tensor) -> Tensor:
        """``[…, in]`` to ``[…, out]``."""
        return x @ self.weight if self.bias is None else x @ self.weight + self.bias


class Adversary(nn.Module):
    """A vector to one logit per class, through one hidden layer.

    With noise the last layer gives a mean μ and a log-spread for each logit, which is then
    u = μ ⊙ ε₁ + σ ⊙ ε₂. Its own draws hide what a gradient tells of the label as far as they turn its sign.

    Args:
        width, classes: Of the vector, and how many.
        hidden: Width of the layer between.
        head: ``plain``; ``vae``, ε₂ ~ N(0, I) alone; ``dsvae``, also ε₁ ~ N(1, variance).
        variance: λ of Eq. (10): a variance, not a deviation.
    """

    def __init__(self, width: int, classes: int, hidden: int, head: Head, variance: float) -> None:
        super().__init__()
        self.classes, self.kind, self.variance = classes, head, variance
        self.draws = head != "plain"
        self.hidden = Affine(width, hidden, bias=True)
        self.last = Affine(hidden, 2 * classes if self.draws else classes, bias=not self.draws)

    def forward(self, x: Tensor, keys: Keys | None = None) -> Tensor:
        """``[n, width]`` to ``[n, classes]``; a head that draws needs keys."""
        given = self.last(F.relu(self.hidden(x)))
        if not self.draws:
            return given  # type: ignore[no-any-return]
        assert keys is not None
        mean, spread = given.split(self.classes, -1)
        if self.kind == "dsvae":
            mean = mean * (1 + math.sqrt(self.variance) * _noise(keys.fold("mean"), mean))
        return mean + spread.exp() * _noise(keys.fold("spread"), mean)  # type: ignore[no-any-return]


def _noise(keys: Keys, like: Tensor) -> Tensor:
    return keys.normal(*like.shape, dtype=like.dtype)
