"""Coarse: a defence of one hook.

Paper: none.
Acts at: on_upload.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from veilrec.base.params import Message, map_values
from veilrec.defence import Defence
from veilrec.model import Device

__all__ = ["Coarse"]


@dataclass(frozen=True)
class Coarse(Defence):
    """Weights leave as multiples of a step, up or down by chance; whole numbers leave as they are.

    Attributes:
        step: The distance between two of them.
    """

    step: float = 0.01

    def on_upload(self, upload: Message, device: Device) -> Message:
        def change(name: str, value: Tensor) -> Tensor:
            if not value.is_floating_point():
                return value
            chance = device.keys.fold(name).uniform(*value.shape, dtype=value.dtype)
            return torch.floor(value / self.step + chance) * self.step

        return map_values(upload, change)
