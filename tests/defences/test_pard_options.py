"""PARD as its public code has it: estimators with several passes and dropout."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.contract import Scene
from tests.defences.test_pard import CLASSES, DIM, ITEMS, helper_losses, penalties, scene_of, world
from tests.node.test_device import uploads_agree
from tests.worlds import digest, federation, held, largest, run, silos, uploads_of
from veilrec.base.keys import Keys
from veilrec.base.params import Params
from veilrec.base.plan import Plan
from veilrec.base.steps import Stepper
from veilrec.clients import Clients
from veilrec.defence import Defence, chain
from veilrec.defences.common.estimators import dropped
from veilrec.defences.pard import PARD
from veilrec.engine.helper_steps import help_along
from veilrec.engine.local import LocalTask, Situation
from veilrec.errors import BadInput
from veilrec.models.fedlightgcn import FedLightGCN
from veilrec.protocols.fedavg import FedAvg
from veilrec.rounds import Federation
from veilrec.wire.uploads import Letter

OPTIONS: list[Any] = [
    pytest.param({"reference": True}, marks=pytest.mark.slow),  # the next one has it as well
    {"reference": True, "warm_up": 1, "fp": "both"},
]


def fed_of(defence: Defence, clients: Clients | None = None, **plan: Any) -> Federation:
    clients = clients or world()
    settings = {"lr": 0.5, "batch": 4, "precision": "float64", "rounds": 9, **plan}
    model = FedLightGCN(ITEMS, clients.n_seats, dim=DIM)
    return federation(clients, model, None, defence, **settings)


# Passes


def by_hand(defence: PARD, scene: Scene, passes: int) -> tuple[Params, list[float]]:
    """Estimators after some passes, one client and one pass after the other; and the norms of gradients."""
    names = [name for name in scene.params if name.startswith("estimators")]
    weights, velocity, norms = dict(scene.params), {n: torch.zeros(()) for n in names}, []
    for k in range(passes):
        keys = scene.device.keys if k == 0 else scene.device.keys.fold("pass").fold(k)
        moment = replace(scene, device=scene.device._replace(keys=keys), params=weights)
        slopes = moment.slopes(lambda params, m=moment: helper_losses(defence, m, params))  # type: ignore[misc]
        total = torch.zeros(len(keys.value), dtype=torch.float64)
        for name in names:
            total += slopes[name].flatten(1).square().sum(1)
        norms += total.sqrt().tolist()
        for name in names:
            factor = (5 / total.sqrt()).clamp(max=1).reshape(-1, *[1] * (slopes[name].dim() - 1))
            velocity[name] = 0.9 * velocity[name] + factor * slopes[name]
            weights = {**weights, name: weights[name] - 0.1 * velocity[name]}
    return weights, norms


@pytest.mark.parametrize(("reference", "passes"), [(False, 1), (True, 3)])
def test_passes_are_successive_steps(reference: bool, passes: int) -> None:
    """Of the devices that are still at work: one more, behind them, has no step left and stands still."""
    defence = PARD(reference=reference, public_share=0.5)
    scene = scene_of(defence)
    scene = replace(scene, params={n: 1.3 * w if "estimators" in n else w for n, w in scene.params.items()})
    params = {n: torch.cat([w, w[:1]]) for n, w in scene.params.items()}
    read = {n: w[:-1].detach() for n, w in params.items()}
    task = LocalTask(scene.model, FedAvg(), defence, Plan(batch=4))
    state = Stepper("sgd", 0.1, 0.9).fresh({n: params[n] for n in task.helpers})
    sent = Letter(scene.device.sent, {})
    help_along(task, read, params, state, scene.device, Situation(sent, scene.device.keys))
    expected, norms = by_hand(defence, scene, passes)
    assert min(norms) < 5 < max(norms)  # some are cut, and some are not
    for name, weight in params.items():
        assert largest(weight[:-1], expected[name]) < 1e-12
        assert torch.equal(read[name], weight[:-1])  # what the penalty will read
        assert torch.equal(weight[-1], scene.params[name][0])
    assert largest(params["estimators.ir.0.weight"][:-1], scene.params["estimators.ir.0.weight"]) > 1e-3


def test_estimators_may_rest_through_the_warm_up() -> None:
    """A plain pre-training, and then everything at once; without, they learn from the first round on."""
    fed = fed_of(PARD(warm_up=2, reference=True))
    start, name = held(fed, fed.start()), "estimators.ir.0.weight"
    assert torch.equal(held(fed, run(fed, 2))[name], start[name])
    assert largest(held(fed, run(fed, 3))[name], start[name]) > 1e-3
    at_once = fed_of(PARD(warm_up=2, join="add"))
    assert largest(held(at_once, run(at_once, 2))[name], start[name]) > 1e-3
    vectors = [held(one, run(one, 2))["user_re"] for one in (fed, at_once)]
    assert torch.equal(*vectors)  # in the warm-up nobody is trained against them


def test_other_passes_are_another_pace() -> None:
    """A chain has one stepper, which knows one number of passes."""
    with pytest.raises(BadInput, match="each at another pace"):
        chain(PARD(), PARD(reference=True))
    assert chain(PARD(reference=True), Defence()).helpers == PARD(reference=True).helpers


# Dropout


def test_what_is_dropped_is_nothing_and_the_rest_is_scaled() -> None:
    hidden = torch.ones(2, 500, 40, dtype=torch.float64)
    found = dropped(hidden, Keys.seed(0), 0.2)
    assert set(found.unique().tolist()) == {0.0, 1.25}
    error = math.sqrt(0.2 * 0.8 / hidden.numel())
    assert abs(float((found == 0).double().mean()) - 0.2) < 4 * error
    assert not torch.equal(found[0], found[1])  # each attribute has an estimator of its own
    assert torch.equal(dropped(hidden[:, :9], Keys.seed(0), 0.2), found[:, :9])
    keys = Keys.seed(0).fold(torch.arange(3))
    together = dropped(hidden.expand(3, -1, -1, -1), keys, 0.2)
    assert all(torch.equal(together[k], dropped(hidden, Keys(keys.value[k]), 0.2)) for k in range(3))


def surprise(weights: Params, part: str, t: int, x: Tensor, kept: Tensor, label: int) -> Tensor:
    """Minus the logarithm of the chance of the true class, less some of the last hidden layer."""
    for layer in range(3):
        if layer:
            x = torch.where(x > 0, x, 0.2 * x)
        if layer == 2:
            x = torch.where(kept, 2 * x, 0.0)
        x = (
            weights[f"estimators.{part}.{layer}.weight"][t].T @ x
            + weights[f"estimators.{part}.{layer}.bias"][t]
        )
    return -x[: list(CLASSES.values())[t]].log_softmax(0)[label]


def learning(scene: Scene, k: int) -> Tensor:
    """Eqs. (21) and (30) of one device: D_pub as drawn, for ir the own row last; half is dropped."""
    weights, batch = {n: w[k] for n, w in scene.params.items()}, scene.device.batch
    keys, public, total = Keys(scene.device.keys.value[k]), scene.device.public, torch.zeros(())
    order = keys.fold("public").order(6).tolist()
    history = [i for i in batch.history[k, 0].tolist() if i >= 0]
    mean = torch.stack([weights["item"][i] for i in history]).mean(0)
    ir = [torch.cat([public["pard.user"][j], public["pard.items"][j]]) for j in order]
    fp = [public["pard.user_re"][j] for j in order]
    rows = {"ir": [*ir, torch.cat([weights["user"][0], mean])], "fp": fp}
    for t, name in enumerate(CLASSES):
        labels = [int(public[f"pard.label.{name}"][j]) for j in order] + [int(batch.attributes[name][k, 0])]
        for part, width in (("ir", DIM), ("fp", DIM // 2)):
            drawn = keys.fold("dropout").fold(part).uniform(len(rows[part]), 2, width)
            kept = drawn >= 0.5  # [rows, attributes, h]
            each = [
                surprise(weights, part, t, x, kept[row, t], label)
                for row, (x, label) in enumerate(zip(rows[part], labels[: len(rows[part])], strict=True))
                if label >= 0
            ]
            total = total + torch.stack(each).mean()
    return total


def test_estimators_learn_less_a_share_of_their_last_hidden_layer() -> None:
    defence = PARD(public_share=1.0, reference=True)
    scene = scene_of(defence)
    no_ip = {n: w * 0 if n == "estimators.ip.weight" else w for n, w in scene.params.items()}
    for k, loss in enumerate(helper_losses(defence, scene, no_ip)):
        known = sum(int(scene.device.batch.attributes[name][k, 0]) >= 0 for name in CLASSES)
        far = known * float(scene.params["user_re"][k].square().mean())  # Eq. (34), values that stand for 0
        assert float(loss) == pytest.approx(float(learning(scene, k)) + far, abs=1e-9)


def test_vectors_are_trained_against_whole_estimators() -> None:
    scene = scene_of(PARD())
    plain, dropping = PARD(reads="positives", lambda_re=0.0), PARD(reference=True, lambda_re=0.0)
    assert torch.equal(penalties(plain, scene), penalties(dropping, scene))


# All of it


@pytest.mark.parametrize("place", ["phones", pytest.param("silos", marks=pytest.mark.slow)])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_one_device_after_the_other(options: dict[str, Any], place: str) -> None:
    """Four to seven events in batches of four: some devices have a step less, and shorter histories."""
    clients = world() if place == "phones" else silos(world().log, 3, 0.5)
    feds = [fed_of(PARD(**options), clients, chunk=chunk, epochs=2) for chunk in (1, 3, 100)]
    (first, _), *others = (uploads_of(fed, 3) for fed in feds)
    for state, _ in others:
        assert all(largest(value, state.server[n]) < 1e-9 for n, value in first.server.items())
        ours, theirs = (held(feds[0], some) for some in (first, state))
        assert all(largest(ours[name], theirs[name]) < 1e-9 for name in ours)


def test_same_seed_same_bits() -> None:
    defence = PARD(**OPTIONS[-1])
    states = [run(fed_of(defence, workers=n, chunk=3, precision="float32"), 3) for n in (1, 2)]
    assert digest(states[0]) == digest(states[1])


@pytest.mark.slow
def test_a_device_alone_uploads_the_same(tmp_path: Path) -> None:
    sets = ["model.name='FedLightGCN'", "model.dim=8", "plan.precision='float64'"]
    uploads_agree([*sets, "defence=[{name = 'pard', head = [8], reference = true}]"], tmp_path, "--seeded")
