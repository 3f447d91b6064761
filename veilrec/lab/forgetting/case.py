"""The case: an erasure with all that is there to look at it by, and how hard it is looked at."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from veilrec.eraser import AttributeEraser
from veilrec.errors import BadInput, nearest
from veilrec.lab.presets import WORST
from veilrec.lab.threat import Threat
from veilrec.lab.trials import People
from veilrec.metrics.ranking import top

__all__ = ["Effort", "Erasure", "ListPair", "lists_of", "usual"]

LISTED = 50  # items of a list
BLOCK = 1024  # users whose lists are made at once
FEW = 2_500  # users of whom a forest is quickly grown


class ListPair(NamedTuple):
    """The lists of all users, ``[users, k]`` items, from before an erasure and from after it; -1 for none."""

    before: Tensor
    after: Tensor


@dataclass(frozen=True)
class Effort:
    """How hard attackers try.

    Attributes:
        families: Who attacks vectors.
        beside: Who attacks lists, histories and differences.
        draws: Of known users, for each verdict.
        shares: Of the users whose labels are known, the smallest first.
        resamples, permutations: As in `Threat`.
    """

    families: Sequence[str] = WORST
    beside: Sequence[str] = ("logistic", "mlp")
    draws: int = 1
    shares: Sequence[float] = (0.2, 0.8)
    resamples: int = 500
    permutations: int = 999

    def threat(self, known: Any, attribute: str) -> Threat:
        """The protocol of one look."""
        one = Threat((attribute,), known, repeats=self.draws, by_part=False, membership=False)
        return replace(one, resamples=self.resamples, permutations=self.permutations)


def usual(users: int) -> Effort:
    """The effort that takes seconds: all families, of many users all but the forest, which takes longest."""
    return Effort(tuple(name for name in WORST if users <= FEW or name != "forest"))


@dataclass(frozen=True)
class Erasure:
    """Vectors before and after an erasure, and what else there is to look at it by.

    Attributes:
        before, after: ``[users, width]``.
        people: The truth about the users; in `asks` who asked, None for everybody.
        attributes: Those that were to be forgotten, all with classes.
        eraser: By which it was done: some attackers do the same with those they know. None to leave them out.
        lends: ``[users]`` from whom the eraser learned, where it needs no label of those who ask.
        lists: By what a list may hold, ``unseen`` items or ``all``: the lists before and after.
        history: ``[e]`` users and ``[e]`` items: what users touched.
        later: By the number of rounds of further training, ``[users, width]`` the vectors then.
        metrics: By name, usefulness of each user ``[users]`` before and after; NaN for who was not tested.
    """

    before: Tensor
    after: Tensor
    people: People
    attributes: Sequence[str]
    eraser: AttributeEraser | None = None
    lends: Tensor | None = None
    lists: Mapping[str, ListPair] = field(default_factory=dict)
    history: tuple[Tensor, Tensor] | None = None
    later: Mapping[int, Tensor] = field(default_factory=dict)
    metrics: Mapping[str, tuple[Tensor, Tensor]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        users = len(self.people.tags)
        for name, vectors in (("before", self.before), ("after", self.after)):
            if vectors.dim() != 2 or len(vectors) != users or vectors.shape != self.before.shape:
                what = f"vectors {name} of shape {list(vectors.shape)} for {users} users"
                raise BadInput("receipt", what, "give one row a user, before and after alike")
        for name in self.attributes:
            if name not in self.people.labels:
                fix = nearest(name, self.people.labels)
                raise BadInput("receipt", f'there is no attribute "{name}" with classes', fix)
        if not self.attributes:
            raise BadInput("receipt", "no attribute was to be forgotten", "name at least one")

    @property
    def asks(self) -> Tensor:
        """``[users]`` who asked."""
        everybody = torch.ones(len(self.people.tags), dtype=torch.bool)
        return everybody if self.people.asks is None else self.people.asks

    @property
    def some(self) -> bool:
        """Whether some asked and some did not."""
        return not bool(self.asks.all())

    @property
    def asking(self) -> People:
        """The truth about those who asked, and nothing about anybody else."""
        labels = {n: torch.where(self.asks, label, -1) for n, label in self.people.labels.items()}
        return replace(self.people, labels=labels, values={}, asks=None)


def lists_of(
    score: Tensor | Callable[[Tensor], Tensor],
    before: Tensor,
    after: Tensor,
    user: Tensor,
    item: Tensor,
    length: int = LISTED,
) -> dict[str, ListPair]:
    """Lists of `unseen` items and of `all`, before and after, from vectors ``[users, width]``.

    Args:
        score: Item vectors ``[items, width]``, or a function from user vectors ``[n, width]`` to scores
            ``[n, items]``.
        before, after: User vectors.
        user, item: ``[e]`` what users touched.
        length: Of a list.
    """
    table = score if isinstance(score, Tensor) else None
    of = (lambda rows: rows @ table.to(rows.dtype).T) if table is not None else score
    assert callable(of)
    made = {
        name: [_shown(of, vectors, *touched, length) for vectors in (before, after)]
        for name, touched in {"unseen": (user, item), "all": (user[:0], item[:0])}.items()
    }
    return {name: ListPair(*pair) for name, pair in made.items()}


def _shown(
    score: Callable[[Tensor], Tensor], vectors: Tensor, user: Tensor, item: Tensor, length: int
) -> Tensor:
    """``[users, length]`` the best items for each vector, but those that were touched."""
    order = user.argsort(stable=True)
    user, item, found = user[order].contiguous(), item[order], []
    for start in range(0, len(vectors), BLOCK):
        ends = torch.searchsorted(user, torch.tensor([start, start + BLOCK]))
        own = slice(int(ends[0]), int(ends[1]))
        found.append(top(score(vectors[start : start + BLOCK]), user[own] - start, item[own], length))
    return torch.cat(found)
