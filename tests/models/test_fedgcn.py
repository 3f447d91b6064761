"""FedGCN and FedLightGCN: the equations against values worked out by hand, and features on their way in."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.contract import Scene
from tests.worlds import federation, largest, phones, ragged, run, silos
from veilrec.base.keys import Keys
from veilrec.base.params import Scope
from veilrec.base.plan import Plan
from veilrec.clients import Batch, Clients
from veilrec.engine.features import with_features
from veilrec.errors import BadInput
from veilrec.experiment import Experiment
from veilrec.interactions import Interactions
from veilrec.model import Recommender, wants_features
from veilrec.models.fedgcn import FedGCN
from veilrec.models.fedlightgcn import FedLightGCN
from veilrec.models.fedmf import FedMF


def batch(history: list[int], features: list[float]) -> Batch:
    none = torch.zeros(0, dtype=torch.int64)
    return Batch(
        rows=torch.arange(3),
        user=none,
        item=none,
        negative=none[:, None],
        weight=none.double(),
        history=torch.tensor([history]),
        features=torch.tensor([features], dtype=torch.float64),
        attributes={},
        consents={},
    )


def filled(model: Recommender, **weights: list[object]) -> Recommender:
    for name, value in weights.items():
        parameter = model.get_parameter(name.replace("__", "."))
        parameter.data = torch.tensor(value, dtype=torch.float64)
    return model


def test_equations_4_to_7_by_hand() -> None:
    """z_u = E_U x, plus W1 times the mean of items 0 and 2, through W2 and a ReLU, then [user, item]."""
    model = filled(
        FedGCN(3, n_features=2, dim=2, head=(2,)),
        user__features=[[1, 0], [0, 2]],
        user__neighbours=[[1, 1], [0, 1]],
        user__joint__weight=[[1, 0], [1, -1]],
        user__joint__bias=[0.5, 1.0],
        item=[[1, 2], [5, 5], [3, 0]],
        mlp1__weight=[[1, 0], [0, 1], [1, 1], [2, -1]],
        mlp1__bias=[0.0, 0.25],
        mlp2__weight=[[1], [2]],
        mlp2__bias=[0.125],
    )
    seen = batch([-1, 0, 2], [3.0, -1.0])
    # E_U x = (3, -2); the mean of items is (2, 1), W1 of it (3, 1); their sum (6, -1);
    # times W2: (6 - 1 + .5, 1 + 1) = (5.5, 2).
    assert model.represent(seen).tolist() == [[5.5, 2.0]]
    # Item 1: (5.5 + 5 + 10, 2 + 5 - 5 + .25) = (20.5, 2.25), all above 0; 20.5 + 4.5 + .125.
    assert model.scores(seen)[0, 1].item() == pytest.approx(25.125)


def test_a_user_without_items_is_features_alone() -> None:
    model = FedGCN(3, n_features=2, dim=4)
    for name in model.names():
        model.get_parameter(name).data = (
            Keys.seed(0).fold(name).normal(*model.get_parameter(name).shape).double()
        )
    empty, some = batch([-1, -1], [1.0, 2.0]), batch([0, 1], [1.0, 2.0])
    assert model.represent(empty).isfinite().all()
    assert not torch.equal(model.represent(empty), model.represent(some))


def test_nothing_belongs_to_a_user_and_components_are_parts() -> None:
    model = FedGCN(9, n_features=3)
    assert not model.names(Scope.EXPOSED, Scope.PRIVATE)
    assert list(model.parts) == ["user", "item", "mlp1", "mlp2"]
    assert model.get_parameter("mlp1.weight").shape == (128, 64)
    assert model.get_parameter("mlp2.weight").shape == (64, 1)


def test_fresh_weights_as_printed_are_standard_normal() -> None:
    model = FedGCN(400, start="normal")
    for name in ("item", "mlp1.weight", "user.joint.weight"):
        fresh = model.initial(name, Keys.seed(3).fold(name))
        assert abs(float(fresh.std()) - 1) < 0.05


def world() -> Clients:
    log = ragged((1, 3, 5, 6, 9, 14), 30)
    rating = 1.0 + torch.arange(len(log)) % 5
    gender = {"gender": torch.arange(log.n_users) % 2}
    return with_features(phones(replace(log, rating=rating, attributes=gender)), private=True)


@pytest.mark.parametrize("head", [(8,), (8, 4)])
def test_the_batched_loss_reads_features_like_the_loss(head: tuple[int, ...]) -> None:
    clients = world()
    assert clients.log.features is not None
    scene = Scene.of(FedGCN(30, 1, n_features=clients.log.features.shape[1], dim=5, head=head), clients)
    assert (
        largest(scene.mapped(lambda m, d: m.loss(d)), scene.model.cohort_loss(scene.params, scene.device))
        < 1e-12
    )
    slow = scene.slopes(lambda params: scene.mapped(lambda m, d: m.loss(d), params))
    fast = scene.slopes(lambda params: scene.model.cohort_loss(params, scene.device))
    assert all(largest(slow[name], fast[name]) < 1e-12 for name in slow)
    assert float(fast["user.features"].abs().sum()) > 0


def test_a_column_of_the_features_moves_only_where_a_user_has_it() -> None:
    """Why private features are read off exactly: the update of E_U is a sum of outer products with x_u."""
    clients = world()
    log = clients.log
    assert log.features is not None
    model = FedGCN(30, n_features=log.features.shape[1], dim=5)
    fed = federation(clients, model, rounds=1, lr=0.5)
    received = []
    state = fed.start()
    run(fed, watch=[received.append])
    column = {name: k for k, name in enumerate(log.feature_names)}
    for exchange in received:
        update = exchange.received.values["user.features"] - state.server["user.features"]
        for place, client in enumerate(exchange.received.cohort.tolist()):
            other = 1 - int(log.attributes["gender"][client])
            name = [n for n in column if n.startswith("gender=")][other]
            assert update[place, :, column[name]].abs().max() == 0


def test_the_experiment_gives_features_to_models_that_read_them(checkerboard: Interactions) -> None:
    assert wants_features(FedGCN)
    assert not wants_features(FedMF)
    plan = Plan(rounds=1)
    for private in (False, True):
        experiment = Experiment(checkerboard, FedGCN, plan=plan, include_private_features=private)
        told = experiment.run().data["features"]
        assert told["include_private_features"] is private
        assert any(name.startswith("gender=") for name in told["names"]) is private
    assert Experiment(checkerboard, FedMF, plan=plan).run().data["features"] is None


def test_lightgcn_is_half_own_vector_and_half_mean_item() -> None:
    model = filled(FedLightGCN(3, dim=2), user=[[2, 4]], item=[[1, 2], [5, 5], [3, 0]])
    seen = batch([0, 2], [])
    assert model.represent(seen).tolist() == [[2.0, 2.5]]
    assert model.scores(seen)[0].tolist() == [7.0, 22.5, 6.0]


def test_lightgcn_in_a_silo_takes_each_users_own_items() -> None:
    log = ragged((3, 5, 6, 9), 30)
    scene = Scene.of(FedLightGCN(30, 2, dim=4), silos(log, 2))
    assert (
        largest(scene.mapped(lambda m, d: m.loss(d)), scene.model.cohort_loss(scene.params, scene.device))
        < 1e-12
    )


def test_lightgcn_with_a_head_reads_the_convolved_user() -> None:
    """PARD's FedGCN: user (2, 2.5), then a layer on [user, item], a ReLU and one output."""
    model = filled(
        FedLightGCN(3, dim=2, head=(2,)),
        user=[[2, 4]],
        item=[[1, 2], [5, 5], [3, 0]],
        mlp1__weight=[[1, 0], [0, 1], [1, 0], [0, -1]],
        mlp1__bias=[0, 1],
        mlp2__weight=[[1], [2]],
        mlp2__bias=[0.5],
    )
    # Item 0: (2 + 1, 2.5 - 2 + 1) = (3, 1.5), 3 + 3 + .5. Item 1: (7, -1.5), of which 7 is left.
    assert model.scores(batch([0, 2], []))[0].tolist() == [6.5, 7.5, 12.5]


def test_the_scopes_of_lightgcn() -> None:
    bare = FedLightGCN(3, dim=2)
    assert list(bare.parts) == ["user", "item"]
    model = FedLightGCN(3, dim=2, head=(4, 2), sharing="private", user="exposed")
    assert list(model.parts) == ["user", "item", "mlp1", "mlp2", "mlp3"]
    assert {model.parts[name].scope for name in ("mlp1", "mlp2", "mlp3")} == {Scope.PRIVATE}
    assert model.parts["user"].scope is Scope.EXPOSED
    assert FedLightGCN(3, head=(4,)).parts["mlp1"].scope is Scope.SHARED
    with pytest.raises(BadInput, match=r"model\.head"):
        FedLightGCN(3, head=(4, 0))
