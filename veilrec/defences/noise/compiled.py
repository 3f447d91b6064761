"""The loops of the noise, compiled where numba is there (extra `fast`): the same bits in about half the time.

numpy walks through memory some thirty times for its numbers, with these loops it is some six times. A step
is one of whole numbers, or one of float32 that is rounded for itself, as numpy does it: but for the bits of
not-a-number, nothing shows which one ran.
"""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

from veilrec.base.keys import FIRST, SECOND

__all__ = ["LARGEST", "SHIFTS", "UNIT", "Loops", "loops"]

MANY = 1 << 16  # numbers: to compile the loops takes two seconds, which small worlds would not win back
LOCK = threading.Lock()
SHIFTS = THIRTY, TWENTY_SEVEN, THIRTY_ONE = np.uint64(30), np.uint64(27), np.uint64(31)  # of splitmix64
ONE, OTHER = np.uint64(FIRST), np.uint64(SECOND)
UNIT = np.float32(2.0**-31)
LARGEST = 1 << 23  # steps: float32 is exact up to there, and one bit beyond
FARTHEST = np.float32(LARGEST)


class Loops(NamedTuple):
    """Compiled, and without Python's lock; they write into what they are given.

    Attributes:
        words: The words of a block of rows.
        sizes: The magnitudes of its numbers, up to 1.
        leave: From values and logarithms of magnitudes to values with noise, in other memory.
        leave_in_place: The same in theirs: a loop of its own, or the compiler would have to think of both.
        leave_some: The same for noise that is there already.
    """

    words: Callable[..., None]
    sizes: Callable[..., None]
    leave: Callable[..., None]
    leave_in_place: Callable[..., None]
    leave_some: Callable[..., None]


def loops(numbers: int) -> Loops | None:
    """The loops for so many numbers; None without numba, or for few."""
    if numbers < MANY:
        return None
    with LOCK:  # or each thread would compile its own
        return _compiled()


@functools.cache
def _compiled() -> Loops | None:
    if find_spec("numba") is None:
        return None
    try:
        from numba import config, njit
    except (ImportError, OSError, AttributeError) as error:  # made for another numpy, or a library is missing
        warnings.warn(f"the noise is drawn without numba, which cannot be used: {error}", stacklevel=3)
        return None
    if getattr(config, "DISABLE_JIT", False):
        return None
    compile_, inner = njit(nogil=True), njit(inline="always")(_leave)

    def in_place(left, logarithm, bits, factor, bound, inverse, step):  # type: ignore[no-untyped-def]
        inner(left, left, logarithm, bits, factor, bound, inverse, step)

    return Loops(*(compile_(loop) for loop in (_words, _sizes, _leave, in_place, _leave_some)))


def _words(first: Any, ends: Any, column: Any, words: Any) -> None:
    """``first [n, weights]`` and ``column [m]``, where weights end at `ends`, to ``words [n, m]``.

    The finaliser of splitmix64, as `sampling.mix` has it.
    """
    for row in range(words.shape[0]):
        begin = 0
        for weight in range(ends.shape[0]):
            start, end = first[row, weight], ends[weight]
            some, beyond = words[row, begin:end], column[begin:end]  # slices: no index of theirs is below 0
            for place in range(some.shape[0]):
                x = start + beyond[place]
                x = (x ^ (x >> THIRTY)) * ONE
                x = (x ^ (x >> TWENTY_SEVEN)) * OTHER
                some[place] = x ^ (x >> THIRTY_ONE)
            begin = end


def _sizes(bits: Any, size: Any) -> None:
    """``bits [n, m]`` to ``size [n, m]`` from 0 to 1."""
    for row in range(bits.shape[0]):
        for column in range(bits.shape[1]):
            size[row, column] = abs(np.float32(bits[row, column]) * UNIT)


def _leave(
    value: Any, left: Any, logarithm: Any, bits: Any, factor: Any, bound: Any, inverse: Any, step: Any
) -> None:
    """``value [n, width]``, clipped, put on the lattice and noised, into ``left [n, width]``.

    Noise is ``logarithm [n, m]`` times ``factor [m]``, in whole steps, with the sign of ``bits [n, m]``.
    """
    for row in range(left.shape[0]):
        for column in range(left.shape[1]):
            size = np.rint(logarithm[row, column] * factor[column])
            noise = -size if bits[row, column] < 0 else size
            x, most = value[row, column], bound[column]
            x = -most if x < -most else x
            x = most if x > most else x
            left[row, column] = (np.rint(x * inverse[column]) + noise) * step[column]


def _leave_some(left: Any, at: Any, column: Any, far: Any, bound: Any, inverse: Any, step: Any) -> None:
    """Values at ``[k]`` rows and columns of ``left [n, width]``, with noise ``far [k]`` beyond any bound."""
    for place in range(at.shape[0]):
        row, beside = at[place], column[place]
        x, most = left[row, beside], bound[beside]
        x = -most if x < -most else x
        x = most if x > most else x
        steps = np.float32(np.rint(x * inverse[beside]) + far[place])
        steps = -FARTHEST if steps < -FARTHEST else steps
        steps = FARTHEST if steps > FARTHEST else steps
        left[row, beside] = steps * step[beside]
