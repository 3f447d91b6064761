"""FedNCF: what its options make of it."""

from __future__ import annotations

import pytest

from veilrec.base.params import Scope
from veilrec.errors import BadInput
from veilrec.models.fedncf import FedNCF


def shapes(model: FedNCF) -> dict[str, list[int]]:
    return {name: list(weight.shape) for name, weight in model.named_parameters()}


def test_the_perceptron_alone() -> None:
    assert shapes(FedNCF(9, dim=4, head=(6, 3))) == {
        "user": [1, 4],
        "item": [9, 4],
        "mlp1.weight": [8, 6],
        "mlp1.bias": [6],
        "mlp2.weight": [6, 3],
        "mlp2.bias": [3],
        "mlp3.weight": [3, 1],
        "mlp3.bias": [1],
    }


def test_beside_a_product() -> None:
    found = shapes(FedNCF(9, 2, kind="neumf", dim=4, tower_dim=5, head=(6, 3)))
    assert found["user"] == [2, 4]
    assert found["mlp_user"] == [2, 5]
    assert found["mlp_item"] == [9, 5]
    assert found["mlp1.weight"] == [10, 6]
    assert found["predict.weight"] == [4 + 3, 1]
    assert "mlp3.weight" not in found


def test_scopes() -> None:
    model = FedNCF(9, kind="neumf", user="exposed", sharing="private", head=(4,))
    assert model.parts["user"].scope is model.parts["mlp_user"].scope is Scope.EXPOSED
    assert model.parts["mlp1"].scope is model.parts["predict"].scope is Scope.PRIVATE
    assert model.parts["item"].scope is model.parts["mlp_item"].scope is Scope.SHARED


def test_a_head_is_needed() -> None:
    with pytest.raises(BadInput, match=r"model\.head"):
        FedNCF(9, head=())
