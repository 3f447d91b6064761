"""Code that people keep outside the tree, as they would write it: one plugin file of each kind."""

from __future__ import annotations

from pathlib import Path

MODEL = '''"""Bias: a score per item.

Paper: nobody, "Nothing", 2020.
"""

import torch
from torch import nn

from veilrec.model import Recommender
from veilrec.base.params import Part, Scope

__all__ = ["ItemBias"]


class ItemBias(Recommender):
    """One learned number per item, the same for everyone.

    Args:
        n_items: How many there are.
        n_seats: Users a device has room for.
        pull: How strongly the numbers are pulled to zero.
    """

    def __init__(self, n_items, n_seats=1, *, pull: float = 0.0):
        super().__init__()
        self.parts = {"item": Part(Scope.SHARED, rows="item")}
        self.dim, self.n_seats, self.pull = 1, n_seats, pull
        self.item = nn.Parameter(torch.empty(n_items))

    def loss(self, device):
        batch = device.batch
        gap = self.item[batch.item][:, None] - self.item[batch.negative]
        each = nn.functional.softplus(-gap).mean(-1) + self.pull * self.item[batch.item] ** 2
        return (batch.weight * each).sum() / batch.weight.sum().clamp(min=1)

    def scores(self, batch, items=None):
        return self.item.expand(self.n_seats, -1) if items is None else self.item[items]

    def represent(self, batch):
        return self.item.new_zeros(self.n_seats, 1)
'''

DEFENCE = '''"""Shrink: everything that leaves is made smaller.

Paper: none.
Acts at: on_upload.
"""

from dataclasses import dataclass

from veilrec.defence import Defence
from veilrec.base.params import map_values

__all__ = ["Shrink"]


@dataclass(frozen=True)
class Shrink(Defence):
    """Multiply every upload.

    Attributes:
        factor: By this.
    """

    factor: float = 0.9

    def on_upload(self, upload, device):
        return map_values(upload, lambda name, value: value * self.factor)
'''

ATTACK = '''"""Coin: an attacker who knows nothing.

Paper: none.
"""

from dataclasses import dataclass

from veilrec.attack import Attack

__all__ = ["Shrug"]


@dataclass(frozen=True)
class Shrug(Attack):
    """Score every class alike."""

    def infer(self, seen, task):
        return task.known.new_zeros(len(task.known), max(1, task.classes)).float()
'''

DATASET = '''"""Pairs: a small world."""

import torch

from veilrec.interactions import Interactions

__all__ = ["pairs"]


def pairs(*, n: int = 12) -> Interactions:
    """Everyone touches their own half of the items.

    Args:
        n: How many users and items.
    """
    user = torch.arange(n).repeat_interleave(n // 2)
    item = (user + 2 * torch.arange(n // 2).repeat(n)) % n
    people, things = [f"p{k}" for k in range(n)], [f"i{k}" for k in range(n)]
    known = {"attributes": {"gender": torch.arange(n) % 2}, "classes": {"gender": ("even", "odd")}}
    return Interactions.build(user, item, people, things, name="pairs", **known)
'''


def write(folder: Path, name: str, source: str) -> Path:
    """A plugin file."""
    path = folder / name
    path.write_text(source, encoding="utf-8")
    return path
