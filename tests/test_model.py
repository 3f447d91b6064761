"""The contract's own tools: parts added and moved on a copy, weights bound for one call."""

from __future__ import annotations

import torch
from torch import nn

from veilrec.keys import Keys
from veilrec.model import Recommender, bind, overrides, with_part, with_scope
from veilrec.models.fedmf import FedMF
from veilrec.models.fedncf import FedNCF
from veilrec.models.popularity import Popularity
from veilrec.params import Part, Scope


def test_a_part_is_added_to_a_copy() -> None:
    model = FedMF(5, dim=2)
    wider = with_part(model, "probe", nn.Linear(2, 3), Part(Scope.PRIVATE, helper=True))
    assert set(wider.names()) - set(model.names()) == {"probe.weight", "probe.bias"}
    assert wider.parts["probe"].helper
    assert "probe" not in model.parts
    assert wider.user is not model.user


def test_a_part_is_moved_on_a_copy() -> None:
    model = FedNCF(5, dim=2, head=(2,))
    moved = with_scope(model, "mlp1", Scope.PRIVATE)
    assert moved.parts["mlp1"].scope is Scope.PRIVATE
    assert model.parts["mlp1"].scope is Scope.SHARED
    assert with_scope(model, "user", Scope.EXPOSED).parts["user"].rows == "user"
    assert moved.names(Scope.PRIVATE) == ["user", "mlp1.weight", "mlp1.bias"]
    assert moved.names() == model.names()


def test_weights_are_bound_for_one_call() -> None:
    model = FedMF(3, dim=2)
    with torch.no_grad():
        model.item.zero_()
    params = {"user": torch.ones(1, 2), "item": torch.arange(6.0).reshape(3, 2)}
    assert bind(model, params, lambda m: m.scores(None)).tolist() == [[1.0, 5.0, 9.0]]
    assert not model.item.any()


def test_fresh_weights() -> None:
    model = FedNCF(4000, 2, dim=8, head=(16,))
    keys = Keys.seed(0)
    item = model.initial("item", keys)
    assert abs(float(item.std()) - 0.01) < 0.0003
    assert abs(float(item.mean())) < 0.0003
    weight = model.initial("mlp1.weight", keys)
    bound = (6 / (16 + 16)) ** 0.5
    assert 0.9 * bound < float(weight.abs().max()) <= bound
    assert not model.initial("mlp1.bias", keys).any()
    assert model.initial("mlp1.bias", keys.fold(torch.arange(3))).shape == (3, 16)


def test_a_table_can_start_from_nothing() -> None:
    assert not Popularity(5).initial("item", Keys.seed(0)).any()


def test_overriding_is_seen() -> None:
    assert overrides(FedMF(5), Recommender, "cohort_loss")
    assert not overrides(Popularity(5), Recommender, "cohort_loss")
