"""Names for weights, the part of a model that each belongs to, and its scope."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Literal, NamedTuple, TypeVar

from torch import Tensor

__all__ = ["KEPT", "ROW", "Params", "Part", "Parts", "Rows", "Scope", "map_values", "part_of", "under"]

Value = TypeVar("Value")

KEPT = "kept/"  # before the name of what a device keeps of some rows of its own item tables
ROW = f"{KEPT}row"  # their numbers, ascending; -1 pads devices with fewer


class Rows(NamedTuple):
    """Some rows of a table, as in sparse uploads and private tables.

    Seen from one device ``row [r]`` and ``value [r, …]``; in a cohort both gain the client axis in
    front, and rows of -1 pad the shorter clients.
    """

    row: Tensor  # [r] row of the table (global), -1 where padded
    value: Tensor  # [r, …]


Params = dict[str, Tensor]
"""Weights by dotted name. The text before the first dot names the part: ``item.weight`` → ``item``."""

Message = dict[str, Tensor | Rows]
"""What crosses the wire: a table of which only some rows are meant travels as `Rows`."""


class Scope(Enum):
    """The scope of a part of the model: its holder, and those who see it."""

    SHARED = "shared"  # one copy; the server averages it and sends it back
    EXPOSED = "exposed"  # one copy per device, uploaded each round: seen, not averaged
    PRIVATE = "private"  # one copy per device; never leaves it


@dataclass(frozen=True, slots=True)
class Part:
    """The properties of one part of a model that the rest of the library needs.

    Attributes:
        scope: Its holder, and those who see it.
        rows: The things that the first axis counts, if any. Rows of ``"item"`` that a device never touched
            are not copied or uploaded: on a device such a part is a local table. Of an item table that is
            PRIVATE a device keeps the rows that it ever touched; all others are as they began, which is
            zero, whatever `Recommender.initial` says, or `keyed_rows`.
        helper: True for a network that only a defence trains (`Defence.helper_loss`); scores never read it.
        shared_init: True where every device begins with the same weights: private score functions that begin
            apart would each read the items in a way of its own, and little could be learned in common.
        loss_is: Whether its loss is one of examples, of which each ``step`` has a share, or of a ``round``
            (`Defence.penalty_is`): a gradient of it that is sent is then no mean over examples.
        keyed_rows: True where each row of a device's own item table begins with a draw from its keys: a
            recurrent network over rows of zero never starts to learn.
    """

    scope: Scope
    rows: Literal["user", "item"] | None = None
    helper: bool = False
    shared_init: bool = False
    loss_is: Literal["step", "round"] = "step"
    keyed_rows: bool = False


Parts = Mapping[str, Part]


def part_of(name: str) -> str:
    """The part a weight belongs to.

    >>> part_of("mlp1.weight"), part_of("item")
    ('mlp1', 'item')
    """
    return name.split(".", 1)[0]


def under(named: Mapping[str, Value], prefix: str) -> dict[str, Value]:
    """Choose what has names that begin with a prefix, and drop the prefix.

    >>> under({"own/user": 1, "round": 2}, "own/")
    {'user': 1}
    """
    return {name.removeprefix(prefix): value for name, value in named.items() if name.startswith(prefix)}


def map_values(message: Message, change: Callable[[str, Tensor], Tensor]) -> Message:
    """Apply ``change(name, value)`` to every value, whether it is a whole table or some rows of one.

    >>> import torch
    >>> rows = Rows(torch.tensor([4]), torch.tensor([[1.0, 2.0]]))
    >>> map_values({"item": rows}, lambda name, value: 2 * value)["item"].value
    tensor([[2., 4.]])
    """
    return {
        name: Rows(value.row, change(name, value.value)) if isinstance(value, Rows) else change(name, value)
        for name, value in message.items()
    }
