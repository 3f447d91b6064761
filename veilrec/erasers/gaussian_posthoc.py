"""GaussianPosthoc: noise on the finished model, once.

Paper: Li et al., "FedAU²: Attribute Unlearning for User-Level Federated Recommender Systems with Adaptive and
Robust Adversarial Training", AAAI 2026: its rows "APM" were most likely made so. It is not the mechanism of
the paper that it names, which is `apm`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from torch import Tensor

from veilrec.base.keys import Keys
from veilrec.base.params import part_of
from veilrec.eraser import VectorEraser
from veilrec.errors import BadInput

__all__ = ["GaussianPosthoc"]


@dataclass(frozen=True)
class GaussianPosthoc(VectorEraser):
    """Add Gaussian noise to some parts of the selected model, on the server and on the devices.

    Whoever saw uploads before sees nothing of it: it guards the finished model alone, and promises nothing
    formally. Devices that never took part stay as they began; of item tables of a device's own, the rows that
    it touched get noise.

    >>> import torch
    >>> noise = GaussianPosthoc({"user": 2.0})
    >>> found = noise.erase("user", torch.zeros(1000), Keys.seed(0))
    >>> round(float(found.std()))
    2

    Attributes:
        parts: The standard deviation of the noise, by part. The paper's code has 3 on user vectors of FedNCF,
            0.12 on the encoder of FedVAE and 0.1 on the residuals of FedRAP.
    """

    parts: Mapping[str, float] = field(default_factory=lambda: {"user": 1.0})

    def __post_init__(self) -> None:
        for name, scale in self.parts.items():
            if not 0 <= scale < math.inf:
                raise BadInput(f"eraser.parts.{name}", f"{scale} is no deviation", "give 0 or more")

    @property
    def changes(self) -> Collection[str]:
        return self.parts

    def erase(self, name: str, vectors: Tensor, keys: Keys) -> Tensor:
        """The vectors with noise."""
        shape = vectors.shape[keys.value.dim() :]
        return vectors + self.parts[part_of(name)] * keys.normal(*shape, dtype=vectors.dtype)
