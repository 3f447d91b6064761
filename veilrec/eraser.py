"""The contract of an eraser: what makes a finished model forget, after training and without going through it.

A defence acts while a model is trained; an eraser is given what training has left. `VectorEraser` goes from
vectors to vectors, wherever they lie. Erasers that fit a map to sums, or that train with a fleet for some
rounds, are contracts of their own beside it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection

from torch import Tensor

from veilrec.base.bounds import hold
from veilrec.base.keys import Keys
from veilrec.base.params import KEPT, Params, part_of
from veilrec.errors import BadInput, nearest
from veilrec.model import Recommender

__all__ = ["Eraser", "VectorEraser", "erased"]


class Eraser(ABC):
    """A method applied to the selected state of a run. A subclass is a frozen dataclass of its options."""

    def __post_init__(self) -> None:
        """Hold the numbers among its options against their bounds; who overrides this calls it first."""
        hold(self, "eraser")

    @property
    @abstractmethod
    def changes(self) -> Collection[str]:
        """The parts of the model that it changes."""

    def check(self, model: Recommender) -> None:
        """Refuse a model that lacks what is to be changed.

        Raises:
            BadInput: With the nearest name of a part.
        """
        for part in self.changes:
            if part not in model.parts:
                fix = nearest(part, model.parts)
                raise BadInput("eraser.parts", f'the model has no part "{part}"', fix)


class VectorEraser(Eraser):
    """An eraser that changes each holder's vectors without asking anybody else."""

    @abstractmethod
    def erase(self, name: str, vectors: Tensor, keys: Keys) -> Tensor:
        """Change vectors, and return as many of the same length.

        Args:
            name: The weight.
            vectors: The server's ``[…]``, or with one row for each device ``[c, …]``.
            keys: The server's, or each device's own ``[c]``.
        """


def erased(eraser: VectorEraser, values: Params, keys: Keys, tags: Tensor | None = None) -> Params:
    """Weights by name after an eraser: the server's, or with `tags` those of some devices ``[c, …]``.

    Of item tables of a device's own, the rows that it keeps are changed; all others are as they began.
    """
    found = dict(values)
    for name, value in values.items():
        weight = name.removeprefix(KEPT)
        if part_of(weight) in eraser.changes and value.is_floating_point():
            own = keys.fold(name) if tags is None else keys.fold(name).fold(tags)
            found[name] = eraser.erase(weight, value, own)
    return found
