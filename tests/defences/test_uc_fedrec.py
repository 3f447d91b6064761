"""UC-FedRec: its losses by hand, who trains what, what leaves a device, and whom it protects."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.worlds import checkerboard, digest, federation, held, largest, phones, run, silos, uploads_of
from veilrec.base.keys import Keys
from veilrec.base.params import Params, Scope, part_of
from veilrec.base.plan import Plan
from veilrec.clients import Clients
from veilrec.defences.none import Undefended
from veilrec.defences.uc_fedrec import UCFedRec
from veilrec.errors import BadInput
from veilrec.experiment import Experiment
from veilrec.interactions import Interactions
from veilrec.model import Device, bind, mapped, with_classes
from veilrec.models.fedlightgcn import FedLightGCN
from veilrec.models.fedmf import FedMF
from veilrec.protocols.fedavg import FedAvg
from veilrec.rounds import Federation

Consent = float | Mapping[str, float]


def log() -> Interactions:
    """The checkerboard with a second attribute, which a third of the people have not told their device."""
    board = checkerboard()
    age = {"age": torch.arange(24) % 3 - 1}
    return replace(
        board, attributes={**board.attributes, **age}, classes={**board.classes, "age": ["a", "b"]}
    )


def clients(consent: Consent = 0.5) -> Clients:
    return Clients.phones(log().leave_one_out(), consent=consent)


def fed_of(defence: UCFedRec | None = None, consent: Consent = 0.5, **rest: Any) -> Federation:
    protocol = rest.pop("protocol", None)
    model = rest.pop("model", None) or FedMF(24, dim=4, user="exposed")
    settings = {"lr": 0.5, "batch": 100, "chunk": 7, **rest}
    return federation(clients(consent), model, protocol, defence or UCFedRec(hidden=(5,)), **settings)


WEIGHTS = {
    "user": torch.tensor([[1.0, 2.0]]),
    "discriminator_gender.0.weight": torch.tensor([[1.0, 0.0], [0.0, 1.0]]),
    "discriminator_gender.0.bias": torch.tensor([0.0, -1.0]),  # logits (1, 1)
    "discriminator_age.0.weight": torch.tensor([[1.0, 0.0], [0.0, 0.0]]),
    "discriminator_age.0.bias": torch.tensor([0.0, 0.0]),  # logits (1, 0)
}


def both(label: dict[str, int], shares: dict[str, bool], strength: float = 3.0) -> tuple[float, float]:
    """Helper loss and penalty of one device with the weights above."""
    world, defence = clients(), UCFedRec(strength=strength, hidden=())
    model = defence.attach(with_classes(FedMF(24, dim=2), world))
    batch = world.batch(torch.tensor([0]), history=0, rows=torch.arange(24), dtype=torch.float32)
    batch = batch._replace(
        attributes={name: torch.tensor([value]) for name, value in label.items()},
        consents={name: torch.tensor([value]) for name, value in shares.items()},
    )
    device = Device(batch, {}, {}, Keys.seed(0), torch.tensor(0), torch.tensor(0))
    weights = {**WEIGHTS, "item": torch.zeros(24, 2)}
    found = [bind(model, weights, function, device) for function in (defence.helper_loss, defence.penalty)]
    return found[0].item(), found[1].item()


P = 1 / (1 + math.exp(-1))  # what the discriminator of age makes of the first class
KL = math.log(2) + P * math.log(P) + (1 - P) * math.log(1 - P)


@pytest.mark.parametrize(
    ("shares", "helper", "penalty"),
    [
        ((True, True), math.log(2) - math.log(1 - P), 0.0),
        ((True, False), math.log(2), 3 * KL),  # the guess of gender is uniform already
        ((False, True), -math.log(1 - P), 0.0),
        ((False, False), 0.0, 3 * KL),
    ],
)
def test_losses_by_hand(shares: tuple[bool, bool], helper: float, penalty: float) -> None:
    """Consent is asked for each attribute: who shares one trains for it, who keeps one is protected there."""
    found = both({"gender": 0, "age": 1}, dict(zip(("gender", "age"), shares, strict=True)))
    assert found == pytest.approx((helper, penalty), abs=1e-6)


def test_a_label_is_read_only_where_it_is_shared_and_known() -> None:
    keeps = {"gender": False, "age": False}
    assert both({"gender": 0, "age": 0}, keeps) == both({"gender": 1, "age": -1}, keeps)
    assert both({"gender": 0, "age": -1}, {"gender": True, "age": True})[0] == pytest.approx(math.log(2))


def test_discriminators_are_shared_and_nothing_is_posted() -> None:
    fed = fed_of()
    parts = {n: p for n, p in fed.model.parts.items() if n.startswith("discriminator_")}
    assert list(parts) == ["discriminator_gender", "discriminator_age"]
    assert all(part.scope is Scope.SHARED and part.helper for part in parts.values())
    assert run(fed, 2).posts.values == {}
    assert set(fed.protocol.schema(fed.model)) == set(fed.model.names())
    alone = fed_of(UCFedRec(attributes=("age",)))
    assert "discriminator_gender" not in alone.model.parts


def sent_of(fed: Federation, state: Any, seen: Any) -> dict[str, Tensor]:
    """``[clients, …]`` what everybody uploaded of the discriminators, in the order of the clients."""
    names = [n for n in fed.model.names() if n.startswith("discriminator_")]
    return {n: torch.stack([seen[k][0].received.values[n][seen[k][1]] for k in range(24)]) for n in names}


@pytest.mark.parametrize("weigh", ["clients", "touched", "examples"])
def test_a_discriminator_is_averaged_over_those_who_share_the_attribute(weigh: Any) -> None:
    consent = {"gender": 0.7, "age": 0.4}
    fed = fed_of(consent=consent, protocol=FedAvg(weigh=weigh), precision="float64")
    begun = fed.start()
    state, seen = uploads_of(fed)
    for name, values in sent_of(fed, state, seen).items():
        attribute = part_of(name).removeprefix("discriminator_")
        willing = fed.clients.consents[attribute][:, 0] & (fed.clients.log.attributes[attribute] >= 0)
        assert 0 < int(willing.sum()) < 24
        moved = (values != begun.server[name]).flatten(1).any(1)
        assert torch.equal(moved, willing)  # of the others nothing has left but what had come
        assert largest(state.server[name], values[willing].mean(0)) < 1e-12


def test_where_nobody_shares_an_attribute_its_discriminator_stays() -> None:
    fed = fed_of(consent={"gender": 1.0, "age": 0.0})
    before, after = fed.start().server, run(fed, 3).server
    for name in after:
        assert torch.equal(before[name], after[name]) == name.startswith("discriminator_age")


def test_who_shares_everything_is_left_alone() -> None:
    plain = federation(clients(1.0), FedMF(24, dim=4, user="exposed"), lr=0.5, batch=100, chunk=7)
    fed = fed_of(consent=1.0)
    assert largest(held(fed, run(fed, 2))["user"], held(plain, run(plain, 2))["user"]) < 1e-6


def test_without_strength_it_changes_no_recommendation() -> None:
    state = run(fed_of(UCFedRec(strength=0.0)), 2)
    plain = run(federation(clients(), FedMF(24, dim=4, user="exposed"), lr=0.5, batch=100, chunk=7), 2)
    assert largest(state.server["item"], plain.server["item"]) < 1e-6


def guesses(fed: Federation, server: Params, user: Tensor) -> Tensor:
    """``[clients]`` how sure the discriminator is of each person's gender: KL to uniform."""
    hidden = user @ server["discriminator_gender.0.weight"] + server["discriminator_gender.0.bias"]
    hidden = torch.nn.functional.leaky_relu(hidden, 0.2)
    logits = hidden @ server["discriminator_gender.1.weight"] + server["discriminator_gender.1.bias"]
    log = logits.log_softmax(-1)
    return (log.exp() * log).sum(-1) + math.log(2)


@pytest.mark.slow
def test_it_hides_those_who_want_it_and_nobody_else() -> None:
    """Half of the people share; on the checkerboard a vector tells the gender."""
    sure = {}
    for strength in (0.0, 1.0):
        defence = UCFedRec(strength=strength, hidden=(8,), lr=0.5, attributes=("gender",))
        fed = fed_of(defence, lr=1.0, negatives=2)
        state = run(fed, 60)
        sure[strength] = guesses(fed, state.server, held(fed, state)["user"][:, 0])
    keeps = ~fed.clients.consents["gender"][:, 0]
    assert 4 < int(keeps.sum()) < 20
    assert float(sure[0.0].mean()) > 0.2  # of at most log 2: there is something to hide
    assert float(sure[1.0][keeps].mean()) < 0.3 * float(sure[0.0][keeps].mean())
    assert float(sure[1.0][~keeps].mean()) > float(sure[1.0][keeps].mean())


@pytest.mark.parametrize("model", [FedMF, FedLightGCN])
def test_silos_and_models_that_mix_items_in(model: Any) -> None:
    world = silos(log(), 5, 0.5)
    fed = federation(world, model(24, world.n_seats, dim=4), None, UCFedRec(hidden=(5,)), lr=0.5, batch=16)
    state = run(fed, 2)
    assert all(value.isfinite().all() for value in state.server.values())
    assert digest(state) == digest(run(fed, 2))


def test_a_run_says_what_leaves(tmp_path: Path) -> None:
    plan = Plan(rounds=2, evaluate_every=1, workers=1, lr=0.5)
    result = Experiment(log(), FedMF, defence=UCFedRec(hidden=(5,)), plan=plan, consent=0.5).run()
    bare = Experiment(log(), FedMF, defence=Undefended(), plan=plan, consent=0.5).run()
    told_of = {one["name"] for one in result.discloses} - {one["name"] for one in bare.discloses}
    assert {part_of(name) for name in told_of} == {"discriminator_gender", "discriminator_age"}
    assert result.traffic["by_kind"] != bare.traffic["by_kind"]


@pytest.mark.parametrize("consent", [0.0, 0.001, {"gender": 0.5}])
def test_an_experiment_in_which_nobody_shares_what_it_protects_is_refused(consent: Consent) -> None:
    """Its discriminators would learn nothing. A real device, which knows no other, asks for nothing."""
    with pytest.raises(
        BadInput, match=r"^data\.consent: nobody shares (gender|age), which the defence learns"
    ):
        Experiment(log(), FedMF, defence=UCFedRec(), consent=consent).federation()
    fed_of(consent=consent)


def test_what_it_cannot_do() -> None:
    with pytest.raises(BadInput, match=r'^defence\.attributes: the data has no attribute "gendre"; did you'):
        fed_of(UCFedRec(attributes=("gendre",)))
    nobody = replace(checkerboard(), attributes={}, classes={})
    with pytest.raises(BadInput, match="no attribute to guard"):
        federation(phones(nobody), FedMF(24, dim=4), None, UCFedRec())
    with pytest.raises(BadInput, match=r"^protocol\.sends"):
        fed_of(protocol=FedAvg(sends="gradients", server="sgd"))


@pytest.mark.parametrize("options", [{"strength": -1.0}, {"lr": 0.0}, {"hidden": (4, 0)}])
def test_settings_that_mean_nothing(options: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=rf"^defence\.{next(iter(options))}"):
        UCFedRec(**options)


def test_an_empty_seat_of_a_silo_is_nobody() -> None:
    """Whatever lies there, the silo's penalty is that of its users, and no slope leads there."""
    world, defence = silos(log(), 5, 0.5), UCFedRec(hidden=(5,))
    model = defence.attach(with_classes(FedMF(24, world.n_seats, dim=4), world))
    empty = world.seats < 0
    assert 0 < int(empty.sum()) < len(world)
    cohort = torch.arange(len(world))
    batch = world.batch(cohort, history=0, rows=torch.arange(24).expand(len(world), -1), dtype=torch.float32)
    device = Device(batch, {}, {}, Keys.seed(0).fold(cohort), torch.tensor(0), torch.tensor(0))
    axes = Device(0, {}, None, 0, None, None)  # type: ignore[arg-type]
    weights = {
        name: Keys.seed(1).fold(name).normal(len(world), *weight.shape)
        for name, weight in model.named_parameters()
    }
    user = weights["user"].requires_grad_()
    penalty = mapped(model, defence.penalty, axes)
    found = penalty(weights, device)
    (slope,) = torch.autograd.grad(found.sum(), [user])
    assert slope[empty].abs().max() == 0 < slope[~empty].abs().max()
    moved = torch.where(empty[..., None], user.detach() + 3, user.detach())
    assert torch.equal(penalty({**weights, "user": moved}, device), found)
