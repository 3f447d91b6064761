"""The noise of `sampling` for tensors on a GPU: the same bits and the same laws, in torch."""

from __future__ import annotations

import math
import os
from collections.abc import Callable

import torch
from torch import Tensor

from veilrec.base.keys import GOLDEN, WORD, Keys, mixed, signed
from veilrec.defences.noise.sampling import HALVINGS, RARE, TAIL, Kind, half_of

__all__ = ["noise"]

More = Callable[[Tensor, int], Tensor]  # places [k] and a turn → further words [k]


def noise(key: Tensor, row: Tensor, width: int, kind: Kind, scale: float, *, secret: bool) -> Tensor:
    """``[n, width]`` noise in whole steps for rows ``[n]`` with keys ``[n]``, as `Sampler.draw` has it."""
    half = half_of(width)
    words, more = _system(row, half) if secret else _seeded(key, row, half)
    bits = words.view(torch.int32)  # [n, 2 half]
    if kind == "laplace":
        size = _exponential(bits, scale, more, 1)
        drawn = torch.where(bits < 0, -size, size)
    else:
        radius = _exponential(bits[:, ::2], 2.0, more, 2).sqrt_().mul_(scale)
        angle = bits[:, 1::2].double().mul_(math.pi / 2**31)
        drawn = torch.stack([radius * angle.cos(), radius * angle.sin()], -1).flatten(1)
    return drawn.round_()[:, :width]


def _seeded(key: Tensor, row: Tensor, half: int) -> tuple[Tensor, More]:
    """As `sampling.Seeded`."""
    first = key + (row * half + 1) * signed(GOLDEN)  # [n]

    def more(place: Tensor, turn: int) -> Tensor:
        word = first[place // (2 * half)] + place % (2 * half) * signed(GOLDEN)
        return mixed(word ^ signed((turn + 1) * TAIL & WORD))

    return Keys(key).rows(row, half), more


def _system(row: Tensor, half: int) -> tuple[Tensor, More]:
    """As `sampling.System`."""

    def drawn(n: int) -> Tensor:
        return torch.frombuffer(bytearray(os.urandom(8 * n)), dtype=torch.int64).to(row.device)

    return drawn(len(row) * half).reshape(len(row), half), lambda place, turn: drawn(len(place))


def _exponential(bits: Tensor, scale: float, more: More, apart: int) -> Tensor:
    """``[n, m]`` exponential numbers, from 31 bits each where these suffice."""
    size = bits.double().abs_().mul_(2.0**-31)
    rare = (size < RARE).flatten().nonzero().squeeze(1)
    size.clamp_(min=RARE).log_().mul_(-scale)
    size.view(-1)[rare] = scale * (HALVINGS * math.log(2) + _tail(more, apart * rare))
    return size


def _tail(more: More, place: Tensor) -> Tensor:
    """``[k]`` exponential numbers with scale 1, as `sampling.tail`."""
    size, turn = torch.zeros(len(place), dtype=torch.float64, device=place.device), 0
    left = torch.arange(len(place), device=place.device)
    while len(left):
        words = more(place[left], turn)
        fraction = ((words >> 11) & ((1 << 53) - 1)).double() + 0.5
        size[left] -= (fraction * 2.0**-53).log()
        again = ((words >> 32) & 0xFFFFFFFF) == 0  # 32 leading zeros: the law begins anew behind them
        left, turn = left[again], turn + 1
        size[left] = 32 * math.log(2) * turn
    return size
