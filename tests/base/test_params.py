"""Weights go by the part they belong to, and the part says who may see them."""

from __future__ import annotations

import torch

from veilrec.base.params import Message, Part, Rows, Scope, map_values, part_of

PARTS = {"user": Part(Scope.PRIVATE, "user"), "item": Part(Scope.SHARED, "item"), "head": Part(Scope.EXPOSED)}


def test_the_part_stands_before_the_first_dot() -> None:
    assert [part_of(n) for n in ("item", "mlp1.weight", "a.b.c")] == ["item", "mlp1", "a"]


def test_map_values_changes_values_and_leaves_rows() -> None:
    message: Message = {"item": Rows(torch.tensor([3, 5, -1]), torch.ones(3, 2)), "head.bias": torch.ones(4)}
    changed = map_values(message, lambda name, value: value * len(name))
    item, bias = changed["item"], changed["head.bias"]
    assert isinstance(item, Rows)
    assert item.row.tolist() == [3, 5, -1]
    assert torch.equal(item.value, torch.full((3, 2), 4.0))
    assert torch.equal(torch.as_tensor(bias), torch.full((4,), 9.0))
    assert torch.equal(message["head.bias"], torch.ones(4))  # type: ignore[arg-type]
