"""Noise in whole steps of a lattice: from random bits to Laplace and Gaussian numbers whose tails do not end.

A number is made of 31 bits of magnitude and one of sign. A magnitude whose ten leading bits are all zero (one
in 1,024) stands for "at least ten halvings", and an exponential law has no memory: what lies beyond is drawn
anew, with as many bits as before. So no step of the lattice is impossible, however far out; and since a scale
has 4,096 steps at most, a step has its probability to within a thousandth of it up to one scale away, and to
within a hundredth up to ten halvings. So no output tells more than 0.01 beyond ε: a thousandth of it where a
scale is no more than the clip, but as much as ε itself where it is some hundreds of times the clip.

Arrays are numpy's, whose loops are faster than torch's on a CPU; `on_gpu` is the same for a GPU.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from veilrec.base.keys import FIRST, GOLDEN, SECOND, WORD, hash_text
from veilrec.defences.noise.compiled import SHIFTS, UNIT, Loops
from veilrec.errors import BadInput

__all__ = ["Lattice", "Sampler", "Seeded", "System", "lattice"]

Bits = NDArray[np.int32]
Floats = NDArray[np.float32]
Places = NDArray[np.int64]
Words = NDArray[np.uint64]
Kind = Literal["laplace", "gaussian"]

SIGN = np.int32(-(1 << 31))
HALVINGS = 10  # leading zeros of a magnitude at which it is drawn anew
RARE = 2.0**-HALVINGS
LONG = 4096  # words
FINEST = 4096  # steps of a scale: beyond, 31 bits would tell too few apart
WIDEST = 2000  # clips in a scale: beyond, a clip might be less than a step
NARROWEST = 10**6  # scales in a clip: beyond, a scale might be less than a step
TAIL = hash_text("tail") | 1
MIX = tuple(zip(SHIFTS, (np.uint64(FIRST), np.uint64(SECOND), None), strict=True))
ONE_IN = np.float32(RARE)


@dataclass(frozen=True)
class Lattice:
    """The multiples of a power of two on which clipped values, noise and sums lie, exactly in float32.

    Attributes:
        step: The power of two.
        most: The bound of a value, in steps: the last one that is within the clip.
    """

    step: float
    most: int


def lattice(scale: Fraction, clip: Fraction, where: str = "defence.scale") -> Lattice:
    """The lattice of a noise: it depends on the scale and the clip, never on what is clipped.

    A step is at most 1/1,024 of the scale and of the clip, so that rounding is lost in the noise. Where one
    is many times the other it is larger: a scale has no more than 4,096 steps, and a clip no more than 2²².

    Raises:
        BadInput: Where one of them would be less than a step; `where` is the option that decides the scale,
            which may be an ε: then the scale goes with the clip, and another clip would not help.
    """
    given = where == "defence.scale"
    if scale > WIDEST * clip:
        what = f"the noise is more than {WIDEST:,} times the clip"
        raise BadInput(where, what, "lower it, or raise the clip" if given else "give a larger ε")
    if scale * NARROWEST < clip:
        what = "the noise is less than a millionth of the clip"
        raise BadInput(where, what, "raise it, or lower the clip" if given else "give a smaller ε")
    fine = min(scale, clip) / 1024
    coarse = max(scale / FINEST, clip / (1 << 22))
    step = _power(fine)
    while step < coarse:
        step *= 2
    return Lattice(float(step), int(clip / step))


def _power(bound: Fraction) -> Fraction:
    """The largest power of two that is no larger."""
    exponent = bound.numerator.bit_length() - bound.denominator.bit_length()
    power = Fraction(2) ** exponent
    return power if power <= bound else power / 2


class BitSource(Protocol):
    """A source of the random bits of some rows."""

    def bits(self, some: slice, words: Words, spare: Words) -> Bits:
        """``[n, m]`` for some of the rows, m even; `words` and `spare` ``[n, m / 2]`` may be written into."""

    def more(self, row: Places, column: Places, turn: int) -> Words:
        """``[k]`` further words for some places of the bits of all rows; others in every turn."""


class System:
    """The operating system's generator: nothing that anybody has configured decides what it gives."""

    def bits(self, some: slice, words: Words, spare: Words) -> Bits:
        """As `BitSource.bits`, whatever the rows."""
        drawn = bytearray(os.urandom(8 * words.size))
        return np.frombuffer(drawn, np.int32).reshape(len(words), -1)

    def more(self, row: Places, column: Places, turn: int) -> Words:
        """As `BitSource.more`."""
        return np.frombuffer(os.urandom(8 * len(row)), np.uint64)


class Seeded:
    """The simulation's bits: those of a row depend on its key and its number in the whole table.

    Two numbers are the halves of one word of `Keys.rows`. A row may consist of several weights side by side,
    each of which begins with a word of its own.

    Args:
        key: ``[rows, weights]`` the key of each weight of each row.
        row: ``[rows]`` its number.
        widths: Numbers of each weight.
        loops: Compiled, if there are any.
    """

    def __init__(self, key: Words, row: Words, widths: Sequence[int], loops: Loops | None = None) -> None:
        self.loops = loops
        halves = np.array([half_of(width) for width in widths], np.int64)
        self.ends = halves.cumsum()
        self.first = key + (row[:, None] * halves.astype(np.uint64) + np.uint64(1)) * np.uint64(GOLDEN)
        column = np.concatenate([np.arange(half, dtype=np.uint64) for half in halves]) * np.uint64(GOLDEN)
        many = max(1, LONG // len(column)) if loops is None else 1  # numpy's loops over short rows are slow
        self.column = np.tile(column, (many, 1))

    def bits(self, some: slice, words: Words, spare: Words) -> Bits:
        """As `BitSource.bits`."""
        if self.loops is not None:
            self.loops.words(self.first[some], self.ends, self.column[0], words)
            return words.view(np.int32)
        for place, (begin, end) in enumerate(pairwise((0, *self.ends))):
            words[:, begin:end] = self.first[some, place, None]
        some_rows = len(self.column)
        whole = len(words) // some_rows * some_rows
        many = words[:whole].reshape(-1, self.column.size)
        many += self.column.reshape(-1)
        words[whole:] += self.column[: len(words) - whole]
        return mix(words, spare).view(np.int32)

    def more(self, row: Places, column: Places, turn: int) -> Words:
        """As `BitSource.more`."""
        if len(self.ends) == 1:
            word = self.first[row, 0]
        else:
            weight = np.searchsorted(2 * self.ends, column, side="right")
            column = column - np.concatenate([[0], 2 * self.ends])[weight]
            word = self.first[row, weight]
        word += column.astype(np.uint64) * np.uint64(GOLDEN)
        word ^= np.uint64((turn + 1) * TAIL & WORD)
        return mix(word, np.empty_like(word))


def half_of(width: int) -> int:
    """The number of words of which a row of so many numbers is made."""
    return (width + 1) // 2


def mix(x: Words, spare: Words) -> Words:
    """The finaliser of splitmix64, in place: `keys` has the same for torch."""
    for shift, factor in MIX:
        np.right_shift(x, shift, out=spare)
        np.bitwise_xor(x, spare, out=x)
        if factor is not None:
            np.multiply(x, factor, out=x)
    return x


class Sampler:
    """Noise in whole steps for the rows of a weight, some at a time and always in the same memory.

    What is rare is left at zero and drawn at the end (`rest`), all at once.

    Args:
        source: Of random bits.
        kind: The law.
        scale: λ or σ, in steps; one, or that of each number of a row.
        words: Of a row: half as many as it has numbers.
        block: The most rows that are asked for at a time.
        loops: Compiled, if there are any.
    """

    def __init__(
        self,
        source: BitSource,
        kind: Kind,
        scale: float | NDArray[np.float64],
        words: int,
        block: int,
        loops: Loops | None = None,
    ) -> None:
        self.source, self.kind, self.scale, self.loops = source, kind, np.asarray(scale), loops
        self.words = np.empty((block, words), np.uint64)
        self.size = np.empty((block, 2 * words), np.float32)
        self.factor = _natural(self.scale)
        self.rare: list[tuple[Places, Bits]] = []

    def draw(self, some: slice) -> Floats:
        """``[n, m]`` noise for some of the rows, m even; it is valid until the next, and zero where rare."""
        if self.kind == "gaussian":
            noise = self._gaussian(*self._bits(some), some.start)
        else:
            noise, bits = self.logarithms(some)
            noise *= self.factor
            np.bitwise_and(bits, SIGN, out=bits)
            np.bitwise_xor(noise.view(np.int32), bits, out=noise.view(np.int32))
        return np.rint(noise, out=noise)

    def logarithms(self, some: slice) -> tuple[Floats, Bits]:
        """``[n, m]`` logarithms by 2 of magnitudes, zero where rare; and the bits, for their signs."""
        bits, size = self._bits(some)
        rare = _logarithms(bits, size, self.loops)
        self.rare.append((some.start * bits.shape[1] + rare, bits.reshape(-1)[rare]))
        return size, bits

    def _bits(self, some: slice) -> tuple[Bits, Floats]:
        """Bits of some rows, and room for as many numbers, which may have been written into."""
        size = self.size[: some.stop - some.start]
        return self.source.bits(some, self.words[: len(size)], size.view(np.uint64)), size

    def _gaussian(self, bits: Bits, noise: Floats, first: int) -> Floats:
        """Normal numbers by Box and Muller: of two the first gives the radius of both, the second the angle.

        `first` is the number of the first row.
        """
        radius = np.empty((len(bits), bits.shape[1] // 2), np.float32)
        rare = _logarithms(bits[:, ::2], radius)
        radius *= _natural(2.0)
        self.rare.append((first * bits.shape[1] + 2 * rare, bits.reshape(-1)[2 * rare + 1]))
        np.sqrt(radius, out=radius)
        radius *= (self.scale[::2] if self.scale.ndim else self.scale).astype(np.float32)
        angle = bits[:, 1::2].astype(np.float32)
        angle *= np.float32(math.pi / 2**31)
        np.multiply(radius, np.cos(angle), out=noise[:, ::2])
        np.multiply(radius, np.sin(angle, out=angle), out=noise[:, 1::2])
        return noise

    def rest(self) -> tuple[Places, Places, NDArray[np.float64]]:
        """``[k]`` the rows and columns of what was left out so far, and the noise there."""
        place = np.concatenate([place for place, _ in self.rare] or [np.empty(0, np.int64)])
        bits = np.concatenate([bits for _, bits in self.rare] or [np.empty(0, np.int32)])
        self.rare = []
        row = place // self.size.shape[1]
        column = place - row * self.size.shape[1]  # faster than `divmod`
        beyond = HALVINGS * math.log(2) + tail(self.source, row, column)
        scale = self.scale[column] if self.scale.ndim else self.scale
        if self.kind == "laplace":
            return row, column, np.rint(np.copysign(scale * beyond, bits))
        radius, angle = scale * np.sqrt(2 * beyond), bits * (math.pi / 2**31)
        noise = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])
        return np.tile(row, 2), np.concatenate([column, column + 1]), np.rint(noise)


def _logarithms(bits: Bits, size: Floats, loops: Loops | None = None) -> Places:
    """Logarithms by 2 of 31 bits each into `size`; zero at the rare places that it returns."""
    if loops is not None:
        loops.sizes(bits, size)
    else:
        np.copyto(size, bits, casting="unsafe")
        np.multiply(size, UNIT, out=size)
        np.abs(size, out=size)
    rare = np.flatnonzero(size < ONE_IN)
    size.reshape(-1)[rare] = 1
    np.log2(size, out=size)
    return rare


def _natural(scale: float | NDArray[np.float64]) -> Floats:
    """The factor that makes a logarithm by 2 an exponential number of some scale."""
    return np.asarray(-math.log(2) * scale, np.float32)


def tail(source: BitSource, row: Places, column: Places) -> NDArray[np.float64]:
    """``[k]`` exponential numbers with scale 1 for some places; as often as it takes."""
    size, left, turn = np.zeros(len(row)), np.arange(len(row)), 0
    while len(left):
        words = source.more(row[left], column[left], turn)
        fraction = (words >> np.uint64(11)).astype(np.float64)
        fraction += 0.5
        size[left] -= np.log(fraction * 2.0**-53)
        again = words < (1 << 32)  # 32 leading zeros: the law begins anew behind them
        if not again.any():
            break
        left, turn = left[again], turn + 1
        size[left] = 32 * math.log(2) * turn
    return size
