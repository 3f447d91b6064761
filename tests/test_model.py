"""The contract's own tools: parts added and moved on a copy, weights bound for one call."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tests.worlds import checkerboard, phones
from veilrec.base.keys import Keys
from veilrec.base.params import Part, Scope
from veilrec.base.plan import Plan
from veilrec.defences.none import Undefended
from veilrec.errors import BadInput
from veilrec.model import Recommender, bind, overrides, with_part
from veilrec.models.fedmf import FedMF
from veilrec.models.fedncf import FedNCF
from veilrec.models.popularity import Popularity
from veilrec.protocols.fedavg import FedAvg
from veilrec.rounds import Federation


def test_a_part_is_added_to_a_copy() -> None:
    model = FedMF(5, dim=2)
    wider = with_part(model, "probe", nn.Linear(2, 3), Part(Scope.PRIVATE, helper=True))
    assert set(wider.names()) - set(model.names()) == {"probe.weight", "probe.bias"}
    assert wider.parts["probe"].helper
    assert "probe" not in model.parts
    assert wider.user is not model.user


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


def test_fresh_vectors_are_as_large_as_asked_for() -> None:
    item = FedNCF(4000, dim=8, scale=0.5).initial("item", Keys.seed(0))
    assert abs(float(item.std()) - 0.5) < 0.02
    for scale in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(BadInput, match=r"model\.scale"):
            FedMF(5, scale=scale)
        with pytest.raises(BadInput, match=r"model\.scale\.item: .*; give a number above 0"):
            FedMF(5, scale={"user": 0.1, "item": scale})


def test_each_part_may_begin_with_a_size_of_its_own() -> None:
    """What is not named begins as `default` says, and as without any `scale` where that is missing."""
    named = FedNCF(4000, 4000, kind="neumf", dim=8, scale={"item": 0.5, "mlp_user": 2.0, "default": 0.1})
    for part, scale in {"item": 0.5, "mlp_user": 2.0, "user": 0.1, "mlp_item": 0.1}.items():
        assert abs(float(named.initial(part, Keys.seed(0)).std()) / scale - 1) < 0.03
    partly, plain = FedMF(40, dim=8, scale={"user": 0.5}), FedMF(40, dim=8)
    assert torch.equal(partly.initial("item", Keys.seed(0)), plain.initial("item", Keys.seed(0)))


@pytest.mark.parametrize("sharing", ["private", "shared"])
def test_private_perceptrons_begin_alike_and_vectors_do_not(sharing: Any) -> None:
    """Also on a device with secret keys: what all have in common is the seed's."""
    clients = phones(checkerboard())
    made = FedNCF(clients.log.n_items, dim=4, head=(4,), sharing=sharing)
    others = Federation.of(clients, made, FedAvg(), Undefended(), Plan(), seed=1)
    federations = [
        Federation.of(clients, made, FedAvg(), Undefended(), Plan(), secret=secret)
        for secret in (None, Keys.secret())
    ]
    one, two = (fed.fleet.fresh(torch.tensor([3, 5])) for fed in federations)
    assert not torch.equal(one["user"][0], one["user"][1])
    assert not torch.equal(one["user"], two["user"])
    if sharing == "shared":
        assert "mlp1.weight" not in one
        return
    assert one["mlp1.weight"].any()
    assert torch.equal(one["mlp1.weight"][0], one["mlp1.weight"][1])
    assert torch.equal(one["mlp1.weight"], two["mlp1.weight"])
    assert not torch.equal(one["mlp1.weight"], others.fleet.fresh(torch.tensor([3, 5]))["mlp1.weight"])


def test_a_table_can_start_from_nothing() -> None:
    assert not Popularity(5).initial("item", Keys.seed(0)).any()


def test_overriding_is_seen() -> None:
    assert overrides(FedMF(5), Recommender, "cohort_loss")
    assert not overrides(Popularity(5), Recommender, "cohort_loss")
