"""Randomness that does not depend on who else is in the batch.

Every random number is a hash of (seed, round, client, purpose, position). A device draws the same
numbers alone, in a cohort of a thousand, or on a real phone, so the three can be compared exactly.
Good for experiments, not secret: on real devices start from `Keys.secret`.

The hash is the finaliser of splitmix64 on wrapping int64, which torch has on every device.
"""

from __future__ import annotations

import functools
import math
import secrets
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Keys", "hash_text", "laplace_of", "normal_of", "uniform_of"]

WORD = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15
FIRST, SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


class Keys(NamedTuple):
    """A source of random tensors: one scalar per device. (A NamedTuple so that `vmap` can look inside.)

    With ``value`` of shape ``[clients]`` every draw gains that leading axis, and row k is exactly what
    client k would have drawn alone.

    A device draws the same numbers alone and in a cohort, and others for another purpose:

    >>> cohort = Keys.seed(0).fold("noise").fold(torch.tensor([7, 8, 9]))
    >>> cohort.uniform(2).round(decimals=2)
    tensor([[0.0200, 0.7500],
            [0.5700, 0.8900],
            [0.5500, 0.0600]])
    >>> alone = Keys.seed(0).fold("noise").fold(torch.tensor(8))
    >>> torch.equal(alone.uniform(2), cohort.uniform(2)[1])
    True
    >>> torch.equal(alone.uniform(2), alone.fold("dropout").uniform(2))
    False
    """

    value: Tensor  # int64, scalar or [clients]

    @classmethod
    def seed(cls, seed: int, device: str | torch.device = "cpu") -> Keys:
        """Keys for an experiment: the same seed gives the same numbers everywhere."""
        return cls(torch.tensor(signed(_mix_int(seed & WORD)), device=device))

    @classmethod
    def secret(cls) -> Keys:
        """Keys the server cannot guess; deployment must use these for any privacy noise."""
        return cls(torch.tensor(signed(secrets.randbits(64))))

    def fold(self, tag: int | str | Tensor) -> Keys:
        """Independent keys for a round, a client or a purpose: ``keys.fold(round).fold("noise")``."""
        if isinstance(tag, Tensor):
            return Keys(mixed(self.value + mixed(tag + signed(GOLDEN))))
        word = hash_text(tag) if isinstance(tag, str) else signed(_mix_int((tag + GOLDEN) & WORD))
        return Keys(mixed(self.value + word))

    def pick(self, index: Tensor) -> Keys:
        """The keys of some of the clients: ``value[index]``."""
        return Keys(self.value[index])

    def at(self, position: Tensor) -> Tensor:
        """The random int64 words at given positions, with broadcasting against ``value``."""
        return mixed(self.value + (position + 1) * signed(GOLDEN))

    def words(self, *shape: int) -> Tensor:
        """Random int64 words, ``[*value.shape, *shape]``; padding the first axis changes no other word."""
        position = torch.arange(math.prod(shape), device=self.value.device).reshape(shape)
        lead = self.value.reshape((*self.value.shape, *(1 for _ in shape)))
        return mixed(lead + (position + 1) * signed(GOLDEN))

    def rows(self, row: Tensor, width: int) -> Tensor:
        """Some rows of a table of words, ``[*row.shape, width]``: those that ``words(n, width)`` has there.

        ``row`` broadcasts against ``value``.

        >>> keys, row = Keys.seed(0), torch.tensor([3, 5])
        >>> torch.equal(keys.rows(row, width=2), keys.words(9, 2)[row])
        True
        """
        first = self.value + (row * width + 1) * signed(GOLDEN)
        return mixed(first[..., None] + torch.arange(width, device=row.device) * signed(GOLDEN))

    def uniform(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """Numbers in the open interval (0, 1): 23 random bits in float32, 52 in float64."""
        return uniform_of(self.words(*shape), dtype)

    def normal(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """Standard normal by Box and Muller, one word each: 32 bits of radius, 32 of angle."""
        return normal_of(self.words(*shape)).to(dtype)

    def laplace(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """Laplace with scale 1: 48 bits of magnitude, of further words for the tail, and one of sign."""
        return laplace_of(self.words(*shape)).to(dtype)

    def integers(self, high: int | Tensor, *shape: int) -> Tensor:
        """Whole numbers from 0 to ``high - 1``, for high below 2³¹."""
        return below(self.words(*shape), high)

    def order(self, n: int) -> Tensor:
        """A random order of ``n`` things, ``[*value.shape, n]``."""
        return self.words(n).argsort(dim=-1, stable=True)

    def choose(self, logits: Tensor) -> Tensor:
        """One index per row, drawn from softmax(logits) by inverse CDF: the exponential mechanism.

        ``logits [*value.shape, …, n]`` to ``[*value.shape, …]``.

        >>> Keys.seed(0).choose(torch.tensor([[0.0, 9.0, 0.0], [9.0, 0.0, 0.0]]))
        tensor([1, 0])
        """
        weight = (logits.double() - logits.double().amax(-1, keepdim=True)).exp()
        total = weight.cumsum(-1)
        rows = logits.shape[self.value.dim() : -1]
        target = self.uniform(*rows, dtype=torch.float64)[..., None] * total[..., -1:]
        return torch.searchsorted(total, target).squeeze(-1).clamp(max=logits.shape[-1] - 1)


def below(words: Tensor, high: int | Tensor) -> Tensor:
    """Random words to whole numbers under `high` (below 2³¹), by multiply and shift."""
    return (_shift(words, 32) * high) >> 32


def uniform_of(words: Tensor, dtype: torch.dtype) -> Tensor:
    """A uniform number for each word, as `Keys.uniform` makes them."""
    bits = 52 if dtype == torch.float64 else 23
    return (_shift(words, 64 - bits).to(dtype) + 0.5) * 2.0**-bits


def normal_of(words: Tensor) -> Tensor:
    """Random words to standard normal numbers in float64; `Keys.normal` says how."""
    radius = _shift(words, 32).to(torch.float64).add_(0.5).mul_(2.0**-32)
    angle = (words & 0xFFFFFFFF).to(torch.float64).mul_(2 * math.pi * 2.0**-32)
    return radius.log_().mul_(-2).sqrt_().mul_(angle.cos_())


def laplace_of(words: Tensor) -> Tensor:
    """Random words to Laplace numbers in float64; `Keys.laplace` says how.

    Where 32 leading bits are zero the law begins anew behind them, with another word. It ends after three
    words, which is noticed once in 2¹¹² draws.
    """
    fraction, word = _fraction(words), words
    for turn in (1, 2):
        word = mixed(word ^ signed(FIRST))
        fraction = torch.where(
            fraction < 2.0 ** (-32 * turn), _fraction(word) * 2.0 ** (-32 * turn), fraction
        )
    return fraction.log_().mul_((words & 1).mul_(-2).add_(1))  # minus the magnitude, times a sign


def _fraction(words: Tensor) -> Tensor:
    """Numbers in the open interval (0, 1), of 48 bits."""
    return _shift(words, 16).to(torch.float64).add_(0.5).mul_(2.0**-48)


@functools.lru_cache(4096)
def hash_text(text: str) -> int:
    """A signed 64-bit hash of a string, the same in every process (FNV-1a, then mixed)."""
    word = 0xCBF29CE484222325
    for byte in text.encode():
        word = ((word ^ byte) * 0x100000001B3) & WORD
    return signed(_mix_int(word))


def mixed(x: Tensor) -> Tensor:
    """Words through the finaliser of splitmix64."""
    x = (x ^ _shift(x, 30)) * signed(FIRST)
    x = (x ^ _shift(x, 27)) * signed(SECOND)
    return x ^ _shift(x, 31)


def _shift(x: Tensor, n: int) -> Tensor:
    """Logical right shift: torch's own keeps the sign."""
    return (x >> n) & ((1 << (64 - n)) - 1)


def _mix_int(x: int) -> int:
    x = ((x ^ (x >> 30)) * FIRST) & WORD
    x = ((x ^ (x >> 27)) * SECOND) & WORD
    return x ^ (x >> 31)


def signed(x: int) -> int:
    """A word of 64 bits as the int64 that torch has for it."""
    return x - (1 << 64) if x >> 63 else x
