"""The GPU's noise is the CPU's: the same bits, the same tail, the same law; torch runs it here on a CPU."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from veilrec.defences import on_gpu
from veilrec.defences.sampling import Kind, Sampler, Seeded
from veilrec.keys import Keys


def both(kind: Kind, width: int, scale: float = 5000.0) -> tuple[torch.Tensor, torch.Tensor]:
    """Noise of 4,000 rows by torch and by numpy, in steps."""
    row = torch.arange(4000) % 700
    key = Keys.seed(3).fold(torch.arange(4000) // 700).value
    there = on_gpu.noise(key, row, width, kind, scale, secret=False)
    sampler = Sampler(Seeded(4000, width), kind, scale, 4000, width)
    here = sampler.draw(key.numpy().view(np.uint64), row.numpy().view(np.uint64))
    return there, torch.from_numpy(here[:, :width].astype(np.float64))


@pytest.mark.parametrize("width", [1, 5, 64])
@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_both_draw_the_same(kind: Kind, width: int) -> None:
    there, here = both(kind, width)
    assert there.shape == (4000, width)
    assert float((there - here).abs().max()) <= 1.0 + 1e-6 * float(here.abs().max())  # numpy's is in float32
    assert float(here.abs().max()) > 3 * 5000  # and some of it is far out


def test_secret_bits_hang_on_no_key() -> None:
    key, row = torch.zeros(500, dtype=torch.int64), torch.zeros(500, dtype=torch.int64)
    first, second = (on_gpu.noise(key, row, 8, "laplace", 100.0, secret=True) for _ in range(2))
    assert not torch.equal(first, second)
    assert len(first[:, 0].unique()) > 100
    assert abs(float(first.abs().mean()) - 100) < 10
