"""Noise on uploads: what `laplace`, `gaussian`, `apm` and `fednews` share.

A number of the noise depends on the client, the round, the weight, the row of the whole table and the column,
and on nothing else: neither who else is trained nor which rows a device holds changes it. What is clipped,
the noise and their sum are whole steps of a lattice that depends on the settings alone, so that no bit of a
sum tells more than the exact mechanism would. A noised change (``what = "change"``) is added to what the
server sent: what leaves is then no longer on the lattice, but made of two things of which the server knows
one, so that it tells no more than the other.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from veilrec.base.limits.bounds import Bounds
from veilrec.base.params import Message, Rows, part_of
from veilrec.base.rows import along
from veilrec.defence import Defence
from veilrec.defences.noise.blurring import How, Piece, blur, rows_of, widen
from veilrec.defences.noise.sampling import lattice
from veilrec.errors import BadInput, nearest
from veilrec.model import Device, Recommender
from veilrec.privacy.mechanism import Mechanism
from veilrec.protocol import Protocol

__all__ = ["Clip", "Noise", "one_of"]

Clip = Annotated[float, Bounds(1e-15, 1e15)]  # weights are multiplied and squared in float32 wherever they go
BELOW = 1 - 2.0**-20  # a clipped norm is a little shorter than its bound, so that rounding keeps it within


@dataclass(frozen=True)
class Noise:
    """Clip what leaves, then add noise.

    Attributes:
        kind: ``laplace`` or ``gaussian``.
        scale: λ or σ, one for all parts or that of each part; 0 for clipping alone.
        clip: Bound on each value, or on the norm of all of them.
        by: Which of the two: ``value`` or ``norm``.
        rows: Whether tables go up as they are or with every row.
        what: What is clipped: weights, their change against what was received, or gradients.
        parts: Which parts; empty for all that leave.
        secret: Whether the random bits are the operating system's, as on a real device.
    """

    kind: Literal["laplace", "gaussian"]
    scale: Fraction | Callable[[str], Fraction]
    clip: Fraction
    by: Literal["value", "norm"] = "value"
    rows: Literal["touched", "all"] = "touched"
    what: Literal["weights", "change", "gradients"] = "weights"
    parts: tuple[str, ...] = ()
    secret: bool = False

    def scale_of(self, name: str) -> Fraction:
        """λ or σ of a weight."""
        return self.scale(part_of(name)) if callable(self.scale) else self.scale

    def apply(self, upload: Message, device: Device) -> Message:
        """An upload, clipped and noised; what is not finite stays so and is refused on the wire.

        It may be a cohort's: keys, what was sent and what leaves then have the client axis in front.
        """
        held = {n: self._hold(n, v, device) for n, v in upload.items() if self.covers(n, v)}
        bases = {n: device.sent[n] for n in held if self.what == "change" and n in device.sent}
        lead = device.keys.value.shape
        factor = self._factor(held, bases, lead)
        noised = [n for n in held if self.scale_of(n)]
        pieces = [self._piece(n, held[n], bases.get(n), lead) for n in noised]
        done = dict(zip(noised, blur(device.keys, pieces, factor), strict=True))
        for name in held.keys() - done.keys():
            done[name] = self._clipped(held[name], bases.get(name), factor)
        return {**upload, **{n: _like(v, done[n]) for n, v in held.items()}}

    def covers(self, name: str, value: Tensor | Rows) -> bool:
        """Whether a weight is to be blurred."""
        chosen = not self.parts or part_of(name) in self.parts
        return chosen and values(value).is_floating_point()

    def declares(self, defence: str, model: Recommender, protocol: Protocol) -> tuple[Mechanism, ...]:
        """Declare what the noise is worth, weight by weight.

        Raises:
            BadInput: Where the protocol does not send what is to be clipped, or a part does not exist.
        """
        if protocol.sends_gradients != (self.what == "gradients"):
            sent = "gradients" if protocol.sends_gradients else "weights"
            raise BadInput("defence.what", f'"{self.what}", but devices send {sent}', f'set it to "{sent}"')
        schema = {n: s for n, s in protocol.schema(model).items() if s.dtype.is_floating_point}
        leaving = {part_of(name) for name in schema}
        for part in self.parts:
            if part not in leaving:
                raise BadInput("defence.parts", f'no part "{part}" is uploaded', nearest(part, leaving))
        chosen = {n: s for n, s in schema.items() if not self.parts or part_of(n) in self.parts}
        scales = {n: self.scale_of(n) for n in chosen}
        settings: dict[str, Any] = {"by": self.by, "rows": self.rows}
        return tuple(
            Mechanism(defence, n, self.kind, scales[n], self.clip, math.prod(s.shape), s.table, **settings)
            for n, s in chosen.items()
            if scales[n]
        )

    def _hold(self, name: str, value: Tensor | Rows, device: Device) -> Tensor | Rows:
        """A table with every row, if it is to go up whole: what was not touched is as it was received."""
        if self.rows == "touched" or not isinstance(value, Rows):
            return value
        received = device.sent[name]  # [table, …]
        base = torch.zeros_like(received) if self.what == "gradients" else received
        return Rows(every_row(base, value.row.dim() - 1), widen(base, value.row, value.value))

    def _factor(self, held: Message, bases: dict[str, Tensor], lead: torch.Size) -> Tensor | None:
        """The factor that bounds the norm of all changes; None where each value is clipped.

        A part that the server never sends (a user's own vector) has no change that anybody could see: it is
        taken itself. Rows that only pad a table count for nothing.
        """
        if self.by == "value" or not held:
            return None
        squares = []
        for name, value in held.items():
            square = _change(value, bases.get(name)).double().square()
            if isinstance(value, Rows):
                square = square * along(value.row >= 0, square)
            squares.append(square.reshape(*lead, -1).sum(-1))
        norm, most = torch.stack(squares).sum(0).sqrt(), float(self.clip) * BELOW
        return torch.where(norm > most, most / norm, 1.0)  # NaN stays NaN

    def _piece(self, name: str, value: Tensor | Rows, base: Tensor | None, lead: torch.Size) -> Piece:
        """One weight, ready to be blurred; one that is not a table is one row."""
        how, like = _how(self.kind, self.scale_of(name), self.clip, self.secret), values(value)
        width = math.prod(like.shape[len(lead) + isinstance(value, Rows) :])
        table = None if base is None else base.reshape(*lead, -1, width)
        row = value.row if isinstance(value, Rows) else None
        fresh = row is not None and self.rows == "all"  # `_hold` has made it
        return Piece(name, how, like.reshape(*lead, -1, width), row, table, fresh)

    def _clipped(self, value: Tensor | Rows, base: Tensor | None, factor: Tensor | None) -> Tensor:
        """Clipping alone, where there is no noise."""
        change = _change(value, base)
        most = bound(self.clip, change.dtype)
        clipped = (
            change.clamp(-most, most) if factor is None else (change * along(factor, change)).to(change.dtype)
        )
        return clipped if base is None else clipped + _received(value, base)


class Noisy(Defence):
    """A defence that is one noise on uploads: the base of all that are.

    On a real device (`Defence.secret`) the random bits are the operating system's; in a simulation they come
    from the device's keys, so that runs can be repeated, and are not private.
    """

    leads: ClassVar[frozenset[str]] = frozenset({"on_upload"})

    @functools.cached_property
    def noise(self) -> Noise:
        """Clipping and noise, in exact numbers."""
        raise NotImplementedError

    @property
    def _noise(self) -> Noise:
        return replace(self.noise, secret=self.secret)

    def on_upload(self, upload: Message, device: Device) -> Message:
        return self._noise.apply(upload, device)

    def declares(self, model: Recommender, protocol: Protocol) -> tuple[Mechanism, ...]:
        return self.noise.declares(type(self).__name__.lower(), model, protocol)


@functools.lru_cache
def _how(kind: Literal["laplace", "gaussian"], scale: Fraction, clip: Fraction, secret: bool) -> How:
    """A noise in steps of its lattice; its scale is rounded up, never down."""
    on = lattice(scale, clip)
    steps = np.float32(float(scale / Fraction(on.step)))
    return How(kind, float(np.nextafter(steps, np.float32(np.inf))), on, secret)


def _change(value: Tensor | Rows, base: Tensor | None) -> Tensor:
    """The numbers that are clipped: values, or how far they are from what was received."""
    return values(value) if base is None else values(value) - _received(value, base)


def _received(value: Tensor | Rows, base: Tensor) -> Tensor:
    """The rows of what was received that a device holds; padding gets any."""
    return rows_of(base, value.row.clamp(min=0)) if isinstance(value, Rows) else base


def _like(value: Tensor | Rows, other: Tensor) -> Tensor | Rows:
    """Replace the values of a weight, and keep its numbers of rows."""
    if isinstance(value, Rows):
        return Rows(value.row, other.reshape(value.value.shape))
    return other.reshape(value.shape)


def every_row(table: Tensor, lead: int = 0) -> Tensor:
    """``[table]`` the numbers of all rows, with as many axes in front as the table has there."""
    return torch.arange(table.shape[lead], device=table.device).expand(table.shape[: lead + 1])


def values(value: Tensor | Rows) -> Tensor:
    """The values that travel under a name, whether or not with numbers of rows."""
    return value.value if isinstance(value, Rows) else value


def bound(clip: Fraction, dtype: torch.dtype) -> float:
    """The largest number of a kind that is no larger than the bound: 0.1 in float32 is a little more."""
    nearest_one = torch.tensor(float(clip), dtype=dtype)
    if Fraction(float(nearest_one)) <= clip:
        return float(nearest_one)
    return float(torch.nextafter(nearest_one, torch.zeros_like(nearest_one)))


def one_of(scale: float | None, epsilon: float | None) -> None:
    """Refuse two numbers that both say how much noise there is."""
    if scale is not None and epsilon is not None:
        raise BadInput("defence.epsilon", "there is a scale as well", "keep one of the two")
