"""Defaults of torch: what a caller or a plug-in has set for itself changes no bit of what is done here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

__all__ = ["own_defaults"]


@contextmanager
def own_defaults() -> Iterator[None]:
    """While this lasts new tensors are float32 and lie on the CPU, and afterwards as the caller had it.

    >>> with own_defaults():
    ...     torch.set_default_dtype(torch.float64)
    >>> torch.get_default_dtype()
    torch.float32
    """
    dtype, device = torch.get_default_dtype(), torch.get_default_device()
    torch.set_default_dtype(torch.float32)
    if device.type != "cpu":
        torch.set_default_device(None)  # a device that is set, the CPU too, slows every call
    try:
        yield
    finally:
        torch.set_default_dtype(dtype)
        if torch.get_default_device() != device:
            torch.set_default_device(device if device.type != "cpu" else None)
