"""Blurring: all weights of a device or a cohort at once, with a way for `vmap`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from veilrec.base.keys import Keys, hash_text, mixed
from veilrec.base.rows import filled
from veilrec.defences.noise.weights import How, blurred, some_rows

__all__ = ["How", "Piece", "blur", "rows_of", "widen"]


class Piece(NamedTuple):
    """One weight of one device.

    Attributes:
        name: The weight's; its noise depends on it.
        how: The noise.
        value: ``[rows, width]``; a weight that is not a table is one row.
        row: ``[rows]`` their numbers in the whole table, -1 where padded; None where it is not a table.
        base: ``[table, width]`` what a change is measured against; None where values are clipped themselves.
        fresh: Whether nobody else needs `value`, so that it may be overwritten.
    """

    name: str
    how: How
    value: Tensor
    row: Tensor | None = None
    base: Tensor | None = None
    fresh: bool = False


Name = tuple[str, How, bool]  # a piece without its tensors


def blur(keys: Keys, pieces: Sequence[Piece], factor: Tensor | None = None) -> list[Tensor]:
    """Weights, clipped, put on the lattice and noised: of one device, which `vmap` may map, or of a cohort.

    Args:
        keys: The device's; of a cohort ``[c]``, and all else has the client axis in front too.
        pieces: The weights.
        factor: What values are multiplied by to bound their norm; None where each value is clipped.
    """
    if not pieces:
        return []
    named = _Named(tuple((piece.name, piece.how, piece.fresh) for piece in pieces))
    tensors = [x for piece in pieces for x in (piece.value, piece.row, piece.base)]
    if keys.value.dim():
        return _blur(named.of, keys.value, factor, *tensors)
    return list(_Blur.apply(named, keys.value, factor, *tensors))  # type: ignore[no-untyped-call]


def widen(base: Tensor, row: Tensor, value: Tensor) -> Tensor:
    """A whole table ``[table, …]``: `base`, but for the rows ``[r]`` that a device has, ``[r, …]``.

    All may have a client axis in front.
    """
    if row.dim() == 2:
        return filled(base, row, value)
    return _Widen.apply(base, row, value)  # type: ignore[no-any-return, no-untyped-call]


def rows_of(base: Tensor, row: Tensor) -> Tensor:
    """``[r, …]`` some rows of a table ``[table, …]``; both may have a client axis in front."""
    if row.dim() == 1:
        return base[row]
    who = torch.arange(len(row), device=row.device)[:, None]
    flat = some_rows(base, who.expand_as(row).reshape(-1), row.reshape(-1))
    return flat.reshape(*row.shape, *flat.shape[1:])


@dataclass(frozen=True)
class _Named:
    """Facts about weights beside their values; `vmap` does not look into it."""

    of: tuple[Name, ...]


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
        return filled(*(x[None] for x in arguments))[0]

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Nothing is remembered: what leaves a device has no gradient."""

    @staticmethod
    def vmap(info: Any, in_dims: Any, *arguments: Any) -> tuple[Tensor, int]:
        return filled(*(_lead(x, dim, info.batch_size) for x, dim in zip(arguments, in_dims, strict=True))), 0


def _lead(x: Tensor | None, dim: int | None, clients: int) -> Any:
    """A tensor with the client axis in front; one for all where it has none."""
    if x is None:
        return None
    return x.movedim(dim, 0) if dim is not None else x.expand(clients, *x.shape)


def _blur(named: Sequence[Name], key: Tensor, factor: Tensor | None, *rest: Any) -> list[Tensor]:
    """As `blur`, with the client axis in front of everything."""
    tensors = zip(named, rest[::3], rest[1::3], rest[2::3], strict=True)
    pieces = [Piece(name, how, value, row, base, fresh) for (name, how, fresh), value, row, base in tensors]
    keys = dict(zip((piece.name for piece in pieces), _folded(key, pieces), strict=True))
    done: dict[str, Tensor] = {}
    for group in _groups(pieces):
        own = torch.stack([keys[piece.name] for piece in group], 1)  # [c, weights]
        parts = _together(group, own, factor)
        done |= {piece.name: part for piece, part in zip(group, parts, strict=True)}
    return [done[piece.name] for piece in pieces]


def _folded(key: Tensor, pieces: Sequence[Piece]) -> tuple[Tensor, ...]:
    """``[c]`` each client's keys for each weight: `Keys.fold` with its name, for all names at once."""
    tags = torch.tensor([hash_text(piece.name) for piece in pieces], device=key.device)
    return mixed(key[:, None] + tags).unbind(1)


def _groups(pieces: Sequence[Piece]) -> Iterable[list[Piece]]:
    """Group what is blurred together: on a CPU all weights but tables, since many of them are small."""
    groups: dict[Any, list[Piece]] = {}
    for piece in pieces:
        alone = piece.row is not None or piece.base is not None or piece.value.device.type != "cpu"
        alike = piece.how.kind, piece.how.secret, piece.value.dtype
        groups.setdefault(piece.name if alone else alike, []).append(piece)
    return groups.values()


def _together(group: Sequence[Piece], key: Tensor, factor: Tensor | None) -> Sequence[Tensor]:
    """``[c, rows, width]`` some weights, blurred side by side; each begins with a word of its own."""
    hows, widths = [piece.how for piece in group], [piece.value.shape[2] for piece in group]
    first = group[0]
    if len(group) == 1:
        return [blurred(hows, key, first.value, first.row, first.base, factor, widths, fresh=first.fresh)]
    even = [pad(v, (0, 1)) if v.shape[2] % 2 else v for v in (piece.value for piece in group)]
    left = blurred(hows, key, torch.cat(even, 2), None, None, factor, widths, fresh=True)
    parts = left.split([v.shape[2] for v in even], 2)
    return [part[..., :width] for part, width in zip(parts, widths, strict=True)]
