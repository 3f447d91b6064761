"""Randomness that a device draws once and keeps: what objective perturbation adds is the same in all rounds.

The keys of `Device` are new in every step. So a device keeps a key of its own as a PRIVATE part, from which
the same noise can be drawn again at any time; the noise itself, clients × items, is stored nowhere. A device
makes its key when it first takes part: no store comes with one. In a simulation the key is drawn from the
experiment's; on a real device (`Defence.secret`) it is 64 bits of the operating system. What is drawn from it
is a hash and no cipher: whoever learned some of its numbers exactly might work out the others.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from veilrec.base.keys import Keys
from veilrec.base.params import Part, Scope
from veilrec.model import Recommender, with_part

__all__ = ["kept_keys", "secrets", "with_kept_keys"]

NUMBERS, FINE = 3, 2.0**24  # three numbers of 23 random bits, which float32 and float64 hold exactly


class _Kept(nn.Module):
    """A key as weights. No loss follows them downhill, so that no step moves them."""

    def __init__(self, secret: bool) -> None:
        super().__init__()
        self.secret = secret
        self.key = nn.Parameter(torch.zeros(NUMBERS))

    def initial(self, name: str, keys: Keys) -> Tensor:
        """``[*keys.value.shape, 3]`` in (0, 1)."""
        return (secrets(keys.value) if self.secret else keys).uniform(NUMBERS)


def secrets(like: Tensor) -> Keys:
    """Keys that nobody else can know, in the shape of `like`: one draw of the operating system for each."""
    words = [int(Keys.secret().value) for _ in range(like.numel())]
    return Keys(torch.tensor(words, dtype=torch.int64, device=like.device).reshape(like.shape))


def with_kept_keys(model: Recommender, name: str, *, secret: bool = False) -> Recommender:
    """A copy of `model` in which every device keeps a key under `name`.

    It is a helper part: it has no learning rate, no optimiser state, and local training leaves it alone.
    """
    return with_part(model, name, _Kept(secret), Part(Scope.PRIVATE, helper=True))


def kept_keys(model: Recommender, name: str) -> Keys:
    """The keys that one device keeps: the same in every step of every round, others on every device.

    The numbers are hashed, not read: where a model begins with normal numbers they are as good.
    """
    words = (getattr(model, name).key.detach().double() * FINE).long()
    keys = Keys(words[0])
    for word in words[1:]:
        keys = keys.fold(word)
    return keys
