"""The columns of a feature matrix that did not move tell what was not in the features."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.attacks.heads import GRADIENTS, WEIGHTS, share_right, task_of, world
from tests.worlds import federation, phones, run
from veilrec.attack import Seen
from veilrec.attacks.one_hot import ColumnNorms
from veilrec.base.params import Part, Scope
from veilrec.clients import Batch
from veilrec.engine.features import with_features
from veilrec.engine.probe import see
from veilrec.errors import BadInput
from veilrec.interactions import Interactions
from veilrec.metrics.inference import auc
from veilrec.model import Device, Recommender
from veilrec.models.common.layers import Dense, bce
from veilrec.models.fedgcn import FedGCN
from veilrec.protocols.fedavg import FedAvg
from veilrec.recipe.catalogue import find

USERS, PLAIN = 60, 4  # features that are no attribute stand before and between the two blocks


class Featured(Recommender):
    """A user is a matrix times what the device knows about its user: z_u = E_U x_u, Eq. (4) of APM."""

    def __init__(self, n_items: int, width: int, layer: str, dim: int = 6) -> None:
        super().__init__()
        self.parts = {"user": Part(Scope.SHARED), "item": Part(Scope.SHARED, rows="item")}
        self.dim, self.layer = dim, layer
        made: dict[str, Any] = {
            "matrix": nn.Parameter(torch.empty(dim, width)),
            "linear": nn.Linear(width, dim, bias=False),
            "dense": Dense(width, dim),
        }
        self.user, self.item = made[layer], nn.Parameter(torch.empty(n_items, dim))

    def represent(self, batch: Batch) -> Tensor:
        return batch.features @ self.user.T if self.layer == "matrix" else self.user(batch.features)

    def loss(self, device: Device) -> Tensor:
        batch = device.batch
        user = self.represent(batch)[batch.user]
        touched = (user * self.item[batch.item]).sum(-1)
        return bce(touched, (user[:, None] * self.item[batch.negative]).sum(-1), batch.weight)

    def scores(self, batch: Batch, items: Tensor | None = None) -> Tensor:
        user = self.represent(batch)
        return user @ self.item.T if items is None else (user[:, None] * self.item[items]).sum(-1)


def described(with_attributes: bool = True) -> Interactions:
    """A world whose devices know four numbers and, as APM prints it, the attributes themselves."""
    data = world(USERS)
    share = [data.counts[:, None] / 60, torch.ones(USERS, 1), torch.zeros(USERS, 2)]
    hot = [F.one_hot(data.attributes[name], size) for name, size in (("gender", 2), ("region", 7))]
    blocks = hot if with_attributes else [torch.zeros_like(block) for block in hot]
    names = [f"number {k}" for k in range(PLAIN)]
    names += [f"{name}={k}" for name, size in (("gender", 2), ("region", 7)) for k in range(size)]
    return replace(data, features=torch.cat([*share, *blocks], 1).float(), feature_names=names)


def seen_of(layer: str, protocol: FedAvg, with_attributes: bool = True) -> Seen:
    people = phones(described(with_attributes))
    fed = federation(people, Featured(60, PLAIN + 9, layer), protocol, lr=0.5, batch=20)
    return see(fed, run(fed, 2))


@pytest.mark.parametrize("layer", ["matrix", "linear", "dense"])
@pytest.mark.parametrize("protocol", [GRADIENTS, WEIGHTS], ids=["gradients", "weights"])
@pytest.mark.parametrize("attribute", ["gender", "region"])
def test_the_class_is_the_only_column_that_moved(layer: str, protocol: FedAvg, attribute: str) -> None:
    seen, attack = seen_of(layer, protocol), ColumnNorms()
    assert attack.answers(seen, task_of(USERS, attribute))
    scores = attack.infer(seen, task_of(USERS, attribute))
    assert share_right(scores, world(USERS).attributes[attribute]) == 1.0
    assert ((scores > 0).sum(1) == 1).all()


def test_features_without_the_attribute_tell_nothing() -> None:
    scores = ColumnNorms().infer(seen_of("matrix", WEIGHTS, False), task_of(USERS))
    assert (scores == 0).all()


def test_it_is_marked_as_an_oracle() -> None:
    attack = find("attacks", "ColumnNorms")
    assert attack is ColumnNorms
    assert attack.oracle
    assert "told" in ColumnNorms().notes(seen_of("matrix", WEIGHTS))


@pytest.mark.parametrize(
    ("attack", "what"),
    [
        (ColumnNorms(part="item"), "a table of items"),
        (ColumnNorms(part="usr"), 'did you mean "user"'),
    ],
)
def test_what_cannot_be_read_is_refused(attack: ColumnNorms, what: str) -> None:
    with pytest.raises(BadInput, match=what):
        attack.infer(seen_of("matrix", WEIGHTS), task_of(USERS))


def test_where_there_is_no_such_matrix_it_does_not_answer() -> None:
    seen = seen_of("matrix", WEIGHTS)
    assert not ColumnNorms(part="adversary").answers(seen, task_of(USERS))
    assert not ColumnNorms(part="item").answers(seen, task_of(USERS))
    assert not ColumnNorms().answers(Seen.of_vectors(torch.zeros(3, 2)), task_of(3))


# Found by name, in the model of the paper


def as_printed(private: bool, dim: int = 6) -> Seen:
    """An undefended federation of FedGCN, with the attributes among the features or without."""
    people = with_features(phones(world(USERS)), private=private)
    model = FedGCN(60, n_features=len(people.log.feature_names), dim=dim, head=(4,))
    fed = federation(people, model, WEIGHTS, lr=0.5, batch=20)
    return see(fed, run(fed, 2))


@pytest.mark.parametrize("dim", [6, 32])  # where E_U is wide, and where it is square or high
@pytest.mark.parametrize("attribute", ["gender", "region"])
def test_the_block_is_found_by_the_name_of_the_attribute(attribute: str, dim: int) -> None:
    seen, task = as_printed(private=True, dim=dim), task_of(USERS, attribute)
    assert seen.public is not None
    assert ColumnNorms().refuses(seen.public, ()) == ""
    assert ColumnNorms().answers(seen, task)
    scores, truth = ColumnNorms().infer(seen, task), world(USERS).attributes[attribute]
    assert float(auc(truth, scores)) == 1.0
    assert share_right(scores, truth) == 1.0


def test_without_private_features_it_does_not_answer_and_says_why() -> None:
    seen = as_printed(private=False)
    assert seen.public is not None
    assert not ColumnNorms().answers(seen, task_of(USERS))
    why = "the features do not hold gender: include_private_features is off"
    assert "hold any attribute" in ColumnNorms().refuses(seen.public, ())
    with pytest.raises(BadInput, match=why):
        ColumnNorms().infer(seen, task_of(USERS))


def test_an_attribute_with_a_longer_name_is_another() -> None:
    seen = as_printed(private=True)
    assert not ColumnNorms().answers(seen, task_of(USERS)._replace(attribute="gend"))
