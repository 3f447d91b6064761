"""Noise in whole steps of a lattice: from random bits to Laplace and Gaussian numbers whose tails do not end.

A number is made of 31 bits of magnitude and one of sign. A magnitude whose ten leading bits are all zero (one
in 1,024) stands for "at least ten halvings", and an exponential law has no memory: what lies beyond is drawn
anew, with as many bits as before. So every step of the lattice has its probability to within about a
thousandth of it, however far out, and none is impossible.

Arrays are numpy's, whose loops are two to three times as fast as torch's on a CPU; `on_gpu`
is the same for a GPU.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from veilrec.keys import FIRST, GOLDEN, SECOND, WORD, hash_text

__all__ = ["Lattice", "Sampler", "Seeded", "System", "lattice"]

Bits = NDArray[np.int32]
Floats = NDArray[np.float32]
Places = NDArray[np.int64]
Words = NDArray[np.uint64]
Kind = Literal["laplace", "gaussian"]

SIGN = np.int32(-(1 << 31))
HALVINGS = 10  # leading zeros of a magnitude at which it is drawn anew
RARE = 2.0**-HALVINGS
LARGEST = 1 << 23  # steps: float32 is exact up to there, and one bit beyond
TAIL = hash_text("tail") | 1


@dataclass(frozen=True)
class Lattice:
    """The multiples of a power of two on which clipped values, noise and sums lie, exactly in float32.

    Attributes:
        step: The power of two.
        most: The bound of a value, in steps: the last one that is within the clip.
    """

    step: float
    most: int


def lattice(scale: Fraction, clip: Fraction) -> Lattice:
    """The lattice of a noise: it hangs on the scale and the clip, never on what is clipped.

    A step is at most 1/1,024 of the scale and of the clip, so that rounding is lost in the noise. It is at
    least so large that the clip has no more than 2²² steps and that what is not drawn anew stays below that.
    """
    fine = min(scale, clip) / 1024
    coarse = max(scale / (1 << 19), clip / (1 << 22))
    step = _power(fine)
    while step < coarse:
        step *= 2
    return Lattice(float(step), int(clip / step))


def _power(bound: Fraction) -> Fraction:
    """The largest power of two that is no larger."""
    exponent = bound.numerator.bit_length() - bound.denominator.bit_length()
    power = Fraction(2) ** exponent
    return power if power <= bound else power / 2


class Source(Protocol):
    """Where random bits come from: for some rows at a time, as often as is asked."""

    def bits(self, key: Words, row: Words, spare: Floats) -> Bits:
        """``[n, m]`` for rows ``[n]`` with keys ``[n]``, m even; one may write into it.

        `spare` is memory of that size that nobody needs meanwhile: a cache holds less than one would like.
        """

    def more(self, place: Places, turn: int) -> Words:
        """``[k]`` further words for some places of the last bits, counted through; others in every turn."""


class System:
    """The operating system's generator: nothing that anybody has configured decides what it gives."""

    def __init__(self, rows: int, width: int) -> None:
        self.width = width + width % 2

    def bits(self, key: Words, row: Words, spare: Floats) -> Bits:
        """As `Source.bits`, whatever the keys."""
        drawn = bytearray(os.urandom(4 * len(row) * self.width))
        return np.frombuffer(drawn, np.int32).reshape(len(row), self.width)

    def more(self, place: Places, turn: int) -> Words:
        """As `Source.more`."""
        return np.frombuffer(os.urandom(8 * len(place)), np.uint64)


class Seeded:
    """The simulation's bits: those of a row hang on its key and its number in the whole table.

    Two numbers are the halves of one word of `Keys.rows`.

    Args:
        rows: The most that are asked for at a time.
        width: Numbers in a row.
    """

    def __init__(self, rows: int, width: int) -> None:
        self.half = (width + 1) // 2
        self.column = np.arange(self.half, dtype=np.uint64) * np.uint64(GOLDEN)
        self.words = np.empty((rows, self.half), np.uint64)
        self.first = np.empty(0, np.uint64)

    def bits(self, key: Words, row: Words, spare: Floats) -> Bits:
        """As `Source.bits`."""
        self.first = key + (row * np.uint64(self.half) + np.uint64(1)) * np.uint64(GOLDEN)  # [n]
        words = np.add(self.first[:, None], self.column, out=self.words[: len(row)])
        return mix(words, spare.view(np.uint64)).view(np.int32)

    def more(self, place: Places, turn: int) -> Words:
        """As `Source.more`."""
        row, column = np.divmod(place, 2 * self.half)
        word = self.first[row] + column.astype(np.uint64) * np.uint64(GOLDEN)
        word ^= np.uint64((turn + 1) * TAIL & WORD)
        return mix(word, np.empty_like(word))


def mix(x: Words, spare: Words) -> Words:
    """The finaliser of splitmix64, in place: `keys` has the same for torch."""
    for shift, factor in ((30, FIRST), (27, SECOND), (31, 1)):
        np.right_shift(x, np.uint64(shift), out=spare)
        np.bitwise_xor(x, spare, out=x)
        if factor != 1:
            np.multiply(x, np.uint64(factor), out=x)
    return x


class Sampler:
    """Noise in whole steps, for some rows at a time; it works in the same memory every time.

    Args:
        source: Of random bits.
        kind: The law.
        scale: λ or σ, in steps.
        rows, width: The most rows at a time, and the numbers in one.
    """

    def __init__(self, source: Source, kind: Kind, scale: float, rows: int, width: int) -> None:
        self.source, self.kind, self.scale = source, kind, scale
        self.size = np.empty((rows, width + width % 2), np.float32)
        self.far = False  # whether the last noise holds a number so large that a sum with it must be clamped

    def draw(self, key: Words, row: Words) -> Floats:
        """``[n, m]`` noise for rows ``[n]`` with keys ``[n]``, m even; it is valid until the next."""
        noise = self.size[: len(row)]
        bits = self.source.bits(key, row, noise)
        if self.kind == "gaussian":
            self._gaussian(bits, noise)
        else:
            self._exponential(bits, noise, self.scale)
            np.bitwise_and(bits, SIGN, out=bits)
            np.bitwise_xor(noise.view(np.int32), bits, out=noise.view(np.int32))
        return np.rint(noise, out=noise)

    def _gaussian(self, bits: Bits, noise: Floats) -> None:
        """By Box and Muller: of two numbers the first gives the radius of both and the second the angle."""
        radius = np.empty((len(bits), bits.shape[1] // 2), np.float32)
        self._exponential(bits[:, ::2], radius, 2.0, apart=2)
        np.sqrt(radius, out=radius)
        radius *= np.float32(self.scale)
        angle = bits[:, 1::2].astype(np.float32)
        angle *= np.float32(math.pi / 2**31)
        np.multiply(radius, np.cos(angle), out=noise[:, ::2])
        np.multiply(radius, np.sin(angle, out=angle), out=noise[:, 1::2])

    def _exponential(self, bits: Bits, size: Floats, scale: float, apart: int = 1) -> None:
        """Exponential numbers into `size`, from 31 bits each where these suffice.

        Their places are those of every number of the block, or of every second (`apart`).
        """
        np.multiply(bits, np.float32(2.0**-31), out=size, dtype=np.float32, casting="unsafe")
        np.abs(size, out=size)
        rare = np.flatnonzero(size < RARE)
        size.reshape(-1)[rare] = RARE
        np.log2(size, out=size)
        size *= np.float32(-math.log(2) * scale)
        beyond = scale * (HALVINGS * math.log(2) + tail(self.source, apart * rare))
        size.reshape(-1)[rare] = beyond
        most = float(beyond.max(initial=0.0)) if apart == 1 else self.scale * float(beyond.max(initial=0.0))
        self.far = most > LARGEST / 2  # a radius is the root of its number, which is above 1


def tail(source: Source, place: Places) -> NDArray[np.float64]:
    """``[k]`` exponential numbers with scale 1 for some places; as often as it takes."""
    size, left, turn = np.zeros(len(place)), np.arange(len(place)), 0
    while len(left):
        words = source.more(place[left], turn)
        fraction = (words >> np.uint64(11)).astype(np.float64)
        fraction += 0.5
        size[left] -= np.log(fraction * 2.0**-53)
        again = words < (1 << 32)  # 32 leading zeros: the law begins anew behind them
        if not again.any():
            break
        left, turn = left[again], turn + 1
        size[left] = 32 * math.log(2) * turn
    return size
