"""PFedRec by hand, and the personal view: what devices score with after a pass of their own."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.worlds import (
    batch,
    changed,
    checkerboard,
    digest,
    everyone,
    federation,
    held,
    largest,
    log_of,
    phones,
    ragged,
    run,
    silos,
)
from veilrec.base.keys import Keys
from veilrec.base.params import Scope
from veilrec.clients import Clients
from veilrec.engine import serving
from veilrec.engine.evaluation import Evaluation
from veilrec.engine.workers import workers
from veilrec.errors import BadInput
from veilrec.examples import Portion
from veilrec.model import Device, Recommender
from veilrec.models.fedlightgcn import FedLightGCN
from veilrec.models.fedncf import FedNCF
from veilrec.models.pfedrec import PFedRec
from veilrec.protocol import State
from veilrec.protocols.fedavg import FedAvg
from veilrec.rounds import Federation

RATES = {"item": 0.7, "default": 0.3}


def by_hand() -> PFedRec:
    model = PFedRec(3, dim=2)
    model.score.weight.data = torch.tensor([[2.0, -1.0]])
    model.score.bias.data = torch.tensor([0.5])
    model.item.data = torch.tensor([[1.0, 1.0], [0.0, 2.0], [-1.0, 0.0]])
    return model


def test_a_score_is_a_linear_function_of_the_item() -> None:
    model = by_hand()
    assert model.scores(batch([], [])).tolist() == [[1.5, -1.5, -1.5]]
    assert model.represent(batch([], [])).tolist() == [[2.0, -1.0]]


def test_the_loss_by_hand() -> None:
    """Item 0 touched at 1.5; items 1 and 2 not, both at -1.5: three times softplus(-1.5), over three."""
    device = Device(batch([0], [[1, 2]]), {}, {}, Keys.seed(0), torch.tensor(0), torch.tensor(0))
    assert by_hand().loss(device).item() == pytest.approx(float(F.softplus(torch.tensor(-1.5))))


def test_nothing_belongs_to_a_user_but_the_score_function() -> None:
    model = PFedRec(9, 2, dim=4)
    assert model.names(Scope.PRIVATE) == ["score.weight", "score.bias"]
    assert model.names(Scope.SHARED) == ["item"]
    bounds = model.initial("score.weight", Keys.seed(1).fold(torch.arange(500))).abs().max()
    assert 0.49 < float(bounds) <= 0.5  # one over the root of 4


def test_score_functions_begin_alike_on_all_devices_and_for_all_of_their_users() -> None:
    """Also on a device with secret keys: what all have in common is the seed's."""
    clients = silos(ragged((1, 3, 5, 6, 9, 14), 30), 2)
    fed = federation(clients, PFedRec(30, clients.n_seats, dim=4))
    cohort = torch.arange(2)
    first, secret = fed.fleet.fresh(cohort), changed(fed, keys=Keys.secret()).fleet.fresh(cohort)
    other = changed(fed, seed=1).fleet.fresh(cohort)
    assert first["score.weight"].shape == (2, 3, 4)
    for name in ("score.weight", "score.bias"):
        one = first[name][0, 0]
        assert bool(one.any())
        assert torch.equal(first[name], one.expand_as(first[name]))
        assert torch.equal(first[name], secret[name])
        assert not torch.equal(first[name], other[name])
    alone = federation(phones(ragged((1, 3, 5), 30)), PFedRec(30, dim=4)).fleet.fresh(torch.tensor([0]))
    assert torch.equal(alone["score.weight"][0, 0], first["score.weight"][0, 0])  # however many are seated


def test_fresh_items_are_as_large_as_asked_for() -> None:
    for scale, model in ((0.01, PFedRec(4000, dim=8)), (0.5, PFedRec(4000, dim=8, scale=0.5))):
        item = model.initial("item", Keys.seed(0))
        assert abs(float(item.std()) / scale - 1) < 0.05
    with pytest.raises(BadInput, match=r"model\.scale"):
        PFedRec(5, scale=0.0)


def small(model: Recommender | None = None, clients: Clients | None = None, **plan: object) -> Federation:
    clients = clients or phones(ragged((1, 3, 5, 6, 9, 14), 30))
    settings = {"lr": RATES, "batch": 4, "epochs": 2, "negatives": 2, "precision": "float64", **plan}
    return federation(clients, model or PFedRec(30, clients.n_seats, dim=4), **settings)  # type: ignore[arg-type]


def shown(fed: Federation, state: State, items: Tensor | None = None) -> Tensor:
    with workers(1) as pool:
        return serving.scorer(fed.fleet, fed.at(state), pool)(everyone(fed), items)


def alone(fed: Federation, state: State, client: int) -> Tensor:
    """One device's scores after a pass of its own, with full tables and ordinary autograd."""
    cohort = torch.tensor([client])
    keys = fed.keys.fold("personal").fold(state.round).fold(fed.clients.tags[cohort])
    plan = fed.plan
    portion = Portion.draw(
        fed.clients, cohort, keys, epochs=plan.epochs, negatives=plan.negatives, dtype=plan.dtype
    )
    own = {n: w[client].clone().requires_grad_() for n, w in held(fed, state).items()}
    item = state.server["item"].clone().requires_grad_()
    rows = portion.known.rows[0]
    for epoch in range(plan.epochs):
        for step in portion.steps(epoch, plan.batch):
            touched, untouched = rows[step.batch.item[0]], rows[step.batch.negative[0]]
            score = item @ own["score.weight"][0] + own["score.bias"][0]
            each = torch.cat([F.softplus(-score[touched]), F.softplus(score[untouched]).flatten()])
            weight, bias, table = torch.autograd.grad(each.mean(), [*own.values(), item])
            with torch.no_grad():
                own["score.weight"] -= RATES["default"] * weight
                own["score.bias"] -= RATES["default"] * bias
                item -= RATES["item"] * table
    return (item @ own["score.weight"][0] + own["score.bias"][0]).detach()


def test_the_personal_view_is_one_more_pass_of_each_device() -> None:
    fed = small()
    state = run(fed, 2)
    found = shown(fed, state)
    for client in range(len(fed.clients)):
        assert largest(found[client, 0], alone(fed, state, client)) < 1e-9
    plain = changed(fed, model=PFedRec(30, dim=4, personal=False))
    assert largest(found, shown(plain, state)) > 0.01


MODELS = [
    PFedRec(24, dim=4),
    FedNCF(24, dim=4, head=(6,), sharing="private", personal=True),
    FedNCF(24, dim=4, head=(6,), personal=True),
    FedLightGCN(24, dim=4, head=(6,), sharing="private", personal=True),
    FedLightGCN(24, dim=4, personal=True),
]
QUICK = (MODELS[0], MODELS[3])


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(
            model,
            id=f"{type(model).__name__}-{len(model.parts)}",
            marks=() if model in QUICK else pytest.mark.slow,
        )
        for model in MODELS
    ],
)
def test_looking_keeps_nothing_and_depends_on_nothing_else(
    model: Recommender, monkeypatch: pytest.MonkeyPatch
) -> None:
    fed = small(model, phones(checkerboard()), lr=0.5)
    state = run(fed, 2)
    before = digest(state)
    first = fed.evaluate(state)
    assert digest(state) == before
    for threads, block in ((1, 1), (2, 5)):
        monkeypatch.setattr("veilrec.engine.evaluation.BLOCK", block)
        again = changed(fed, plan=replace(fed.plan, workers=threads)).evaluate(state).values
        assert all(torch.equal(first.values[name], again[name]) for name in again)
    items = torch.arange(24).flip(0).expand(24, 1, -1)
    whole = shown(fed, state)
    assert largest(whole.flip(-1), shown(fed, state, items)) < 1e-12
    monkeypatch.setattr(serving, "HELD", 1)  # one device at a time
    assert largest(whole, shown(fed, state)) < 1e-12
    assert largest(whole.flip(-1), shown(fed, state, items)) < 1e-12


def test_no_device_keeps_a_table() -> None:
    fed = small(evaluate_every=1)
    for _, row in fed.rounds(fed.start(), until=2):
        assert "hr@10" in row  # a look after each round
        assert {"score.weight", "score.bias"} == set(fed.fleet.devices.values)


def test_looks_change_no_bit_of_training() -> None:
    fed = small()
    often = changed(fed, plan=replace(fed.plan, evaluate_every=1))
    assert digest(run(fed, 3)) == digest(run(often, 3))


def test_a_user_without_training_events_is_shown_what_was_sent() -> None:
    events = [(user, (user + step) % 8, step) for user in range(3) for step in range(5)]
    clients = phones(log_of(*events, (3, 1, 0), items=8))
    clients = replace(clients, test=torch.where(torch.arange(4)[:, None] == 3, 2, clients.test))
    clients = replace(clients, log=clients.log.take(clients.log.user < 3))
    assert clients.sizes[3] == 0
    fed = small(PFedRec(8, dim=4), clients)
    state = run(fed, 2)
    own = {name: value[3] for name, value in held(fed, state).items()}
    expected = own["score.weight"] @ state.server["item"].T + own["score.bias"][:, None]
    assert largest(shown(fed, state)[3], expected) < 1e-12
    with workers(1) as pool:  # also where nobody else is asked for
        assert (
            largest(serving.scorer(fed.fleet, fed.at(state), pool)(torch.tensor([3]), None)[0], expected)
            < 1e-12
        )


@pytest.mark.parametrize("model", MODELS[:2], ids=["PFedRec", "FedNCF"])
def test_there_is_no_personal_view_where_devices_step_nothing(model: Recommender) -> None:
    with pytest.raises(BadInput, match=r"^protocol\.sends: part 'item' is stepped by devices"):
        federation(phones(checkerboard()), model, FedAvg(sends="gradients", server="sgd"))


def test_the_view_decides_what_is_selected_and_tested() -> None:
    """Validation in a run, test after it and a judgement by other candidates see the same device."""
    fed = small(PFedRec(24, dim=4), phones(checkerboard()), evaluate_every=1, rounds=2)
    rows = [row for _, row in fed.rounds(fed.start(), until=2)]
    state = run(fed, 2)
    assert rows[-1]["ndcg@10"] == fed.evaluate(state, "validation").means()["ndcg@10"]
    own = shown(fed, state)
    target = fed.clients.test[:, 0]
    ranked = changed(fed, evaluation=Evaluation(ks=(1,), select="hr@1")).evaluate(state)
    for user in range(24):
        score = own[user, 0].clone()
        seen = torch.cat([fed.clients.log.item[fed.clients.log.user == user], fed.clients.validation[user]])
        score[seen] = -torch.inf
        assert bool(ranked.values["hr@1"][user]) == (int(score.argmax()) == int(target[user]))
