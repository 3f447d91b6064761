"""FedAU² with `label_epsilon`: a label is drawn once, by a known law; nothing that leaves knows the truth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.attacks.heads import GRADIENTS, share_right, task_of, world
from tests.worlds import (
    begin,
    both,
    checkerboard,
    contents,
    digest,
    federation,
    held,
    log_of,
    phones,
    resume,
    run,
    silos,
)
from veilrec import node
from veilrec.attacks.idlg import iDLG
from veilrec.base import tensors
from veilrec.base.keys import Keys
from veilrec.base.params import Params
from veilrec.clients import Clients
from veilrec.defence import Defence, chain, secretly
from veilrec.defences.common.adversary import Adversary
from veilrec.defences.common.kept_noise import kept_keys
from veilrec.defences.fedau2 import FedAU2, randomised
from veilrec.engine.fused import summed
from veilrec.engine.probe import see
from veilrec.errors import BadInput
from veilrec.interactions import Interactions
from veilrec.model import Device, Recommender, bind
from veilrec.models.fedmf import FedMF
from veilrec.models.fedvae import FedVAE
from veilrec.protocol import State
from veilrec.protocols.fedavg import FedAvg
from veilrec.recipe import Recipe
from veilrec.rounds import Federation
from veilrec.wire import codec
from veilrec.wire.codec import encode, one
from veilrec.wire.uploads import Exchange

SIXTY = math.log(1.5)  # ε at which one of two classes stays with 0.6
KEY, BIAS = "fedau2.key", "adversary_gender.last.bias"


# The law.


@pytest.mark.parametrize(
    ("classes", "epsilon", "stays"),
    [(2, SIXTY, 0.6), (2, 0.0, 0.5), (3, math.log(3), 0.6), (3, 0.0, 1 / 3), (7, math.log(6), 0.5)],
)
def test_a_label_stays_as_often_as_it_says_and_else_is_any_other(
    classes: int, epsilon: float, stays: float
) -> None:
    n = 30_000
    label = torch.arange(n) % classes
    said = randomised(label, classes, epsilon, Keys.seed(1))
    assert bool(((said >= 0) & (said < classes)).all())
    for shift in range(classes):
        share = stays if shift == 0 else (1 - stays) / (classes - 1)
        found = float(((said - label) % classes == shift).double().mean())
        assert abs(found - share) < 4.5 * math.sqrt(share * (1 - share) / n)


def test_no_label_stays_none_and_a_large_epsilon_changes_none() -> None:
    label = torch.tensor([-1, 0, 1, 2] * 500)
    assert bool((randomised(label, 3, 0.0, Keys.seed(0))[label < 0] == -1).all())
    assert torch.equal(randomised(label, 3, 800.0, Keys.seed(0)), label)
    assert torch.equal(randomised(label.clamp(max=0), 1, 0.0, Keys.seed(0)), label.clamp(max=0))


@pytest.mark.parametrize("epsilon", [-0.1, math.nan, math.inf])
def test_what_is_no_epsilon_is_refused(epsilon: float) -> None:
    with pytest.raises(BadInput, match="label_epsilon"):
        FedAU2(label_epsilon=epsilon)


# Once for each device, whoever asks, and however often.


def plain(**options: Any) -> FedAU2:
    given = {"head": "plain", "hidden": 4, "attributes": ("gender",), "label_epsilon": SIXTY, **options}
    return FedAU2(**given)


def fed_of(clients: Clients, defence: Defence, protocol: FedAvg = GRADIENTS, **plan: Any) -> Federation:
    settings = {"lr": 0.5, "batch": 1000, **plan}
    seed = settings.pop("seed", 0)
    model = FedMF(clients.log.n_items, clients.n_seats, dim=3)
    return federation(clients, model, protocol, defence, seed=seed, **settings)


def said(fed: Federation, state: State, attribute: str = "gender") -> Tensor:
    """``[clients, seats]`` by the keys that devices keep, one device after the other."""
    each = zip(held(fed, state)[KEY], fed.clients.seats, strict=True)
    return torch.stack([said_by(fed, key, users, attribute) for key, users in each])


def said_by(fed: Federation, key: Tensor, users: Tensor, attribute: str) -> Tensor:
    """``[seats]`` by the key ``[3]`` of one device."""
    labels, classes = fed.clients.log.attributes[attribute], fed.model.classes or {}
    label = torch.where(users >= 0, labels[users.clamp(min=0)], -1)
    keys: Keys = bind(fed.model, {KEY: key}, lambda model: kept_keys(model, "fedau2"))
    assert isinstance(fed.defence, FedAU2)
    assert fed.defence.label_epsilon is not None
    drawn = keys.fold(f"adversary_{attribute}")
    return randomised(label, classes[attribute], fed.defence.label_epsilon, drawn)


class Reads:
    """What a plain head's gradient tells in each round: the class whose bias has the least."""

    def __init__(self, name: str = BIAS) -> None:
        self.name, self.rounds = name, dict[int, dict[int, int]]()

    def __call__(self, exchange: Exchange) -> None:
        slope = exchange.received.values[self.name]
        assert isinstance(slope, Tensor)
        told = dict(zip(exchange.received.cohort.tolist(), slope.argmin(1).tolist(), strict=True))
        self.rounds.setdefault(exchange.round, {}).update(told)


@pytest.mark.parametrize(
    ("each", "plan"),
    [
        ("round", {}),
        pytest.param("round", {"chunk": 1}, marks=pytest.mark.slow),
        ("step", {"batch": 2, "epochs": 2}),
        ("round", {"cohort": 0.4, "workers": 2}),
    ],
    ids=str,
)
def test_what_is_said_is_the_same_in_every_round_and_step_alone_or_in_a_cohort(
    each: str, plan: dict[str, Any]
) -> None:
    fed = fed_of(phones(checkerboard()), plain(each=each), **plan)
    expected, reads = said(fed, fed.start())[:, 0].tolist(), Reads()
    run(fed, 5, watch=[reads])
    assert len(reads.rounds) == 5
    assert all(expected[client] == told for row in reads.rounds.values() for client, told in row.items())
    truth = (torch.arange(24) % 2).tolist()
    assert 4 < sum(a != b for a, b in zip(expected, truth, strict=True)) < 16


def test_planted_a_label_drawn_anew_is_noticed() -> None:
    @dataclass(frozen=True)
    class Anew(FedAU2):
        def penalty(self, model: Recommender, device: Device) -> Tensor:
            drawn = randomised(device.batch.attributes["gender"], 2, SIXTY, device.keys.fold("label"))
            batch = device.batch._replace(attributes={"gender": drawn})
            return plain(label_epsilon=None).penalty(model, device._replace(batch=batch))

    reads = Reads()
    run(fed_of(phones(checkerboard()), Anew(**vars(plain()))), 5, watch=[reads])
    assert len({tuple(row.items()) for row in reads.rounds.values()}) == 5


def test_a_resumed_run_says_the_same() -> None:
    clients = phones(checkerboard())
    whole = run(fed_of(clients, plain(), cohort=0.5), 4)
    half = run(fed_of(clients, plain(), cohort=0.5), 2)
    again = fed_of(clients, plain(), cohort=0.5)
    first = held(again, begin(again))[KEY]
    again.fleet.devices.restore(contents(half.devices))
    assert digest(resume(again, both(again, half), 4)) == digest(whole)
    assert torch.equal(held(again, run(again))[KEY], first)


def test_every_person_attribute_and_seed_has_a_draw_of_its_own() -> None:
    log = world(300)
    feds = [fed_of(phones(log), plain(attributes=()), seed=seed) for seed in (0, 1)]
    turned = [
        said(fed, fed.start(), name)[:, 0] != log.attributes[name]
        for fed in feds
        for name in ("gender", "age")
    ]
    for k, one_of in enumerate(turned):
        for other in turned[:k]:
            both, alone = (one_of & other).double().mean(), one_of.double().mean() * other.double().mean()
            assert abs(float(both - alone)) < 4.5 * 0.25 / math.sqrt(300)
    whole, few = feds[0], fed_of(phones(log.take(log.user < 20)), plain(attributes=()))
    assert torch.equal(said(few, few.start())[:20], said(whole, whole.start())[:20])


@pytest.mark.parametrize("chunk", [1, 2])
def test_in_a_silo_everybody_has_a_seat_and_a_draw(chunk: int) -> None:
    """The gradient by the bias is the mean of p − y over the seats: it tells how many said what."""
    clients = silos(checkerboard(), 5)
    fed = fed_of(clients, plain(), chunk=chunk, precision="float64")
    state, seen = fed.start(), list[Exchange]()
    expected = said(fed, state)
    for name in ("adversary_gender.last.weight", BIAS):
        state.server[name].zero_()  # the head knows nothing: p is a half
    for _ in fed.rounds(state, until=1, watch=[seen.append]):
        break
    for exchange in seen:
        slope = exchange.received.values[BIAS]
        assert isinstance(slope, Tensor)
        for place, silo in enumerate(exchange.received.cohort.tolist()):
            seats = expected[silo][expected[silo] >= 0]
            assert abs(float(slope[place, 1]) - (0.5 - float(seats.double().mean()))) < 1e-9
    rows = [tuple(row.tolist()) for row in expected != torch.where(clients.seats >= 0, clients.seats % 2, -1)]
    assert len(set(rows)) > 1  # silos differ in who is turned
    assert any(0 < sum(row) < len(row) for row in rows)  # and so do the seats of one


def test_one_gradient_for_all_devices_of_a_dense_model() -> None:
    """FedVAE, whose devices keep nothing but the key: the sum of one pass is that of the copies."""
    clients = phones(checkerboard())
    plan: dict[str, Any] = {"batch": 64, "negatives": 0, "precision": "float64"}
    feds = [
        federation(clients, FedVAE(24, hidden=7, dim=4), GRADIENTS, plain(strength=5.0), **plan)
        for _ in range(2)
    ]
    assert summed(feds[0].fleet.task(), feds[0].clients.sizes, set())
    blind = run(feds[0], 3)
    copies = run(feds[1], 3, watch=[lambda exchange: None])
    assert all(torch.allclose(blind.server[n], copies.server[n], atol=1e-12) for n in blind.server)


# What a server reads.

USERS = 500
NOISE = 4.5 * math.sqrt(0.24 / USERS)  # of a share of 0.6 among so many


def test_idlg_reads_what_was_said_and_more_uploads_tell_no_more() -> None:
    log, fed = world(USERS), fed_of(phones(world(USERS)), plain(hidden=16))
    state, truth = fed.start(), log.attributes["gender"]
    expected, total = said(fed, state)[:, 0], torch.zeros(USERS, 2, dtype=torch.float64)
    for done in range(4):
        state = resume(fed, state, done + 1)
        scores = iDLG().infer(see(fed, state), task_of(USERS))
        assert torch.equal(scores.argmax(1), expected)
        total += scores
    assert abs(share_right(total, truth) - 0.6) < NOISE
    open_eyed = fed_of(phones(log), plain(hidden=16, label_epsilon=None))
    assert share_right(iDLG().infer(see(open_eyed, open_eyed.start()), task_of(USERS)), truth) == 1.0


class Sums:
    """The rows of the means of a DSVAE head, added up over all uploads of everybody."""

    reads = ("adversary_gender.last.weight",)

    def __init__(self) -> None:
        self.total = torch.zeros(USERS, 2)

    def __call__(self, exchange: Exchange) -> None:
        slope = exchange.received.values[self.reads[0]]
        assert isinstance(slope, Tensor)
        self.total[exchange.received.cohort] -= slope.sum(1)[:, :2]


@pytest.mark.parametrize("epsilon", [pytest.param(None, marks=pytest.mark.slow), SIXTY])
def test_many_uploads_of_a_head_that_draws_tell_what_was_said_alone(epsilon: float | None) -> None:
    """Added up, DSVAE's draws cancel: twelve uploads tell nearly everybody's label, and no more than it."""
    fed = fed_of(phones(world(USERS)), plain(head="dsvae", hidden=16, label_epsilon=epsilon))
    truth, sums = fed.clients.log.attributes["gender"], Sums()
    run(fed, 12, watch=[sums])
    if epsilon is None:
        assert share_right(sums.total, truth) > 0.95
    else:
        assert share_right(sums.total, said(fed, fed.start())[:, 0]) > 0.95
        assert share_right(sums.total, truth) < 0.6 + NOISE


# Nothing but what was said goes into what leaves: another truth behind it changes no byte.


def key_that(turns: bool, epsilon: float, attributes: Sequence[str]) -> Tensor:
    """``[3]`` a key with which a device turns all labels of two classes, or none."""
    model = plain().attach(FedMF(3, dim=2))
    for number in range(10_000):
        key = Keys.seed(number).fold("search").uniform(3)
        keys: Keys = bind(model, {KEY: key}, lambda model: kept_keys(model, "fedau2"))
        draws = [
            randomised(torch.zeros(1, dtype=torch.int64), 2, epsilon, keys.fold(f"adversary_{n}"))
            for n in attributes
        ]
        if all(bool(draw == turns) for draw in draws):
            return key
    raise AssertionError("no key")


def people(turned: bool) -> Interactions:
    """Six users of two attributes with two classes; turned, each has the other of both."""
    events = [(u, (3 * u + 2 * t) % 11, t) for u in range(6) for t in range(4 + u % 3)]
    labels = {"gender": torch.tensor([0, 1, 1, 0, 1, 0]), "age": torch.tensor([1, 1, 0, 0, 1, 0])}
    labels = {name: 1 - label if turned else label for name, label in labels.items()}
    classes = {name: ["a", "b"] for name in labels}
    return log_of(*events, users=6, items=11, attributes=labels, classes=classes)


def leaving(turned: bool, model: str, defence: Defence, protocol: FedAvg) -> list[bytes]:
    """All uploads of three rounds, of people who say the same, truly or not."""
    clients = phones(people(turned))
    made = FedMF(11, dim=3, user="exposed") if model == "FedMF" else FedVAE(11, hidden=5, dim=3)
    fed = federation(clients, made, protocol, defence, rounds=3, batch=2, negatives=1, lr=0.1)
    state, sent = fed.start(), list[bytes]()
    own = held(fed, state)
    own[KEY] = key_that(turned, SIXTY, ("gender", "age")).expand(6, 3).contiguous()
    fed.fleet.devices.put(torch.arange(6), own)

    def watch(exchange: Exchange) -> None:
        sent.extend(encode(one(exchange.received.values, k)) for k in range(len(exchange.received.cohort)))

    resume(fed, state, 3, watch=[watch])
    assert len(sent) == 18
    return sent


def tells_no_truth(defence: Defence, model: str = "FedMF", protocol: FedAvg = GRADIENTS) -> bool:
    return leaving(False, model, defence, protocol) == leaving(True, model, defence, protocol)


@pytest.mark.parametrize(
    "protocol",
    [pytest.param(GRADIENTS, id="gradients"), pytest.param(FedAvg(), id="weights", marks=pytest.mark.slow)],
)
@pytest.mark.parametrize("model", ["FedMF", "FedVAE"])
@pytest.mark.parametrize(
    "options",
    [
        {"trigger": "sut", "each": "step"},
        {"trigger": "continuous", "head": "vae", "each": "step"},
        {"trigger": "global", "head": "dsvae"},
        {"trigger": "pretrain", "pretrain": 1, "head": "dsvae"},
    ],
    ids=lambda options: str(options["trigger"]),
)
def test_the_truth_behind_what_is_said_changes_no_byte(
    options: dict[str, Any], model: str, protocol: FedAvg
) -> None:
    assert tells_no_truth(plain(attributes=(), **options), model, protocol)


@pytest.mark.parametrize("second", [("gender",), ()], ids=["named", "all"])
def test_no_attribute_is_unlearned_twice(second: tuple[str, ...]) -> None:
    """Both would train one adversary, and the second says the truth."""
    one, other = plain(), plain(attributes=second, label_epsilon=None)
    for defence in (chain(one, other), chain(other, one)):
        with pytest.raises(BadInput, match="gender is unlearned twice"):
            fed_of(phones(people(False)), defence)


def test_so_in_a_chain_each_keeps_to_its_own_attributes() -> None:
    """What is guarded without `label_epsilon` tells the truth, of its own attribute alone."""
    drawn, bare = plain(), plain(attributes=("age",), label_epsilon=None)
    assert tells_no_truth(chain(drawn, plain(attributes=("age",))))
    assert not tells_no_truth(chain(drawn, bare))
    reads = Reads()
    fed = fed_of(phones(people(False)), chain(drawn, bare))
    state = fed.start()
    own = held(fed, state)
    own[KEY] = key_that(True, SIXTY, ("gender",)).expand(6, 3).contiguous()
    fed.fleet.devices.put(torch.arange(6), own)
    resume(fed, state, 2, watch=[reads])
    truth = people(False).attributes["gender"].tolist()
    assert all(told == 1 - truth[client] for row in reads.rounds.values() for client, told in row.items())


@dataclass(frozen=True)
class TrueTrigger(FedAU2):
    """Says what was drawn, and asks whether the adversary guesses the truth."""

    def penalty(self, model: Recommender, device: Device) -> Tensor:
        aware = copy_of(self, truth=device.batch.attributes["gender"])
        return FedAU2.penalty(aware, model, device)

    def _strength(
        self, adversary: Adversary, user: Tensor, label: Tensor, keys: Keys, round: Tensor
    ) -> Tensor:
        return super()._strength(adversary, user, vars(self)["truth"], keys, round)


def copy_of(defence: FedAU2, truth: Tensor) -> FedAU2:
    aware = replace(defence)
    object.__setattr__(aware, "truth", truth)
    return aware


@dataclass(frozen=True)
class TrueLoss(FedAU2):
    """Keeps a key, and never uses it."""

    def _said(self, model: Recommender, part: str, label: Tensor, classes: int) -> Tensor:
        return label


@pytest.mark.parametrize("kind", [TrueTrigger, TrueLoss])
@pytest.mark.parametrize("model", ["FedMF", "FedVAE"])
def test_planted_the_truth_in_the_trigger_or_in_the_loss_is_noticed(kind: type[FedAU2], model: str) -> None:
    """With a vector that is uploaded, or made of weights that all share, the trigger alone gives it away."""
    assert not tells_no_truth(kind(**vars(plain(each="step"))), model)


# Without the option, and where devices are real.


def sent_by(defence: Defence, model: str) -> tuple[State, list[Params]]:
    made = FedMF(24, dim=3) if model == "FedMF" else FedVAE(24, hidden=5, dim=3)
    fed, seen = federation(phones(checkerboard()), made, GRADIENTS, defence, batch=3), list[Params]()

    def watch(exchange: Exchange) -> None:
        seen.append({n: v for n, v in exchange.received.values.items() if isinstance(v, Tensor)})

    return run(fed, 2, watch=[watch]), seen


@pytest.mark.parametrize("model", ["FedMF", "FedVAE"])
@pytest.mark.parametrize("head", ["plain", "dsvae"])
def test_without_it_no_bit_is_another_than_with_one_that_turns_nobody(model: str, head: Any) -> None:
    states, sent = zip(
        *(sent_by(plain(head=head, label_epsilon=e), model) for e in (None, 800.0)), strict=True
    )
    assert all(torch.equal(states[0].server[n], states[1].server[n]) for n in states[0].server)
    for bare, drawn in zip(*sent, strict=True):
        assert bare.keys() == drawn.keys()
        assert all(torch.equal(bare[name], drawn[name]) for name in bare)
    assert "fedau2" not in fed_of(phones(checkerboard()), FedAU2()).model.parts
    assert FedAU2().label_epsilon is None


RECIPE = [
    "data.name='synthetic'",
    "data.users=30",
    "data.items=40",
    "model.name='FedMF'",
    "model.dim=4",
    "protocol.sends='gradients'",
    "protocol.server='adam'",
    "protocol.server_lr=0.01",
    "plan.rounds=3",
    "plan.chunk=1",
]


def recipe_of(epsilon: str) -> Recipe:
    defence = f"{{name = 'fedau2', attributes = ['gender'], head = 'plain', label_epsilon = {epsilon}}}"
    return Recipe.load(None, [*RECIPE, f"defence=[{defence}]"])


def test_a_recipe_gives_a_number_and_no_infinity() -> None:
    assert "label_epsilon = 0.4" in recipe_of("0.4").toml()
    for wrong in ("inf", "-1.0", "nan"):
        with pytest.raises(BadInput, match="label_epsilon"):
            recipe_of(wrong)


def test_a_real_device_draws_what_no_seed_decides_and_keeps_it(tmp_path: Path) -> None:
    """Three stores of one person, and the simulation's twin: each says by its own key, round after round."""
    recipe, client = recipe_of("0.0"), 7
    fed = recipe.experiment().federation()
    state, schema = fed.start(), fed.protocol.schema(fed.model, dtype=torch.float32)
    keys = [held(fed, state)[KEY][client]]
    for name in ("twin", "a", "b", "c"):
        store, told = tmp_path / name, []
        node.provision(fed, client, recipe.toml(), store)
        for round in range(3):
            message = node.letter(fed, replace(state, round=round), client)
            slope = codec.decode(node.answer(store, message, seeded=name == "twin"), schema)[BIAS]
            assert isinstance(slope, Tensor)
            told.append(int(slope.argmin()))
        keys.append(tensors.read(store / node.OWN)[f"own/{KEY}"])
        assert told == [said_by(fed, keys[-1], fed.clients.seats[client], "gender").item()] * 3
    assert torch.equal(keys.pop(0), keys[0])
    assert len({tuple(key.tolist()) for key in keys}) == 4


def test_as_a_real_device_runs_it_the_key_is_the_systems() -> None:
    """Also where the experiment's keys are the seed's."""
    defences = (plain(), plain(), secretly(plain()), secretly(plain()))
    feds = [fed_of(phones(checkerboard()), defence) for defence in defences]
    keys = [held(fed, run(fed))[KEY] for fed in feds]
    assert torch.equal(keys[0], keys[1])
    assert len({tuple(row.tolist()) for row in torch.cat(keys[1:])}) == 72
