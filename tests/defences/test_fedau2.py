"""FedAU²: the reversed gradient, its triggers and heads against values by hand, and what it is for."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.contract import Case, Scene, cases, plain_first
from tests.worlds import checkerboard, federation, largest, phones, ragged, run
from veilrec.base.keys import Keys
from veilrec.base.params import Params
from veilrec.defences.common.adversary import Adversary
from veilrec.defences.fedau2 import FedAU2
from veilrec.engine.probe import see, user_vectors
from veilrec.errors import BadInput
from veilrec.model import Device, Recommender, with_classes
from veilrec.models.fedmf import FedMF
from veilrec.models.fedvae import FedVAE
from veilrec.protocols.fedavg import FedAvg
from veilrec.recipe import Recipe
from veilrec.wire.uploads import Exchange

DIM = 3


def scene_of(defence: FedAU2, seed: int = 0) -> Scene:
    clients = phones(ragged((9, 6, 5, 4), 24))
    return Scene.of(defence.attach(with_classes(FedMF(24, dim=DIM), clients)), clients, seed=seed)


def apply(defence: FedAU2, model: Recommender, device: Device) -> Tensor:
    return defence.penalty(model, device)


def slopes_of(scene: Scene, defence: FedAU2) -> Params:
    return scene.slopes(lambda params: scene.mapped(partial(apply, defence), params))


def by_hand(scene: Scene, client: int, label: int) -> tuple[Tensor, Tensor, Params]:
    """A plain head's cross-entropy on one user, its prediction, and the gradient by user and head."""
    own = {n: v[client].clone().requires_grad_() for n, v in scene.params.items()}
    hidden = F.relu(own["user"] @ own["adversary_gender.hidden.weight"] + own["adversary_gender.hidden.bias"])
    logits = hidden @ own["adversary_gender.last.weight"] + own["adversary_gender.last.bias"]
    loss = F.cross_entropy(logits, torch.tensor([label]))
    names = [n for n in own if n.startswith("adversary") or n == "user"]
    slopes = torch.autograd.grad(loss, [own[n] for n in names])
    return loss.detach(), logits.argmax(-1)[0], dict(zip(names, slopes, strict=True))


@pytest.mark.parametrize(
    "options",
    [
        {"trigger": "global", "strength": 2.5},
        {"trigger": "sut", "strength": 2.5},
        {"trigger": "continuous", "tau": 0.7},
        {"trigger": "pretrain", "pretrain": 2, "strength": 2.5},
        {"trigger": "pretrain", "pretrain": 9, "strength": 2.5},
    ],
    ids=str,
)
def test_the_head_learns_and_the_user_unlearns(options: dict[str, Any]) -> None:
    """Eqs. (5) and (6): the gradient by the head is as it is, that by the user is −ε_u times it."""
    defence = FedAU2(head="plain", hidden=4, weight=1.5, attributes=("gender",), each="step", **options)
    kinds, penalty = set(), partial(apply, defence)
    for seed in range(3):
        scene = scene_of(defence, seed)
        labels = scene.device.batch.attributes["gender"][:, 0].tolist()
        losses, slopes = scene.mapped(penalty), slopes_of(scene, defence)
        for client, label in enumerate(labels):
            loss, guess, wanted = by_hand(scene, client, label)
            norm = wanted["user"].norm()
            strength = {
                "global": 2.5,
                "sut": 2.5 * (int(guess) == label),
                "continuous": 0.7 / float(norm),
                "pretrain": 2.5 * (defence.pretrain <= 3),
            }[defence.trigger]
            kinds.add(strength > 0)
            assert abs(float(losses[client] - 1.5 * loss)) < 1e-9
            for name, slope in wanted.items():
                factor = -strength if name == "user" else 1.0
                assert largest(slopes[name][client], 1.5 * factor * slope) < 1e-9
    if defence.trigger == "sut":
        assert kinds == {True, False}  # the draw holds both users it is right about and others


def test_the_continuous_trigger_gives_everybody_a_step_of_one_length() -> None:
    defence = FedAU2(trigger="continuous", tau=0.3, hidden=4, attributes=("gender",), each="step")
    scene = scene_of(defence)
    slopes = slopes_of(scene, defence)
    assert torch.allclose(slopes["user"].flatten(1).norm(dim=1), torch.tensor(0.3, dtype=torch.float64))


def test_once_a_round_or_in_each_step() -> None:
    assert [FedAU2().penalty_is, FedAU2(each="step").penalty_is] == ["round", "step"]


def test_a_pretrained_adversary_pushes_from_the_round_after() -> None:
    """`pretrain` rounds, counted from 0, in which the adversary learns alone."""
    defence = FedAU2(trigger="pretrain", pretrain=2, hidden=4, attributes=("gender",), each="step")
    scene = scene_of(defence)
    for number, pushes in ((0, False), (1, False), (2, True), (3, True)):
        device = scene.device._replace(round=torch.tensor(number))
        slopes = slopes_of(Scene(scene.model, scene.params, device, scene.axes), defence)
        assert bool(slopes["user"].abs().max()) == pushes
        assert float(slopes["adversary_gender.hidden.weight"].abs().max()) > 0


def test_who_has_no_label_unlearns_nothing() -> None:
    defence = FedAU2(trigger="global", hidden=4, attributes=("gender",), each="step")
    scene = scene_of(defence)
    none = {name: torch.full_like(label, -1) for name, label in scene.device.batch.attributes.items()}
    device = scene.device._replace(batch=scene.device.batch._replace(attributes=none))
    blind = Scene(scene.model, scene.params, device, scene.axes)
    slopes = slopes_of(blind, defence)
    assert all(float(slope.abs().max()) == 0 for slope in slopes.values())


def weights_of(head: Adversary, keys: Keys) -> None:
    for name, weight in head.named_parameters():
        owner, _, last = name.rpartition(".")
        weight.data = head.get_submodule(owner).initial(last, keys.fold(name)).to(weight)  # type: ignore[operator]


@pytest.mark.parametrize(("kind", "variance"), [("plain", 2.0), ("vae", 2.0), ("dsvae", 2.0), ("dsvae", 0.5)])
def test_a_logit_has_the_mean_and_the_spread_of_equation_10(kind: Any, variance: float) -> None:
    head = Adversary(6, 2, 5, kind, variance)
    weights_of(head, Keys.seed(1))
    x, n = Keys.seed(2).normal(1, 6), 40_000
    head.requires_grad_(False)
    given = F.relu(x @ head.hidden.weight + head.hidden.bias) @ head.last.weight
    if kind == "plain":
        assert largest(head(x), given + head.last.bias) < 1e-6
        return
    mean, sigma = given[0, :2], given[0, 2:].exp()
    drawn = torch.func.vmap(lambda k: head(x, Keys(k))[0])(Keys.seed(3).fold(torch.arange(n)).value)
    spread = (sigma.square() + (variance if kind == "dsvae" else 0.0) * mean.square()).sqrt()
    assert float(((drawn.mean(0) - mean).abs() / spread).max()) < 4 / math.sqrt(n) * 1.5
    assert torch.allclose(drawn.std(0), spread, rtol=0.02)
    assert head.last.bias is None


def test_the_sign_of_a_row_is_that_of_its_draw() -> None:
    """∂CE/∂μ_i = (p_i − y_i) ε₁ᵢ: with variance λ a true label's row is turned in Φ(−1/√λ) of the draws."""
    head = Adversary(4, 2, 8, "dsvae", 2.0)
    weights_of(head, Keys.seed(5))
    x = Keys.seed(6).normal(1, 4)

    def row(value: Tensor) -> Tensor:
        def loss(last: Tensor) -> Tensor:
            params = {**dict(head.named_parameters()), "last.weight": last}
            logits = torch.func.functional_call(head, params, (x, Keys(value)))
            return F.cross_entropy(logits, torch.tensor([1]))

        return torch.func.grad(loss)(head.last.weight)[:, 1].sum()  # type: ignore[no-any-return]

    sums = torch.func.vmap(row)(Keys.seed(7).fold(torch.arange(4000)).value)
    told_rightly = float((sums < 0).float().mean())
    wanted = 0.5 * (1 + math.erf(1 / math.sqrt(2) / math.sqrt(2)))  # Φ(1/√2) = 0.76
    assert abs(told_rightly - wanted) < 0.03


def test_what_was_learned_is_unlearned() -> None:
    """Users whose vectors tell their kind, and nothing to learn but to hide it: a line no longer finds it."""
    kinds = torch.arange(200) % 2
    start = 0.3 * Keys.seed(1).normal(200, DIM, dtype=torch.float64)
    start[:, 0] += 2 * kinds - 1
    head = Adversary(DIM, 2, 8, "dsvae", 2.0).double()
    weights_of(head, Keys.seed(2))
    defence = FedAU2(strength=1.0, attributes=("gender",))
    vectors = start.clone().requires_grad_()
    adam = torch.optim.Adam(
        [{"params": [vectors], "lr": 0.02}, {"params": list(head.parameters()), "lr": 0.02}]
    )
    for step in range(300):
        keys = Keys.seed(3).fold(step)
        strength = defence._strength(head, vectors.detach(), kinds, keys, torch.tensor(0))[:, None]
        turned = vectors.detach() - strength * (vectors - vectors.detach())
        adam.zero_grad()
        F.cross_entropy(head(turned, keys), kinds).mul(200).backward()
        adam.step()
    assert told_apart(start, kinds) > 0.95
    assert told_apart(vectors.detach(), kinds) < 0.75


@pytest.mark.slow  # above, vectors alone unlearn
def test_a_federation_unlearns() -> None:
    """The same training with and without: without, a line through the user vectors finds the attribute."""
    found = {}
    for name, defence in (("plain", None), ("unlearned", FedAU2(strength=3.0, attributes=("gender",)))):
        protocol = FedAvg(sends="gradients", server="adam", server_lr=0.02)
        world, plan = checkerboard(), {"optimiser": "adam", "lr": 0.02, "batch": 100, "negatives": 2}
        fed = federation(phones(world), FedMF(24, dim=DIM), protocol, defence, **plan)
        vectors = user_vectors(fed, run(fed, 150)).double()
        found[name] = told_apart(vectors, world.attributes["gender"])
    assert found["plain"] == 1.0
    assert found["unlearned"] < 0.9


WITH_USERS = [case for case in cases("models") if case.name != "Popularity"]  # which knows of no user


@pytest.mark.parametrize(
    ("case", "sends"),
    [*plain_first(WITH_USERS, ["weights"]), *plain_first(WITH_USERS, ["gradients"])],
)
def test_every_model_can_unlearn(case: Case, sends: Any) -> None:
    """One file for all: the adversary learns from whatever stands for a user, and moves it."""
    defence, plan = FedAU2(hidden=4, attributes=("gender",)), {"batch": 7, "lr": 0.05, "epochs": 2}
    model, protocol = case.build(24, 1), FedAvg(sends=sends, server="adam", server_lr=0.01)
    if model.personal and sends == "gradients":
        pytest.skip("its devices step what is shared, and send no gradient")
    fed = federation(phones(checkerboard()), model, protocol, defence, **plan)
    seen: list[Exchange] = []
    state = run(fed, 2, watch=[seen.append])
    name = "adversary_gender.hidden.weight"
    assert not torch.equal(fed.start().server[name], state.server[name])
    assert all(name in exchange.received.values for exchange in seen)
    calm = federation(phones(checkerboard()), model, protocol, replace(defence, strength=0.0), **plan)
    vectors = [user_vectors(one, run(one, 2)) for one in (fed, calm)]
    assert largest(*vectors) > 1e-7


def told_apart(vectors: Tensor, kinds: Tensor) -> float:
    """How many users lie on the right side of the line that fits all of them best, as a share."""
    design = torch.cat([vectors, torch.ones(len(vectors), 1, dtype=vectors.dtype)], 1)
    line = torch.linalg.lstsq(design, 2.0 * kinds.double() - 1).solution
    return float(((design @ line > 0) == (kinds == 1)).double().mean())


@pytest.mark.parametrize(
    ("options", "where"),
    [
        ({"strength": -1.0}, "strength"),
        ({"variance": math.inf}, "variance"),
        ({"hidden": 0}, "hidden"),
        ({"pretrain": 5}, "pretrain"),
        ({"trigger": "pretrain"}, "pretrain"),
        ({"tau": -0.1}, "tau"),
    ],
)
def test_settings_that_mean_nothing_are_refused(options: dict[str, Any], where: str) -> None:
    with pytest.raises(BadInput, match=where):
        FedAU2(**options)


def test_an_attribute_that_is_not_there_is_named() -> None:
    with pytest.raises(BadInput, match="gander"):
        federation(phones(checkerboard()), FedMF(24, dim=3), defence=FedAU2(attributes=("gander",)))


RECIPE = """
[data]
name = "synthetic"
users = 40
items = 30
[model]
name = "FedMF"
dim = 4
[[defence]]
name = "fedau2"
attributes = ["gender"]
[protocol]
name = "FedAvg"
sends = "gradients"
server = "adam"
server_lr = { default = 0.01, adversary_gender = 0.02 }
[plan]
rounds = 2
"""


def test_a_recipe_may_give_the_adversary_a_rate_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(RECIPE)
    fed = Recipe.load(path).experiment().federation()
    assert "adversary_gender" in fed.model.parts
    path.write_text(RECIPE.replace("adversary_gender = 0.02", "adversary_age = 0.02"))
    with pytest.raises(BadInput, match="adversary_age"):
        Recipe.load(path)


def sent(batch: int, each: Any) -> Params:
    """The gradients that a device of ten events sends of its adversary, in steps of so many events."""
    log = ragged((10, 10, 10), 24)
    defence = FedAU2(head="plain", hidden=4, trigger="global", attributes=("gender",), each=each)
    protocol = FedAvg(sends="gradients", server="adam", server_lr=0.01)
    plan = {"batch": batch, "negatives": 1, "precision": "float64", "lr": 0.0}
    fed = federation(phones(log), FedMF(24, dim=DIM), protocol, defence, **plan)
    (exchange,) = see(fed, fed.start()).probe()
    values = exchange.received.values
    return {n: v for n, v in values.items() if n.startswith("adversary") and isinstance(v, Tensor)}


def test_the_adversary_is_sent_the_whole_gradient_however_many_steps_there_are() -> None:
    for each in ("round", "step"):
        one, several = sent(64, each), sent(4, each)
        assert all(largest(one[name], several[name]) < 1e-12 for name in one)
        assert float(one["adversary_gender.hidden.bias"].abs().max()) > 1e-6


def unlearned(batch: int, each: Any, epochs: int = 1) -> Params:
    """What unlearning adds to the gradients of a FedVAE whose device has ten events, in steps of so many."""
    found = []
    for strength in (0.0, 50.0):
        defence = FedAU2(
            head="plain", hidden=4, trigger="global", attributes=("gender",), each=each, strength=strength
        )
        protocol = FedAvg(sends="gradients", server="adam", server_lr=0.01)
        plan = {"batch": batch, "precision": "float64", "lr": 0.0, "epochs": epochs}
        model = FedVAE(24, hidden=6, dim=DIM, dropout=0.0)
        fed = federation(phones(ragged((10, 10, 10), 24)), model, protocol, defence, **plan)
        (exchange,) = see(fed, fed.start()).probe()
        found.append(exchange.received.values)
    return {n: b - found[0][n] for n, b in found[1].items() if isinstance(b, Tensor)}  # type: ignore[operator]


def test_unlearning_weighs_the_same_however_many_steps_there_are() -> None:
    """A step's share is for examples; of what unlearning asks of shared weights nothing is lost by steps."""
    for each in ("round", "step"):
        one, several = unlearned(64, each), unlearned(2, each)
        assert float(one["encoder.weight"].abs().max()) > 1e-3
        assert largest(one["encoder.weight"], several["encoder.weight"]) < 1e-9
        assert float(one["adversary_gender.hidden.bias"].abs().max()) < 1e-12
    assert (
        largest(unlearned(64, "round")["encoder.weight"], unlearned(3, "round", 2)["encoder.weight"]) < 1e-9
    )


def test_the_first_layer_tells_the_vector() -> None:
    """Why the docstring warns: ∇W[:, k] / ∇b[k] is the user's vector, noise in the last layer or not."""
    defence = FedAU2(hidden=8, attributes=("gender",))
    protocol = FedAvg(sends="gradients", server="adam", server_lr=0.01)
    fed = federation(phones(checkerboard()), FedMF(24, dim=DIM), protocol, defence, precision="float64")
    state = fed.start()
    (exchange,) = see(fed, state).probe()
    weight, bias = (exchange.received.values[f"adversary_gender.hidden.{n}"] for n in ("weight", "bias"))
    assert isinstance(weight, Tensor)
    assert isinstance(bias, Tensor)
    best = bias.abs().argmax(1)
    found = weight[torch.arange(len(best)), :, best] / bias[torch.arange(len(best)), best][:, None]
    seats = fed.clients.seats[exchange.received.cohort][:, 0]
    assert torch.allclose(found, user_vectors(fed, state)[seats], atol=1e-9)
