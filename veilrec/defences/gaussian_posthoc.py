"""GaussianPosthoc: noise on the finished model, once.

Paper: Li et al., "FedAU²: Attribute Unlearning for User-Level Federated Recommender Systems with Adaptive and
Robust Adversarial Training", AAAI 2026: its rows "APM" were most likely made so. It is not the mechanism of
the paper that it names, which is `apm`.
Acts at: attach, unlearn.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from torch import Tensor

from veilrec.base.keys import Keys
from veilrec.base.params import KEPT, Params, part_of
from veilrec.defence import Defence
from veilrec.errors import BadInput, nearest
from veilrec.model import Recommender
from veilrec.protocol import State

if TYPE_CHECKING:
    from veilrec.rounds import Federation

__all__ = ["GaussianPosthoc"]

BLOCK = 256  # devices that get their noise at a time


@dataclass(frozen=True)
class GaussianPosthoc(Defence):
    """Add Gaussian noise to some parts of the selected model, on the server and on the devices.

    Whoever saw uploads before sees nothing of it: it guards the finished model alone, and promises nothing
    formally. Devices that never took part stay as they began; of item tables of a device's own, the rows that
    it touched get noise.

    Attributes:
        parts: The standard deviation of the noise, by part. The paper's code has 3 on user vectors of FedNCF,
            0.12 on the encoder of FedVAE and 0.1 on the residuals of FedRAP.
    """

    parts: Mapping[str, float] = field(default_factory=lambda: {"user": 1.0})

    def __post_init__(self) -> None:
        for name, scale in self.parts.items():
            if not 0 <= scale < math.inf:
                raise BadInput(f"defence.parts.{name}", f"{scale} is no deviation", "give 0 or more")

    def attach(self, model: Recommender) -> Recommender:
        """The model as it is, if it has what is to get noise."""
        for part in self.parts:
            if part not in model.parts:
                fix = nearest(part, model.parts)
                raise BadInput("defence.parts", f'the model has no part "{part}"', fix)
        return model

    def unlearn(self, state: State, federation: Federation) -> State:
        """The same state with noise."""
        keys, devices = federation.keys.fold("posthoc"), state.devices.copy()
        for cohort in devices.clients().split(BLOCK):
            tags = federation.clients.tags[cohort]
            devices.put(cohort, self._noised(devices.get(cohort), keys.fold("device"), tags))
        server = self._noised(state.server, keys.fold("server"))
        return replace(state, server=server, devices=devices)

    def _noised(self, values: Params, keys: Keys, tags: Tensor | None = None) -> Params:
        """Weights by name with noise, each client's own ``[c, …]`` where there are clients."""
        found = dict(values)
        for name, value in values.items():
            scale = self.parts.get(part_of(name.removeprefix(KEPT)), 0.0)
            if scale and value.is_floating_point():
                own = keys.fold(name) if tags is None else keys.fold(name).fold(tags)
                shape = value.shape if tags is None else value.shape[1:]
                found[name] = value + scale * own.normal(*shape, dtype=value.dtype)
        return found
