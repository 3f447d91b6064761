"""Noise on uploads: what `laplace` and `gaussian` share.

A number of the noise hangs on the client, the round, the weight, the row of the whole table and the column,
and on nothing else: neither who else is trained nor which rows a device holds changes it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import torch
from torch import Tensor

from veilrec.errors import BadInput, nearest
from veilrec.keys import Keys, laplace_of, normal_of
from veilrec.mechanism import Mechanism
from veilrec.model import Device, Recommender
from veilrec.params import Message, Rows, Scope, part_of
from veilrec.protocol import Protocol

__all__ = ["Noise", "check_amounts"]

BLOCK = {"cpu": 1 << 15, "cuda": 1 << 24}  # numbers drawn at a time: what fits a cache; what keeps a GPU busy
BELOW = 1 - 2.0**-20  # a clipped norm is a little shorter than its bound, so that rounding keeps it within


@dataclass(frozen=True)
class Noise:
    """Clip what leaves, then add noise.

    Attributes:
        kind: ``laplace`` or ``gaussian``.
        scale: λ or σ; 0 for clipping alone.
        clip: Bound on each value, or on the norm of all of them.
        by: Which of the two: ``value`` or ``norm``.
        rows: Whether tables go up as they are or with every row.
        what: What is clipped: weights, their change against what was received, or gradients.
        parts: Which parts; empty for all that leave.
    """

    kind: Literal["laplace", "gaussian"]
    scale: Fraction
    clip: Fraction
    by: Literal["value", "norm"]
    rows: Literal["touched", "all"]
    what: Literal["weights", "change", "gradients"]
    parts: tuple[str, ...]

    def apply(self, upload: Message, device: Device) -> Message:
        """One device's upload, clipped and noised; what is not finite stays so and is refused on the wire."""
        held = {n: self._hold(n, v, device) for n, v in upload.items() if self._covers(n, v)}
        found = {n: self._base(n, value, device) for n, value in held.items()}
        bases = {n: base for n, base in found.items() if base is not None}
        values = {n: _values(v) - bases[n] if n in bases else _values(v) for n, v in held.items()}
        message = dict(upload)
        for name, value in self._clipped(held, values).items():
            noised = value + self._draw(device.keys.fold(name), held[name])
            whole = bases[name] + noised if name in bases else noised
            kept = held[name]
            message[name] = Rows(kept.row, whole) if isinstance(kept, Rows) else whole
        return message

    def declares(self, defence: str, model: Recommender, protocol: Protocol) -> tuple[Mechanism, ...]:
        """What the noise is worth, weight by weight.

        Raises:
            BadInput: Where the protocol does not send what is to be clipped, or a part does not exist.
        """
        if protocol.still() != (self.what == "gradients"):
            sent = "gradients" if protocol.still() else "weights"
            raise BadInput("defence.what", f'"{self.what}", but devices send {sent}', f'set it to "{sent}"')
        schema = {n: s for n, s in protocol.schema(model).items() if s.dtype.is_floating_point}
        leaving = {part_of(name) for name in schema}
        for part in self.parts:
            if part not in leaving:
                raise BadInput("defence.parts", f'no part "{part}" is uploaded', nearest(part, leaving))
        if not self.scale:
            return ()
        settings: dict[str, Any] = {"by": self.by, "rows": self.rows}
        return tuple(
            Mechanism(
                defence, n, self.kind, self.scale, self.clip, math.prod(s.shape), table=s.table, **settings
            )
            for n, s in schema.items()
            if not self.parts or part_of(n) in self.parts
        )

    def whole(self, model: Recommender) -> int:
        """How many values of item tables an upload holds because they go up whole."""
        tables = [n for n in model.names(Scope.SHARED) if model.parts[part_of(n)].rows == "item"]
        chosen = [n for n in tables if not self.parts or part_of(n) in self.parts]
        return sum(model.get_parameter(n).numel() for n in chosen) if self.rows == "all" else 0

    def _covers(self, name: str, value: Tensor | Rows) -> bool:
        chosen = not self.parts or part_of(name) in self.parts
        return chosen and _values(value).is_floating_point()

    def _hold(self, name: str, value: Tensor | Rows, device: Device) -> Tensor | Rows:
        """A table with every row, if it is to go up whole: what was not touched is as it was received."""
        if self.rows == "touched" or not isinstance(value, Rows):
            return value
        received = device.sent[name].to(value.value.dtype)  # [table, …]
        base = torch.zeros_like(received) if self.what == "gradients" else received
        place = torch.where(value.row < 0, len(base), value.row)
        index = place.reshape(-1, *(1 for _ in base.shape[1:])).expand_as(value.value)
        wide = torch.cat([base, base[:1]]).scatter(0, index, value.value)  # the last row takes the padding
        return Rows(torch.arange(len(base), device=place.device), wide[:-1])

    def _base(self, name: str, value: Tensor | Rows, device: Device) -> Tensor | None:
        """What a change is measured against; None where the values themselves are clipped.

        A part that the server never sends (a user's own vector) has no change that anybody could see.
        """
        if self.what != "change" or name not in device.sent:
            return None
        received = device.sent[name]
        return received[value.row.clamp(min=0)] if isinstance(value, Rows) else received

    def _clipped(self, held: Message, values: dict[str, Tensor]) -> dict[str, Tensor]:
        """Within the bound; rows that only pad a table count for no norm."""
        if self.by == "value" or not values:
            return {
                n: v.clamp(-bound(self.clip, v.dtype), bound(self.clip, v.dtype)) for n, v in values.items()
            }
        squares = []
        for name, value in values.items():
            square, whose = value.double().square(), held[name]
            if isinstance(whose, Rows):
                square = square * (whose.row >= 0).reshape(-1, *(1 for _ in square.shape[1:]))
            squares.append(square.sum())
        norm, most = torch.stack(squares).sum().sqrt(), float(self.clip) * BELOW
        factor = torch.where(norm > most, most / norm, 1.0)  # NaN stays NaN
        return {n: (v * factor).to(v.dtype) for n, v in values.items()}

    def _draw(self, keys: Keys, value: Tensor | Rows) -> Tensor:
        """Noise in the shape of the values; a row of a table has the same, whichever rows are beside it."""
        like = _values(value)
        if not self.scale:
            return torch.zeros_like(like)
        rows = like.shape[0] if like.dim() else 1
        row = value.row if isinstance(value, Rows) else torch.arange(rows, device=like.device)
        width = math.prod(like.shape[1:])
        noise: Tensor = _Draw.apply(keys.value, row, width, self.kind, float(self.scale), like.dtype)  # type: ignore[no-untyped-call]
        return noise.reshape(like.shape)


class _Draw(torch.autograd.Function):
    """Noise of one device, ``[rows, width]``, from its key and the numbers of its rows ``[rows]``.

    Under `vmap` the numbers of a cohort come in blocks: plain `vmap` would walk through memory some thirty
    times, and hold several times what it returns.
    """

    @staticmethod
    def forward(*arguments: Any) -> Tensor:
        key, row, *rest = arguments
        return _blocks(key.reshape(1), row[None], *rest)[0]

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Nothing is remembered: noise has no gradient."""

    @staticmethod
    def vmap(info: Any, in_dims: Any, *arguments: Any) -> tuple[Tensor, int]:
        key, row, *rest = arguments
        clients = info.batch_size
        key = key.movedim(in_dims[0], 0) if in_dims[0] is not None else key.expand(clients)
        row = row.movedim(in_dims[1], 0) if in_dims[1] is not None else row.expand(clients, -1)
        return _blocks(key, row, *rest), 0


def _blocks(key: Tensor, row: Tensor, width: int, kind: str, scale: float, dtype: torch.dtype) -> Tensor:
    """``[c, rows, width]`` noise from keys ``[c]`` and rows ``[c, rows]``."""
    law = laplace_of if kind == "laplace" else normal_of
    owner, place = key[:, None].expand_as(row).reshape(-1), row.reshape(-1)
    noise = torch.empty(len(place), width, dtype=dtype, device=row.device)
    step = max(1, BLOCK[row.device.type] // max(1, width))
    for begin in range(0, len(place), step):
        some = slice(begin, begin + step)
        noise[some] = law(Keys(owner[some]).rows(place[some], width)).mul_(scale)
    return noise.reshape(*row.shape, width)


def bound(clip: Fraction, dtype: torch.dtype) -> float:
    """The largest number of a kind that is no larger than the bound: 0.1 in float32 is a little more."""
    nearest_one = torch.tensor(float(clip), dtype=dtype)
    if Fraction(float(nearest_one)) <= clip:
        return float(nearest_one)
    return float(torch.nextafter(nearest_one, torch.zeros_like(nearest_one)))


def check_amounts(clip: float, scale: float | None, epsilon: float | None) -> None:
    """Refuse bounds and scales that mean nothing.

    Raises:
        BadInput: Naming the option.
    """
    if not 0 < clip < math.inf:
        raise BadInput("defence.clip", f"{clip} is no bound", "give a number above 0")
    if scale is not None and epsilon is not None:
        raise BadInput("defence.epsilon", "there is a scale as well", "keep one of the two")
    if scale is not None and not 0 <= scale < math.inf:
        raise BadInput("defence.scale", f"{scale} is no scale", "give 0 or more")
    if epsilon is not None and not 0 < epsilon < math.inf:
        raise BadInput("defence.epsilon", f"{epsilon} is no ε", "give a number above 0")


def _values(value: Tensor | Rows) -> Tensor:
    return value.value if isinstance(value, Rows) else value
