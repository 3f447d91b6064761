"""Blurring: clip, lattice and noise in one walk through the values of a whole cohort."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from veilrec.defences import on_gpu
from veilrec.defences.sampling import LARGEST, Kind, Lattice, Sampler, Seeded, Source, System
from veilrec.keys import Keys

__all__ = ["How", "Piece", "blur", "widen"]

BLOCK = {"cpu": 1 << 17, "cuda": 1 << 24}  # numbers at a time: what fits a cache; what keeps a GPU busy


@dataclass(frozen=True)
class How:
    """What is done with each value of a weight.

    Attributes:
        kind: The law of the noise.
        scale: λ or σ, in steps of the lattice.
        lattice: Where clipped values, noise and sums lie.
        secret: Whether the operating system gives the random bits, not the key.
    """

    kind: Kind
    scale: float
    lattice: Lattice
    secret: bool = False


class Piece(NamedTuple):
    """One weight of one device.

    Attributes:
        name: The weight's; its noise hangs on it.
        how: The noise.
        value: ``[rows, width]``; what is no table is one row.
        row: ``[rows]`` their numbers in the whole table, -1 where padded; None for what is no table.
        base: ``[table, width]`` what a change is measured against; None where values are clipped themselves.
    """

    name: str
    how: How
    value: Tensor
    row: Tensor | None = None
    base: Tensor | None = None


def blur(keys: Keys, pieces: Sequence[Piece], factor: Tensor | None = None) -> list[Tensor]:
    """The weights of one device, clipped, put on the lattice and noised; `vmap` may map it.

    Args:
        keys: The device's.
        pieces: The weights.
        factor: What values are multiplied by to bound their norm; None where each value is clipped.
    """
    if not pieces:
        return []
    named = _Named(tuple((piece.name, piece.how) for piece in pieces))
    return list(_Blur.apply(named, keys.value, factor, *(x for piece in pieces for x in piece[2:])))  # type: ignore[no-untyped-call]


def widen(base: Tensor, row: Tensor, value: Tensor) -> Tensor:
    """A whole table ``[table, …]``: `base`, but for the rows ``[r]`` that a device has, ``[r, …]``."""
    return _Widen.apply(base, row, value)  # type: ignore[no-any-return, no-untyped-call]


@dataclass(frozen=True)
class _Named:
    """What is known of the weights beside their values; `vmap` does not look into it."""

    of: tuple[tuple[str, How], ...]


class _Blur(torch.autograd.Function):
    """All weights at once, since a call under `vmap` is dear.

    Plain `vmap` would walk through memory some thirty times, and hold several times what it returns.
    """

    @staticmethod
    def forward(named: Any, *tensors: Any) -> tuple[Tensor, ...]:
        wide = [_lead(x, None, 1) for x in tensors]
        return tuple(out[0] for out in _blur(named.of, *wide))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Nothing is remembered: noise has no gradient."""

    @staticmethod
    def vmap(
        info: Any, in_dims: Any, named: Any, *tensors: Any
    ) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        wide = [_lead(x, dim, info.batch_size) for x, dim in zip(tensors, in_dims[1:], strict=True)]
        return tuple(_blur(named.of, *wide)), (0,) * len(named.of)


class _Widen(torch.autograd.Function):
    """Plain `vmap` would copy every table once for each of its steps."""

    @staticmethod
    def forward(*arguments: Any) -> Tensor:
        return _widen(*(x[None] for x in arguments))[0]

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Nothing is remembered: what leaves a device has no gradient."""

    @staticmethod
    def vmap(info: Any, in_dims: Any, *arguments: Any) -> tuple[Tensor, int]:
        return _widen(*(_lead(x, dim, info.batch_size) for x, dim in zip(arguments, in_dims, strict=True))), 0


def _lead(x: Tensor | None, dim: int | None, clients: int) -> Any:
    """A tensor with the client axis in front; one for all where it has none."""
    if x is None:
        return None
    return x.movedim(dim, 0) if dim is not None else x.expand(clients, *x.shape)


def _widen(base: Tensor, row: Tensor, value: Tensor) -> Tensor:
    """``[c, table, …]`` from ``[c, table, …]``, ``[c, r]`` and ``[c, r, …]``."""
    wide = base.to(value.dtype, copy=True, memory_format=torch.contiguous_format)
    client, place = (row >= 0).nonzero(as_tuple=True)
    wide[client, row[client, place]] = value[client, place]
    return wide


def _blur(named: Sequence[tuple[str, How]], key: Tensor, factor: Tensor | None, *rest: Any) -> list[Tensor]:
    """As `blur`, with the client axis in front of everything."""
    values, rows, bases = rest[::3], rest[1::3], rest[2::3]
    done = []
    for (name, how), value, row, base in zip(named, values, rows, bases, strict=True):
        own = Keys(key).fold(name).value
        numbers = torch.zeros(value.shape[:2], dtype=torch.int64, device=key.device) if row is None else row
        done.append(_weight(how, own, factor, value, numbers, base))
    return done


def _weight(
    how: How, key: Tensor, factor: Tensor | None, value: Tensor, row: Tensor, base: Tensor | None
) -> Tensor:
    """``[c, rows, width]`` one weight of a cohort, block by block."""
    clients, rows, width = value.shape
    block = min(max(1, BLOCK[value.device.type] // max(1, width)), clients * rows)
    flat, number, noise = value.detach().reshape(-1, width), row.reshape(-1), _Noise(how, block, width)
    owner = torch.arange(clients, device=row.device)[:, None].expand(clients, rows).reshape(-1)
    keys = key[:, None].expand(clients, rows).reshape(-1)
    out = torch.empty_like(flat)
    for begin in range(0, clients * rows, block):
        some = slice(begin, begin + block)
        where, steps = number[some], out[some]
        drawn = noise.draw(keys[some], where)
        came = None if base is None else _rows(base, owner[some], where.clamp(min=0))
        _clip(flat[some], came, None if factor is None else factor[owner[some], None], how.lattice, steps)
        steps.add_(drawn)
        if noise.far:
            steps.clamp_(-LARGEST, LARGEST)
        steps.mul_(how.lattice.step)
        if came is not None:  # known to whoever sent it: a sum with it tells no more than the noised change
            steps.add_(came)
    return out.reshape(value.shape)


def _rows(base: Tensor, who: Tensor, row: Tensor) -> Tensor:
    """``[n, width]`` rows of the clients' tables ``[c, table, width]``; often there is one table for all."""
    return base[0].index_select(0, row) if base.stride(0) == 0 else base[who, row]


def _clip(value: Tensor, base: Tensor | None, factor: Tensor | None, on: Lattice, steps: Tensor) -> None:
    """Values ``[n, width]`` in whole steps, within the bound, into `steps`."""
    change = value if base is None else torch.sub(value, base, out=steps)
    if factor is None:
        bound = on.most * on.step
        torch.clamp(change, -bound, bound, out=steps).mul_(1 / on.step).round_()
    else:
        torch.mul(change, factor, out=steps).mul_(1 / on.step).trunc_()  # towards zero: no norm grows


class _Noise:
    """Noise in steps for some rows at a time, wherever they lie."""

    def __init__(self, how: How, rows: int, width: int) -> None:
        self.how, self.width = how, width
        self.source: Source = System(rows, width) if how.secret else Seeded(rows, width)
        self.sampler = Sampler(self.source, how.kind, how.scale, rows, width)
        self.far = True  # whether sums may leave the numbers of steps that float32 has

    def draw(self, key: Tensor, row: Tensor) -> Tensor:
        """``[n, width]`` for rows ``[n]`` with keys ``[n]``."""
        if row.device.type != "cpu":
            how = self.how
            return on_gpu.noise(key, row, self.width, how.kind, how.scale, secret=how.secret)
        drawn = torch.from_numpy(self.sampler.draw(key.numpy().view(np.uint64), row.numpy().view(np.uint64)))
        self.far = self.sampler.far
        return drawn if drawn.shape[1] == self.width else drawn[:, : self.width]
