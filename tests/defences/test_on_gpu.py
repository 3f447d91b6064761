"""The GPU's noise is the CPU's: the same bits, the same tail, the same law; torch runs it here on a CPU."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.noisy import clients, device, seeded, steps_of, values
from veilrec.base.keys import Keys
from veilrec.base.params import Message, Rows
from veilrec.defences.gaussian import Gaussian
from veilrec.defences.laplace import Laplace
from veilrec.defences.noise import blurring, on_gpu, weights
from veilrec.defences.noise.noisy import Noisy
from veilrec.defences.noise.sampling import Kind, lattice


def both(kind: Kind, width: int, scale: float = 5000.0) -> tuple[torch.Tensor, torch.Tensor]:
    """Noise of 4,000 rows by torch and by numpy, in steps."""
    row = torch.arange(4000) % 700
    key = Keys.seed(3).fold(torch.arange(4000) // 700).value
    there = on_gpu.noise(key, row, width, kind, scale, secret=False)
    here = steps_of(seeded(key, row, width), kind, scale, 4000, width)
    return there, torch.from_numpy(here.astype(np.float64))


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


@pytest.mark.parametrize(
    "defence", [Laplace(rows="all"), Gaussian(clip_by="norm", what="change"), Gaussian()], ids=str
)
def test_what_leaves_a_gpu_is_what_leaves_a_cpu(defence: Noisy, monkeypatch: pytest.MonkeyPatch) -> None:
    """The walk of a GPU, on a CPU: weight by weight, with the noise of `on_gpu`."""
    keys, row = clients(5), torch.arange(40).expand(5, 40)
    upload: Message = {**values(5), "item": Rows(row, Keys.seed(2).normal(5, 40, 7))}
    sent = {name: 0.1 * torch.ones_like(v.value if isinstance(v, Rows) else v) for name, v in upload.items()}
    devices = device(keys, sent)
    here = defence.on_upload(upload, devices)
    monkeypatch.setattr(blurring, "_groups", lambda pieces: [[piece] for piece in pieces])
    monkeypatch.setattr(
        weights,
        "_on_cpu",
        lambda hows, weight, key, widths, block, out: weights._on_gpu(hows[0], weight, key[:, 0], block, out),
    )
    there = defence.on_upload(upload, devices)
    step = lattice(defence.noise.scale_of("item"), defence.noise.clip).step
    for name, value in here.items():
        a, b = (x.value if isinstance(x, Rows) else x for x in (value, there[name]))
        assert float((a - b).abs().max()) <= 1.01 * step
        assert float((a != b).double().mean()) < 0.01
