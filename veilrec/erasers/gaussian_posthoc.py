"""GaussianPosthoc: noise on the finished model, once.

Paper: Li et al., "FedAU²: Attribute Unlearning for User-Level Federated Recommender Systems with Adaptive and
Robust Adversarial Training", AAAI 2026: its rows "APM" were most likely made so. It is not the mechanism of
the paper that it names, which is `apm`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from torch import Tensor

from veilrec.base.keys import Keys
from veilrec.base.limits.bounds import Amount
from veilrec.base.params import part_of
from veilrec.eraser import VectorEraser

__all__ = ["GaussianPosthoc"]


@dataclass(frozen=True)
class GaussianPosthoc(VectorEraser):
    """Add Gaussian noise to some parts of the selected model, on the server and on the devices.

    The noise guards the finished model alone, not the uploads that the server has seen before, and promises
    nothing formally. Devices that never took part keep their first weights; of an item table of its own, a
    device blurs the rows that it touched.

    >>> import torch
    >>> noise = GaussianPosthoc({"user": 2.0})
    >>> found = noise.erase("user", torch.zeros(1000), Keys.seed(0))
    >>> round(float(found.std()))
    2

    Attributes:
        parts: The standard deviation of the noise, by part. The paper's code has 3 on user vectors of FedNCF,
            0.12 on the encoder of FedVAE and 0.1 on the residuals of FedRAP.
    """

    parts: Mapping[str, Amount] = field(default_factory=lambda: {"user": 1.0})

    @property
    def changes(self) -> Collection[str]:
        return self.parts

    def erase(self, name: str, vectors: Tensor, keys: Keys) -> Tensor:
        """The vectors with noise."""
        shape = vectors.shape[keys.value.dim() :]
        return vectors + self.parts[part_of(name)] * keys.normal(*shape, dtype=vectors.dtype)
