"""PARD: each loss by hand, which way it pushes, and what each option changes."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.contract import Scene
from tests.worlds import changed, checkerboard, digest, federation, held, largest, log_of, phones, run, silos
from veilrec.base.keys import Keys
from veilrec.base.params import Params, Scope, part_of
from veilrec.clients import Clients
from veilrec.defence import Chain
from veilrec.defences.none import Undefended
from veilrec.defences.pard import PARD
from veilrec.errors import BadInput
from veilrec.model import Device, bind, with_classes
from veilrec.models.fedgcn import FedGCN
from veilrec.models.fedlightgcn import FedLightGCN
from veilrec.models.fedncf import FedNCF
from veilrec.rounds import Federation

USERS, ITEMS, DIM = 8, 14, 4
CLASSES = {"gender": 2, "age": 3}
MODELS: dict[str, Any] = {"FedNCF": FedNCF, "FedLightGCN": FedLightGCN}


OPTIONS: list[dict[str, Any]] = [
    {},
    {"reads": "positives", "ip": "own"},
    {"public_share": 1.0, "warm_up": 9},
    {"reference": True},
]


def world(consent: Any = 0.5) -> Clients:
    """Some users with a few events each; one of them does not tell its device how old it is."""
    events = [(u, (3 * u + k) % ITEMS, k) for u in range(USERS) for k in range(4 + u % 4)]
    labels = {"gender": torch.arange(USERS) % 2, "age": torch.arange(USERS) % 3}
    labels["age"][2] = -1
    classes = {name: [f"{name} {k}" for k in range(count)] for name, count in CLASSES.items()}
    log = log_of(*events, users=USERS, items=ITEMS, attributes=labels, classes=classes)
    return phones(log, consent)


def scene_of(defence: PARD, model: str = "FedNCF", clients: Clients | None = None) -> Scene:
    """Devices in the middle of a round, weights and D_pub random; of D_pub one keeps its age."""
    clients = clients or world()
    attached = defence.attach(with_classes(MODELS[model](ITEMS, clients.n_seats, dim=DIM), clients))
    scene, keys = Scene.of(attached, clients), Keys.seed(5)
    public: Params = {
        name: keys.fold(name).normal(6, DIM, dtype=torch.float64)
        for name in ("pard.user", "pard.user_re", "pard.items")
    }
    public["pard.label.gender"] = torch.tensor([0, 1, 1, 0, 1, 1])
    public["pard.label.age"] = torch.tensor([2, 1, -1, 0, 0, 2])
    return replace(scene, device=scene.device._replace(public=public))


def helper_losses(defence: PARD, scene: Scene, params: Params | None = None) -> Tensor:
    return bind(scene.model, params or scene.params, defence.helper_loss, scene.device)  # type: ignore[no-any-return]


def penalties(defence: PARD, scene: Scene, params: Params | None = None) -> Tensor:
    return bind(scene.model, params or scene.params, defence.penalty, scene.device)  # type: ignore[no-any-return]


class ByHand:
    """One device's losses from the formulas, with a loop for each sum."""

    def __init__(self, scene: Scene, k: int) -> None:
        self.weights = {name: value[k] for name, value in scene.params.items()}
        self.batch, self.k, self.public = scene.device.batch, k, scene.device.public
        self.user, self.user_re = self.weights["user"][0], self.weights["user_re"][0]
        touched = [i for i in self.batch.history[k, 0].tolist() if i >= 0]
        self.items = sum((self.weights["item"][i] for i in touched), torch.zeros(DIM)) / len(touched)

    def label(self, name: str) -> int:
        return int(self.batch.attributes[name][self.k, 0])

    def surprise(self, part: str, x: Tensor, name: str, label: int) -> Tensor:
        """Minus the logarithm of what an estimator gives to the true class."""
        t = list(CLASSES).index(name)
        for layer in range(3):
            if layer:
                x = torch.where(x > 0, x, 0.2 * x)
            weight, bias = (
                self.weights[f"estimators.{part}.{layer}.{kind}"][t] for kind in ("weight", "bias")
            )
            x = torch.stack([(weight[:, j] * x).sum() + bias[j] for j in range(len(bias))])
        chances = x[: CLASSES[name]].exp()
        return -(chances[label] / chances.sum()).log()

    def ir(self, name: str) -> Tensor:
        return self.surprise("ir", torch.cat([self.user, self.items]), name, self.label(name))

    def fp(self, name: str) -> Tensor:
        return self.surprise("fp", self.user_re, name, self.label(name))

    def far(self, vector: Tensor, name: str, label: int) -> Tensor:
        stands_for = self.weights["estimators.ip.weight"][list(CLASSES).index(name), label]
        return (vector - stands_for).square().sum().sqrt()

    def known(self) -> list[str]:
        return [name for name in CLASSES if self.label(name) >= 0]

    def posted(self, name: str) -> list[tuple[Tensor, Tensor, int]]:
        """What D_pub says of an attribute: what is uploaded, what stays, and the label."""
        public, label = self.public, self.public[f"pard.label.{name}"].tolist()
        both = torch.cat([public["pard.user"], public["pard.items"]], 1)
        return [(both[j], public["pard.user_re"][j], v) for j, v in enumerate(label) if v >= 0]

    def condition(self, own_fp: bool) -> Tensor:
        """Eq. (37), over all of D_pub."""
        total = torch.zeros(())
        for name in CLASSES:
            ir = [self.surprise("ir", x, name, v) for x, _, v in self.posted(name)]
            fp = [self.surprise("fp", z, name, v) for _, z, v in self.posted(name)]
            if name in self.known():
                ir.append(self.ir(name))  # "we also include user u's own data"
                fp += [self.fp(name)] if own_fp else []
            ip = [self.far(z, name, v) for _, z, v in self.posted(name)]
            total = total + sum(torch.stack(each).mean() for each in (ir, fp, ip))
        return total


@pytest.mark.parametrize("model", MODELS)
def test_each_loss_is_its_equation(model: str) -> None:
    scene = scene_of(PARD(public_share=1.0), model)
    hands = [ByHand(scene, k) for k in range(len(scene.device.batch.weight))]
    assert {len(hand.known()) for hand in hands} == {1, 2}
    learning = helper_losses(PARD(public_share=1.0), scene)
    with_own = helper_losses(PARD(public_share=1.0, fp="both"), scene)
    told_by = penalties(PARD(lambda_ir=1.0, lambda_re=0.0), scene)  # Eq. (16)
    kept = penalties(PARD(lambda_ir=0.0, lambda_re=1.0), scene)  # Eqs. (29) and (33)
    both = penalties(PARD(lambda_ir=0.3, lambda_re=0.7), scene)  # Eq. (38), less L_rec
    for k, hand in enumerate(hands):
        ir = -sum(hand.ir(name) for name in hand.known())
        re = sum(hand.fp(n) + hand.far(hand.user_re, n, hand.label(n)) for n in hand.known())
        assert largest(learning[k], hand.condition(own_fp=False)) < 1e-9
        assert largest(with_own[k], hand.condition(own_fp=True)) < 1e-9
        assert largest(told_by[k], torch.as_tensor(ir)) < 1e-9
        assert largest(kept[k], torch.as_tensor(re)) < 1e-9
        assert largest(both[k], torch.as_tensor(0.3 * ir + 0.7 * re)) < 1e-9


def test_estimators_that_know_nothing_guess_evenly() -> None:
    """All weights 0: log 2 + log 3 for either guess, and the length of z_u^re for each attribute."""
    defence = PARD(public_share=1.0, lambda_ir=1.0, lambda_re=1.0)
    scene = scene_of(defence)
    zeros = {n: w * 0 if n.startswith("estimators") else w for n, w in scene.params.items()}
    public = scene.device.public["pard.user_re"].norm(dim=1)
    known = scene.device.public["pard.label.age"] >= 0
    guesses = math.log(2) + math.log(3)
    expected = 2 * guesses + float(public.mean() + public[known].mean())
    found = helper_losses(defence, scene, zeros)
    assert float((found - expected).abs().max()) < 1e-9
    length = scene.params["user_re"][:, 0].norm(dim=1)
    shared = scene.device.batch.attributes["age"][:, 0] >= 0
    wanted = torch.where(shared, 2 * length, length)  # −CE of ir and CE of FP cancel
    assert largest(penalties(defence, scene, zeros), wanted) < 1e-6


def test_without_posts_a_device_learns_from_itself() -> None:
    scene = scene_of(PARD())
    scene = replace(scene, device=scene.device._replace(public={}))
    for k, loss in enumerate(helper_losses(PARD(), scene)):
        hand = ByHand(scene, k)
        assert largest(loss, torch.as_tensor(sum(hand.ir(n) for n in hand.known()))) < 1e-9
    for k, loss in enumerate(helper_losses(PARD(fp="both"), scene)):
        hand = ByHand(scene, k)
        assert largest(loss, torch.as_tensor(sum(hand.ir(n) + hand.fp(n) for n in hand.known()))) < 1e-9
    own = helper_losses(PARD(ip="own"), scene) - helper_losses(PARD(), scene)
    for k, loss in enumerate(own):
        hand = ByHand(scene, k)
        ip = sum(hand.far(hand.user_re, n, hand.label(n)) for n in hand.known())
        assert largest(loss, torch.as_tensor(ip)) < 1e-9


def test_the_distance_may_be_a_mean_square() -> None:
    defence = PARD(reference=True, lambda_ir=0.0, lambda_re=1.0)
    scene = scene_of(defence)
    for k, loss in enumerate(penalties(defence, scene)):
        hand = ByHand(scene, k)
        squares = [hand.far(hand.user_re, n, hand.label(n)).square() / DIM for n in hand.known()]
        assert largest(loss, torch.as_tensor(sum(squares) + sum(hand.fp(n) for n in hand.known()))) < 1e-9


def test_each_item_by_itself() -> None:
    """The code's way: a guess for each touched item of the batch, though the estimator has learned means."""
    defence = PARD(reads="positives", lambda_ir=1.0, lambda_re=0.0)
    scene = scene_of(defence)
    found = penalties(defence, scene)
    for k, loss in enumerate(found):
        hand, batch = ByHand(scene, k), scene.device.batch
        events = [
            i for i, weight in zip(batch.item[k].tolist(), batch.weight[k].tolist(), strict=True) if weight
        ]
        total = torch.zeros(())
        for name in hand.known():
            x = [torch.cat([hand.user, hand.weights["item"][i]]) for i in events]
            total = (
                total - torch.stack([hand.surprise("ir", each, name, hand.label(name)) for each in x]).mean()
            )
        assert largest(loss, total) < 1e-9
    assert largest(found, penalties(replace(defence, reads="mean"), scene)) > 1e-3


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("place", ["phones", "silos"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_for_a_cohort_as_for_one_device(model: str, place: str, options: dict[str, Any]) -> None:
    clients = world() if place == "phones" else silos(world().log, 3)
    defence = PARD(**options)
    scene = scene_of(defence, model, clients)
    assert largest(penalties(defence, scene), scene.mapped(defence.penalty)) < 1e-12
    assert largest(helper_losses(defence, scene), scene.mapped(defence.helper_loss)) < 1e-12
    ours = scene.slopes(lambda p: penalties(defence, scene, p) + helper_losses(defence, scene, p))
    theirs = scene.slopes(lambda p: scene.mapped(defence.penalty, p) + scene.mapped(defence.helper_loss, p))
    assert ours.keys() == theirs.keys()
    assert all(largest(ours[name], theirs[name]) < 1e-12 for name in ours)


def faults(push: Any) -> list[str]:
    """What is wrong with the way in which a penalty pushes the weights that it may push."""
    found: list[str] = []
    scene = scene_of(PARD())
    hands = range(len(scene.device.batch.weight))

    def losses(params: Params, which: str) -> Tensor:
        told_by, moved = [], replace(scene, params=params)
        for hand in (ByHand(moved, k) for k in hands):
            far = [hand.fp(n) + hand.far(hand.user_re, n, hand.label(n)) for n in hand.known()]
            told_by.append(sum([hand.ir(n) for n in hand.known()] if which == "ir" else far))
        return torch.stack([torch.as_tensor(each) for each in told_by])

    goals: list[tuple[dict[str, Any], set[str], dict[str, int]]] = [
        ({"lambda_ir": 1.0, "lambda_re": 0.0}, {"user", "item"}, {"ir": 1}),
        ({"lambda_ir": 0.0, "lambda_re": 1.0}, {"user_re"}, {"re": -1}),
    ]
    for options, names, ways in goals:
        defence = PARD(**options)
        slopes = scene.slopes(partial(push, defence, scene))
        pushed = {n for n, slope in slopes.items() if not n.startswith("estimators") and bool(slope.any())}
        if pushed != names:
            found.append(f"{sorted(pushed)} are pushed")
        moved = {
            n: w - 1e-3 * slopes[n] if n in names & slopes.keys() else w for n, w in scene.params.items()
        }
        for which, sign in ways.items():
            if not bool((sign * (losses(moved, which) - losses(scene.params, which)) > 0).all()):
                found.append(f"{which} goes the wrong way")
    return found


def test_what_leaves_is_pushed_away_from_labels_and_what_stays_towards_them() -> None:
    assert faults(penalties) == []


def test_planted_a_turned_sign_is_noticed() -> None:
    turned = faults(lambda *arguments: -penalties(*arguments))
    assert turned == ["ir goes the wrong way", "re goes the wrong way"]


def test_estimators_learn_and_nothing_else_does() -> None:
    defence = PARD(public_share=1.0)
    scene = scene_of(defence)
    slopes = scene.slopes(lambda p: helper_losses(defence, scene, p))
    names = {name for name, slope in slopes.items() if bool(slope.any())}
    assert {name for name in names if name.startswith("estimators")} == {
        name for name in scene.params if name.startswith("estimators")
    }
    moved = {n: w - 1e-3 * slopes[n] if n.startswith("estimators") else w for n, w in scene.params.items()}
    assert bool((helper_losses(defence, scene, moved) < helper_losses(defence, scene)).all())
    fed = fed_of(PARD(), lr=0.0)
    start, end = held(fed, fed.start()), held(fed, run(fed, 2))
    assert {part_of(name) for name in start if not torch.equal(start[name], end[name])} == {
        "estimators",
        "m/estimators",
    }


def test_classes_that_an_attribute_does_not_have_are_never_guessed() -> None:
    defence = PARD()
    scene = scene_of(defence)
    slopes = scene.slopes(lambda p: helper_losses(defence, scene, p))
    assert not bool(slopes["estimators.ir.2.weight"][:, 0, :, 2].any())  # gender has no third class
    assert bool(slopes["estimators.ir.2.weight"][:, 1, :, 2].any())
    changed = {n: w.clone() for n, w in scene.params.items()}
    changed["estimators.ir.2.bias"][:, 0, 2] += 50.0
    assert torch.equal(helper_losses(defence, scene, changed), helper_losses(defence, scene))


# Rounds


def fed_of(defence: PARD, model: str = "FedNCF", clients: Clients | None = None, **plan: Any) -> Federation:
    settings = {"lr": 0.5, "batch": 4, "chunk": 3, "rounds": 9, **plan}
    return federation(clients or world(), MODELS[model](ITEMS, dim=DIM), None, defence, **settings)


def drawn(share: float, step: int) -> Tensor:
    """``[clients, k]`` the rows of D_pub that devices draw, told by their first number."""
    defence = PARD(public_share=share)
    scene = scene_of(defence)
    public = {**scene.device.public, "pard.user_re": torch.arange(6.0)[:, None].expand(6, DIM)}
    keys = Keys(scene.device.keys.value).fold(step)
    return defence._public(scene.model, scene.device._replace(public=public, keys=keys)).re[..., 0]


def test_each_device_draws_its_rows_anew_in_each_step() -> None:
    first, again, second = drawn(0.5, 0), drawn(0.5, 0), drawn(0.5, 1)
    assert torch.equal(first, again)
    assert first.shape[1] == 3
    assert all(len(set(row)) == 3 for row in first.tolist())
    assert len({tuple(sorted(row)) for row in first.tolist()}) > 2
    assert not torch.equal(first.sort().values, second.sort().values)
    assert drawn(0.01, 0).shape[1] == 1
    assert all(sorted(row) == list(range(6)) for row in drawn(1.0, 0).tolist())


@pytest.mark.parametrize("model", ["FedNCF", pytest.param("FedLightGCN", marks=pytest.mark.slow)])
def test_warm_up_is_no_penalty_while_estimators_learn(model: str) -> None:
    warm, never, always = (
        fed_of(defence, model) for defence in (PARD(warm_up=2), PARD(lambda_ir=0.0, lambda_re=0.0), PARD())
    )
    assert digest(run(warm, 2)) == digest(run(never, 2))
    assert digest(run(warm, 3)) != digest(run(never, 3))
    assert digest(run(always, 1)) != digest(run(never, 1))
    start, after = (held(warm, run(warm, n))["estimators.ir.0.weight"] for n in (1, 2))
    assert largest(start, after) > 1e-4


def test_validation_chooses_among_rounds_that_are_guarded() -> None:
    assert PARD(warm_up=7).guards_from == 7
    assert Chain((Undefended(), PARD(warm_up=7), PARD(warm_up=3))).guards_from == 7
    assert Undefended().guards_from == 0


def test_a_warm_up_as_long_as_the_plan_is_refused() -> None:
    fed_of(PARD(warm_up=2), rounds=3)
    for rounds in (1, 2):
        with pytest.raises(BadInput, match=r"^defence: of \d rounds none is left"):
            fed_of(PARD(warm_up=2), rounds=rounds)


def test_predictors_begin_alike_and_vectors_and_estimators_do_not() -> None:
    """Also on a device with secret keys: what all have in common is the seed's."""
    fed = fed_of(PARD())
    cohort = torch.tensor([2, 5])
    first, secret = fed.fleet.fresh(cohort), changed(fed, keys=Keys.secret()).fleet.fresh(cohort)
    for name in first:
        if name.startswith("predictor.") and name.endswith("weight"):
            assert first[name].any()
            assert torch.equal(first[name][0], first[name][1])
            assert torch.equal(first[name], secret[name])
    for name in ("user", "user_re", "estimators.ir.0.weight"):
        assert not torch.equal(first[name][0], first[name][1])
        assert not torch.equal(first[name], secret[name])
    other = changed(fed, seed=1).fleet.fresh(cohort)
    assert not torch.equal(first["predictor.0.weight"], other["predictor.0.weight"])


def test_the_half_that_stays_may_begin_with_a_size_of_its_own() -> None:
    """Vectors that stand for values of an attribute begin as small as those that they stand for."""
    base = FedNCF(600, 600, dim=8, scale={"user": 0.3, "user_re": 0.05})
    base.classes = CLASSES
    made = PARD().attach(base)
    sizes = {"user": 0.3, "user_re": 0.05, "item": 0.01, "estimators.ip.weight": 0.05}
    for name, scale in sizes.items():
        many = made.initial(name, Keys.seed(0).fold(torch.arange(50)))
        assert abs(float(many.std()) / scale - 1) < 0.05


def test_how_estimators_step() -> None:
    assert PARD().helpers.momentum == 0.9
    assert PARD().helpers.clip == 5.0
    fed = fed_of(PARD(reference=True))
    one, two, three = (held(fed, run(fed, n)) for n in (1, 2, 3))
    names = [name for name in fed.model.names() if name.startswith("estimators")]
    assert all(torch.equal(one[name], two[name]) for name in names)
    assert not any(torch.equal(two[name], three[name]) for name in names)


def test_the_two_vectors_are_joined_or_added() -> None:
    for join, width in (("concatenate", 3 * DIM), ("add", 2 * DIM)):
        model = PARD(join=join, head=(5,)).attach(FedNCF(ITEMS, dim=DIM))  # type: ignore[arg-type]
        assert model.get_parameter("predictor.0.weight").shape == (width, 5)
        assert model.get_parameter("predictor.1.weight").shape == (5, 1)
        assert not any(part.startswith("mlp") for part in model.parts)
    assert {name: part.scope.value for name, part in model.parts.items()} == {
        "user": "exposed",
        "item": "shared",
        "user_re": "private",
        "predictor": "private",
        "estimators": "private",
    }


def test_the_user_vector_is_averaged_where_that_is_asked_for() -> None:
    fed = fed_of(PARD(average_user=True))
    state = run(fed, 2)
    assert fed.model.parts["user"].scope is Scope.SHARED
    assert state.server["user"].shape == (1, DIM)
    assert "user" not in held(fed, state)
    assert "user" not in run(fed_of(PARD())).server


def test_attributes_are_those_asked_for() -> None:
    every, one = (fed_of(PARD(attributes=names)).model for names in ((), ("age",)))
    assert every.get_parameter("estimators.ip.weight").shape == (2, 3, DIM)
    assert one.get_parameter("estimators.ip.weight").shape == (1, 3, DIM)


@pytest.mark.parametrize(
    "options",
    [
        {"join": "add"},
        {"average_user": True},
        {"ip": "own"},
        {"reads": "positives"},
        {"lambda_ir": 0.1},
        {"lambda_re": 0.1},
        {"public_share": 1.0},
        {"reference": True},
        {"attributes": ("age",)},
        {"head": (5,)},
    ],
    ids=str,
)
def test_every_option_changes_something(options: dict[str, Any]) -> None:
    plain, other = (run(fed_of(PARD(**some)), 2).server["item"] for some in ({}, options))
    assert largest(plain, other) > 0


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"lambda_ir": -1.0}, "lambda_ir"),
        ({"warm_up": -1}, "warm_up"),
        ({"public_share": 0.0}, "public_share"),
        ({"head": (0,)}, "head"),
    ],
)
def test_values_that_will_not_do(options: dict[str, Any], key: str) -> None:
    with pytest.raises(BadInput, match=f"defence.{key}"):
        PARD(**options)


def test_what_cannot_be_split_is_refused() -> None:
    for model in (FedGCN(ITEMS), FedNCF(ITEMS, kind="neumf")):
        with pytest.raises(BadInput, match="one vector for a user"):
            PARD().attach(model)
    for personal in (FedNCF(ITEMS, personal=True), FedLightGCN(ITEMS, personal=True)):
        with pytest.raises(BadInput, match=r"^model\.personal: the split model scores with items as"):
            PARD().attach(personal)
    with pytest.raises(BadInput, match='no attribute "height"'):
        fed_of(PARD(attributes=("height",)))
    bare = world()
    bare = replace(bare, log=replace(bare.log, attributes={}, classes={}), consents={})
    with pytest.raises(BadInput, match="no attribute to guard"):
        fed_of(PARD(), clients=bare)


def test_what_stays_carries_labels_where_it_is_asked_to() -> None:
    """What z_u^re tells the device's own estimators, after some rounds on the checkerboard."""
    clients, probe, surprise = phones(checkerboard(), 0.5), PARD(lambda_ir=0.0, lambda_re=1.0), []
    known = clients.batch(torch.arange(24), history=1, rows=torch.zeros(24, 0), dtype=torch.float32)
    number = torch.tensor([9, 0])
    device = Device(known, {}, {}, Keys.seed(0), number[0], number[1])
    for strength in (0.0, 1.0):
        defence = PARD(lambda_ir=0.0, lambda_re=strength, head=(8,), public_share=1.0)
        fed = federation(clients, FedNCF(24, dim=8), None, defence, lr=0.3, batch=20, chunk=12)
        state = run(fed, 25)
        own = {name: value for name, value in held(fed, state).items() if not name.startswith("m/")}
        params = {**own, "item": state.server["item"].expand(24, 24, 8)}
        surprise.append(float(bind(fed.model, params, probe.penalty, device).mean()))
    assert surprise[1] < 0.5 * surprise[0]
