"""Sums: erasers that learn from sums over users alone, and holders of vectors, who send such sums."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from veilrec.base.draws import Draws
from veilrec.base.params import Params
from veilrec.eraser import AttributeEraser, Request
from veilrec.wire.codec import Schema, decode, encode

__all__ = ["Held", "Holder", "Step", "SumEraser"]


class Held(NamedTuple):
    """What one holder has of one attribute."""

    vectors: Tensor  # [n, width] float64
    label: Tensor  # [n] class, -1 unknown
    counts: Tensor  # [n] whether the user is in its sums
    moves: Tensor  # [n] whether the user's vector is changed
    classes: int
    draws: Draws  # the holder's own
    tags: Tensor  # [n] hashes of the users' ids
    least: int = 1  # a sum over fewer users is not told


class Step(ABC):
    """One exchange of a `SumEraser`: every holder sends sums over its users, and all get one map.

    The letter is the map of the step before, which all have; before the first step it is empty.
    """

    @abstractmethod
    def schema(self, width: int, classes: int) -> Schema:
        """The names, shapes and types of what a holder sends: nothing else leaves it."""

    @abstractmethod
    def statistics(self, held: Held, letter: Params) -> Params:
        """Sums over a holder's users: those of two holders add up to those of both."""

    @abstractmethod
    def fit(self, sums: Params, letter: Params, draws: Draws) -> Params:
        """The map, from the sums over all holders."""

    @abstractmethod
    def apply(self, letter: Params, held: Held) -> Tensor:
        """``[n, width]`` a holder's vectors after the map; those who do not move may be anything."""


class Holder:
    """Someone who holds the vectors of some users, and from whom only sums leave.

    The sum over one user is that user's vector. A silo says over how many users it sums at `least`, and
    leaves smaller classes of its own out; where each device is a holder, sums must be added up encrypted.

    Attributes:
        vectors: ``[n, width]`` float64, as they are now.
    """

    def __init__(self, vectors: Tensor, request: Request, draws: Draws, *, least: int = 1) -> None:
        self.vectors, self._request, self._draws, self.least = vectors.double(), request, draws, least

    def held(self, name: str, *, needs_labels: bool) -> Held:
        """What it has of an attribute."""
        request, label = self._request, self._request.labels[name]
        counts = request.counts_in(name, aware=needs_labels)
        moves = request.moves & (label >= 0) if needs_labels else request.moves
        own = self._draws.fold(name)
        count, tags = request.count(name), request.own_tags
        return Held(self.vectors, label, counts, moves, count, own, tags, self.least)


@dataclass(frozen=True)
class SumEraser(AttributeEraser):
    """An eraser that learns its map from sums over users; whoever holds vectors applies it alone."""

    @abstractmethod
    def steps(self, request: Request) -> Sequence[tuple[str, Step]]:
        """What is done, in order: an attribute and a step."""

    def transform(self, vectors: Tensor, request: Request, draws: Draws) -> Tensor:
        centre = vectors.mean(0) if len(vectors) else 0.0  # so that squares of large numbers cost no digits
        alone = Holder(vectors - centre, request, draws)
        self.together([alone], request, draws, as_bytes=False)
        return alone.vectors + centre

    def together(
        self, holders: Sequence[Holder], request: Request, draws: Draws, *, as_bytes: bool = True
    ) -> Params:
        """Change what holders have, from sums over all of them; returns the last map.

        Args:
            holders: Who has vectors, each with the part of the request that concerns its users and draws of
                its own.
            request: What shall be forgotten: of it only names and numbers of classes are read.
            draws: Those of whoever adds up.
            as_bytes: Whether sums pass through bytes that are held against the schema.
        """
        letter: Params = {}
        before = ""
        for name, step in self.steps(request):
            letter = letter if name == before else {}
            here = [holder.held(name, needs_labels=self.needs_labels) for holder in holders]
            sums: Params = {}
            for held in here:
                told = step.statistics(held, letter)
                told = _by_wire(step, held, told) if as_bytes else told
                sums = {key: sums[key] + value if sums else value for key, value in told.items()}
            letter, before = step.fit(sums, letter, draws.fold(name)), name
            for holder, held in zip(holders, here, strict=True):
                holder.vectors = step.apply(letter, held)
        return letter


def _by_wire(step: Step, held: Held, sums: Params) -> Params:
    """Sums as they come out of the bytes in which they travel, held against what the step declares."""
    schema = step.schema(held.vectors.shape[1], held.classes)
    return {n: v for n, v in decode(encode({**sums}), schema).items() if isinstance(v, Tensor)}
