"""Weights of a cohort, clipped, put on a lattice and noised: one walk through memory, block by block."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from veilrec.defences.noise import on_gpu
from veilrec.defences.noise.compiled import LARGEST, Loops, loops
from veilrec.defences.noise.sampling import BitSource, Kind, Lattice, Places, Sampler, Seeded, System, half_of

__all__ = ["How", "blurred", "some_rows"]

BLOCK = {"cpu": 1 << 18, "cuda": 1 << 24}  # numbers at a time: what fits a cache; what keeps a GPU busy


@dataclass(frozen=True)
class How:
    """A treatment of each value of a weight: clipping, rounding and noise.

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


class _Grid(NamedTuple):
    """The lattice of a weight as tensors; ``[width]`` where there are several side by side.

    Attributes:
        step: The step.
        inverse: One over it.
        bound: The largest value within the clip.
    """

    step: Tensor
    inverse: Tensor
    bound: Tensor | float

    def at(self, column: Tensor) -> _Grid:
        """The same for ``[k]`` values in some columns."""
        if isinstance(self.bound, float):
            return self
        return _Grid(self.step[column], self.inverse[column], self.bound[column])


@functools.lru_cache
def _grid(lattices: tuple[Lattice, ...], widths: tuple[int, ...], dtype: torch.dtype, device: str) -> _Grid:
    """Kept: to make tensors of numbers takes longer than to use them."""
    step = torch.tensor([on.step for on in lattices], dtype=dtype, device=device)
    bounds = [on.most * on.step for on in lattices]
    if len(lattices) == 1:
        return _Grid(step[0], 1 / step[0], bounds[0])
    many = torch.tensor([2 * half_of(width) for width in widths], device=device)
    bound = torch.tensor(bounds, dtype=dtype, device=device)
    return _Grid(*(x.repeat_interleave(many) for x in (step, 1 / step, bound)))


class _Weight(NamedTuple):
    """A weight of a cohort, row by row; or several side by side.

    Attributes:
        grid: The lattice.
        value: ``[n, width]`` of all clients.
        rows: How many rows a client has.
        row: ``[n]`` their numbers in the whole table.
        base: ``[c, table, width]`` what was received, where changes are noised.
        factor: ``[c]`` what bounds norms, where these are clipped.
    """

    grid: _Grid
    value: Tensor
    rows: int
    row: Tensor
    base: Tensor | None
    factor: Tensor | None

    def leave(self, some: slice, noise: Tensor, out: Tensor) -> None:
        """Some rows, clipped and noised, into `out` ``[r, width]``."""
        base = factor = None
        if self.base is not None or self.factor is not None:
            owner = torch.arange(some.start, some.stop, device=out.device) // self.rows
            base = None if self.base is None else some_rows(self.base, owner, self.row[some].clamp(min=0))
            factor = None if self.factor is None else self.factor[owner, None]
        _leave(self.grid, self.value[some], base, factor, noise, out, far=noise.device.type != "cpu")

    def leave_some(self, at: Tensor, column: Tensor, noise: Tensor, out: Tensor) -> None:
        """As `leave`, for ``[k]`` values of any rows; `out` is that of all rows."""
        base = factor = None
        if self.base is not None:
            came = some_rows(self.base, at // self.rows, self.row[at].clamp(min=0))
            base = came.gather(1, column[:, None])[:, 0]
        if self.factor is not None:
            factor = self.factor[at // self.rows]
        left = out.new_empty(len(at))
        value = (out if self.again else self.value)[at, column]
        _leave(self.grid.at(column), value, base, factor, noise, left, far=True)
        out[at, column] = left

    @property
    def again(self) -> bool:
        """Whether values that are clipped can be clipped again, so that what they were is not needed."""
        return self.base is None and self.factor is None


def blurred(
    hows: Sequence[How],
    key: Tensor,
    value: Tensor,
    row: Tensor | None,
    base: Tensor | None,
    factor: Tensor | None,
    widths: Sequence[int],
    *,
    fresh: bool,
) -> Tensor:
    """``[c, rows, width]`` a weight of a cohort, or several side by side, clipped and noised.

    Args:
        hows: The noise of each weight; of one kind, from one source.
        key: ``[c, weights]`` the clients' keys for each.
        value: ``[c, rows, width]``; of several weights each begins at an even column.
        row: ``[c, rows]`` numbers in the whole table, -1 where padded; None where it is not a table.
        base: ``[c, table, width]`` what a change is measured against, if anything.
        factor: ``[c]`` what values are multiplied by to bound their norm; None where each value is clipped.
        widths: Of the weights.
        fresh: Whether nobody else needs `value`, so that it may be overwritten.
    """
    clients, rows, width = value.shape
    row = key.new_zeros(clients, rows) if row is None else row
    grid = _grid(tuple(how.lattice for how in hows), tuple(widths), value.dtype, str(value.device))
    weight = _Weight(grid, value.detach().reshape(-1, width), rows, row.reshape(-1), base, factor)
    # Memory must not be shared between clients, either.
    ours = fresh and weight.again and weight.value.is_contiguous()
    out = weight.value if ours else torch.empty_like(weight.value, memory_format=torch.contiguous_format)
    block = min(max(1, BLOCK[value.device.type] // max(1, width)), clients * rows)
    keys = key[:, None].expand(clients, rows, -1).reshape(clients * rows, -1)
    if value.device.type == "cpu":
        _on_cpu(hows, weight, keys, widths, block, out)
    else:
        _on_gpu(hows[0], weight, keys[:, 0], block, out)
    return out.reshape(value.shape)


def _on_cpu(
    hows: Sequence[How], weight: _Weight, key: Tensor, widths: Sequence[int], block: int, out: Tensor
) -> None:
    """Weights whose rows have the keys ``[n, weights]`` into `out`; what is rare is drawn at the end."""
    halves = [half_of(width) for width in widths]
    keys, row = key.numpy().view(np.uint64), weight.row.numpy().view(np.uint64)
    fast = None if hows[0].secret else loops(out.numel())  # a device draws once: compiling would take longer
    source: BitSource = System() if hows[0].secret else Seeded(keys, row, widths, fast)
    sampler = Sampler(source, hows[0].kind, _scale(hows, halves), sum(halves), block, fast)
    blocks = [slice(begin, min(begin + block, len(out))) for begin in range(0, len(out), block)]
    if fast is not None and weight.again and hows[0].kind == "laplace" and out.dtype == torch.float32:
        _by_loops(fast, weight, sampler, blocks, out)
        return
    for some in blocks:
        weight.leave(some, torch.from_numpy(sampler.draw(some))[:, : out.shape[1]], out[some])
    at, column, far = (torch.from_numpy(x) for x in _within(out.shape[1], *sampler.rest()))
    weight.leave_some(at, column, far, out)


def _by_loops(fast: Loops, weight: _Weight, sampler: Sampler, blocks: Sequence[slice], out: Tensor) -> None:
    """The same by compiled loops, for Laplace noise on values that are clipped one by one."""
    value, left = weight.value.numpy(), out.numpy()
    bound, inverse, step = (
        torch.as_tensor(x, dtype=out.dtype, device=out.device).expand(out.shape[1]).contiguous().numpy()
        for x in (weight.grid.bound, weight.grid.inverse, weight.grid.step)
    )
    factor = np.broadcast_to(sampler.factor, sampler.size.shape[1]).copy()
    for some in blocks:
        how = (*sampler.logarithms(some), factor, bound, inverse, step)
        if out is weight.value:
            fast.leave_in_place(left[some], *how)
        else:
            fast.leave(value[some], left[some], *how)
    fast.leave_some(left, *_within(out.shape[1], *sampler.rest()), bound, inverse, step)


def _within(
    width: int, at: Places, column: Places, far: NDArray[np.float64]
) -> tuple[Places, Places, NDArray[np.float64]]:
    """Keep the places within rows so wide: one of odd width has a number more than it needs."""
    meant = column < width
    return (at, column, far) if meant.all() else (at[meant], column[meant], far[meant])


def _scale(hows: Sequence[How], halves: Sequence[int]) -> float | NDArray[np.float64]:
    """One scale, or ``[m]`` that of each number of a row."""
    if len(hows) == 1:
        return hows[0].scale
    return np.repeat([how.scale for how in hows], [2 * half for half in halves])


def _on_gpu(how: How, weight: _Weight, key: Tensor, block: int, out: Tensor) -> None:
    """A weight whose rows have the keys ``[n]`` into `out`."""
    for begin in range(0, len(out), block):
        some = slice(begin, min(begin + block, len(out)))
        width, row = out.shape[1], weight.row[some]
        noise = on_gpu.noise(key[some], row, width, how.kind, how.scale, secret=how.secret)
        weight.leave(some, noise, out[some])


def some_rows(base: Tensor, who: Tensor, row: Tensor) -> Tensor:
    """``[n, width]`` rows of the clients' tables ``[c, table, width]``; often there is one table for all."""
    return base[0].index_select(0, row) if base.stride(0) == 0 else base[who, row]


def _leave(
    grid: _Grid,
    value: Tensor,
    base: Tensor | None,
    factor: Tensor | None,
    noise: Tensor,
    out: Tensor,
    *,
    far: bool,
) -> None:
    """Values within the bound and on the lattice, with noise in steps, into `out`.

    Only what is `far` can leave the numbers of steps that float32 has.
    """
    change = value if base is None else torch.sub(value, base, out=out)
    if factor is None:
        torch.clamp(change, -grid.bound, grid.bound, out=out).mul_(grid.inverse).round_()  # type: ignore[arg-type]
    else:
        torch.mul(change, factor, out=out).mul_(grid.inverse).trunc_()  # towards zero: no norm grows
    out.add_(noise)
    if far:
        out.clamp_(-LARGEST, LARGEST)
    out.mul_(grid.step)
    if base is not None:  # known to whoever sent it: a sum with it tells no more than the noised change
        out.add_(base)
