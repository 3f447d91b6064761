"""What every recommender must do, whoever wrote it: the tests are run on all that the catalogue lists."""

from __future__ import annotations

import copy
import sys
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tests.contract import Case, Scene, cases, plain_first
from tests.worlds import checkerboard, federation, held, largest, phones, ragged, run, silos, with_scope
from veilrec.base.keys import Keys
from veilrec.base.params import KEPT, Scope, part_of
from veilrec.clients import Batch, Clients
from veilrec.engine.evaluation import Evaluation
from veilrec.interactions import Interactions
from veilrec.model import Recommender, bind, overrides

CASES = cases("models")
FLOOR = "Popularity"
SEATED = [*plain_first([1], CASES, varied=1), *plain_first([4], CASES)]


@pytest.fixture(params=CASES, ids=str)
def case(request: pytest.FixtureRequest) -> Case:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(params=["phones", "silos"])
def clients(request: pytest.FixtureRequest) -> Clients:
    log = ragged((1, 3, 5, 6, 9, 14), 30)
    return phones(log) if request.param == "phones" else silos(log, 2)


@pytest.fixture
def scene(case: Case, clients: Clients) -> Scene:
    return Scene.of(case.build(30, clients.n_seats), clients)


def of_client(batch: Batch, k: int) -> Batch:
    """The batch of one client of a cohort."""
    own = [v[k] if isinstance(v, Tensor) else {n: a[k] for n, a in v.items()} for v in batch]
    return Batch(*own)  # type: ignore[arg-type]


def test_it_names_its_source(case: Case) -> None:
    assert "Paper" in (sys.modules[case.entry.__module__].__doc__ or "")


def test_every_weight_belongs_to_a_part(case: Case) -> None:
    model = case.build(30, 2)
    assert isinstance(model, Recommender)
    assert {part_of(name) for name, _ in model.named_parameters()} == set(model.parts)
    assert not list(model.named_buffers())
    for name, part in model.parts.items():
        lengths = {len(w) for n, w in model.named_parameters() if part_of(n) == name}
        assert part.rows != "item" or lengths == {30}
        assert part.rows != "user" or lengths == {2}


def test_shapes(scene: Scene, clients: Clients) -> None:
    seats, active = clients.n_seats, len(scene.device.keys.value)
    assert scene.mapped(lambda m, d: m.loss(d)).shape == (active,)
    assert scene.mapped(lambda m, d: m.represent(d.batch)).shape == (active, seats, scene.model.dim)
    assert scene.mapped(lambda m, d: m.scoring_user(d.batch)).shape == (active, seats, scene.model.dim)


def test_the_batched_loss_is_the_loss(scene: Scene) -> None:
    if not overrides(scene.model, Recommender, "cohort_loss"):
        pytest.skip("no batched form")
    alone = scene.mapped(lambda m, d: m.loss(d))
    together = scene.model.cohort_loss(scene.params, scene.device)
    assert largest(alone, together) < 1e-12
    slow = scene.slopes(lambda params: scene.mapped(lambda m, d: m.loss(d), params))
    fast = scene.slopes(lambda params: scene.model.cohort_loss(params, scene.device))
    assert slow.keys() == fast.keys()
    assert all(largest(slow[name], fast[name]) < 1e-12 for name in slow)


def test_the_batched_loss_of_what_all_were_sent_alike(scene: Scene) -> None:
    """Before the first step SHARED weights are one tensor behind a stack of views."""
    if not overrides(scene.model, Recommender, "cohort_loss"):
        pytest.skip("no batched form")
    rows = scene.device.batch.rows.clamp(min=0)
    alike = {
        name: value[:1].expand_as(value)
        for name, value in scene.params.items()
        if name in scene.model.names(Scope.SHARED) and scene.model.parts[part_of(name)].rows is None
    }
    tables = {
        name: scene.device.sent[name].index_select(0, rows.reshape(-1)).unflatten(0, rows.shape)
        for name, value in scene.params.items()
        if scene.model.parts[part_of(name)].rows == "item" and name in scene.device.sent
    }
    twin = replace(scene, params={**scene.params, **alike, **tables})
    assert (
        largest(twin.mapped(lambda m, d: m.loss(d)), twin.model.cohort_loss(twin.params, twin.device)) < 1e-12
    )
    slow = twin.slopes(lambda params: twin.mapped(lambda m, d: m.loss(d), params))
    fast = twin.slopes(lambda params: twin.model.cohort_loss(params, twin.device))
    assert all(largest(slow[name], fast[name]) < 1e-12 for name in slow)


def test_the_loss_of_one_device_is_its_own(scene: Scene) -> None:
    """One device alone, without vmap, computes what it computes among the others."""
    losses = scene.mapped(lambda m, d: m.loss(d))
    for k in range(len(losses)):
        device = scene.device._replace(
            batch=of_client(scene.device.batch, k), keys=Keys(scene.device.keys.value[k])
        )
        params = {name: value[k] for name, value in scene.params.items()}
        loss = bind(scene.model, params, lambda m, d: m.loss(d), device)
        assert loss.dim() == 0
        assert largest(loss, losses[k]) < 1e-12


def test_padding_changes_nothing(scene: Scene) -> None:
    batch = scene.device.batch
    blank = batch.weight == 0
    assert blank.any()  # the scene is chosen so that there is some
    other = batch._replace(
        item=torch.where(blank, batch.item * 0 + 1, batch.item),
        negative=torch.where(blank[..., None], batch.negative * 0 + 2, batch.negative),
    )
    twin = replace(scene, device=scene.device._replace(batch=other))
    assert largest(scene.mapped(lambda m, d: m.loss(d)), twin.mapped(lambda m, d: m.loss(d))) < 1e-12
    rows = {n: v.shape[1] for n, v in scene.params.items() if scene.model.parts[part_of(n)].rows == "item"}
    used = [set(batch.rows[k][batch.rows[k] >= 0].tolist()) for k in range(len(blank))]
    slopes = scene.slopes(lambda params: scene.mapped(lambda m, d: m.loss(d), params))
    for name in rows.keys() & slopes.keys():
        for k, own in enumerate(used):
            assert not slopes[name][k, len(own) :].any()  # rows that pad the local table get no gradient


def test_only_what_is_declared_gets_gradients(scene: Scene) -> None:
    slopes = scene.slopes(lambda params: scene.mapped(lambda m, d: m.loss(d), params))
    assert slopes.keys() <= set(scene.model.names())
    assert all(slope.isfinite().all() for slope in slopes.values())
    assert {n for n in scene.model.names() if scene.model.parts[part_of(n)].helper}.isdisjoint(slopes)


def test_scores_of_some_items_are_scores_of_all(scene: Scene, clients: Clients) -> None:
    """When a device scores, its table is the whole one."""
    cohort = torch.arange(len(clients))
    keys = Keys.seed(5).fold(clients.tags)
    rows = torch.arange(30)
    batch = clients.batch(cohort, history=scene.model.history, rows=rows, dtype=torch.float64)
    shared = set(scene.model.names(Scope.SHARED))
    params = {
        name: (Keys.seed(2) if name in shared else keys)
        .fold(name)
        .normal(*scene.model.get_parameter(name).shape, dtype=torch.float64)
        for name in scene.model.names()
    }
    items = keys.fold("items").integers(30, clients.n_seats, 7)
    whole, some = [], []
    for k in range(len(clients)):
        own = {n: w if n in shared else w[k] for n, w in params.items()}
        mine = of_client(batch, k)._replace(rows=batch.rows)  # the same rows for all
        whole.append(bind(scene.model, own, lambda m, b: m.scores(b), mine))
        some.append(bind(scene.model, own, lambda m, b, i: m.scores(b, i), mine, items[k]))
        assert whole[-1].shape == (clients.n_seats, 30)
        assert largest(whole[-1].gather(1, items[k]), some[-1]) < 1e-12
    if overrides(scene.model, Recommender, "cohort_scores"):
        if scene.model.personal:  # what all were sent has become each device's own
            params |= {n: params[n].expand(len(clients), *params[n].shape) for n in shared}
        assert largest(scene.model.cohort_scores(params, batch), torch.stack(whole)) < 1e-12
        assert largest(scene.model.cohort_scores(params, batch, items), torch.stack(some)) < 1e-12


def test_fresh_weights_are_each_devices_own(case: Case) -> None:
    model = case.build(30, 2)
    keys = Keys.seed(0).fold(torch.arange(5))
    for name, weight in model.named_parameters():
        together = model.initial(name, keys)
        assert together.shape == (5, *weight.shape)
        assert together.isfinite().all()
        assert torch.equal(together[3], model.initial(name, Keys(keys.value[3])))


@pytest.mark.parametrize(
    ("precision", "case"), [*plain_first(["float32"], CASES), *plain_first(["float64"], CASES, varied=-1)]
)
def test_the_loss_falls(case: Case, precision: str, checkerboard: Interactions) -> None:
    """Where half of the items are never touched, so that even one list for everyone can learn."""
    clients = phones(checkerboard.take(checkerboard.item < 12))
    model = case.build(24, 1)
    before = copy.deepcopy(model.state_dict())
    fed = federation(clients, model, rounds=25, optimiser="adam", lr=0.02, batch=64, precision=precision)
    losses = [row["loss"] for _, row in fed.rounds(fed.start())]
    assert all(torch.tensor(losses).isfinite())
    assert sum(losses[-5:]) < sum(losses[:5])
    after = model.state_dict()  # the module is only the architecture: nobody writes into it
    assert all(
        a.nan_to_num().equal(b.nan_to_num()) for a, b in zip(before.values(), after.values(), strict=True)
    )


@pytest.mark.parametrize(("seated", "case"), plain_first([1, 4], CASES))
def test_it_ranks_the_checkerboard(case: Case, seated: int, checkerboard: Interactions) -> None:
    """A held-out even item stands above all odd ones for an even user, and the other way round."""
    model = case.build(24, 1)
    own = {name: model.parts[part_of(name)].rows for name in model.names(Scope.EXPOSED, Scope.PRIVATE)}
    if (not model.history and set(own.values()) <= {"item"}) or not model.names(Scope.SHARED):
        pytest.skip("the same list for everyone, or one that is learned item by item")
    slow = {part_of(name): 0.001 for name, rows in own.items() if rows == "item"}  # or devices learn by heart
    clients = phones(checkerboard) if seated == 1 else silos(checkerboard, 24 // seated)
    judge = Evaluation(ks=(1, 2), select="hr@2")
    fed = federation(
        clients,
        case.build(24, clients.n_seats),
        evaluation=judge,
        rounds=30 if "user" in model.parts else 60,  # score functions that begin alike take longer to part
        optimiser="adam",
        lr={**slow, "default": 0.05},
        batch=16,
    )
    best, score = -1.0, 0.0  # as in a real run: chosen on validation items, then looked at once
    for state, _ in fed.rounds(fed.start()):
        look = fed.evaluate(state, "validation").means()["hr@2"] if state.round % 10 == 0 else -1.0
        if look > best:
            best, score = look, fed.evaluate(state).means()["hr@1"]
        if best == 1.0:  # no later look is better
            break
    assert best > 0.9  # the test item is as good an answer: two places for two items
    assert score > 0.9


def test_a_part_can_be_exposed(case: Case, checkerboard: Interactions) -> None:
    model = case.build(24, 1)
    own = [name for name, part in model.parts.items() if part.scope is not Scope.SHARED]
    for name in own:
        for scope in (Scope.EXPOSED, Scope.PRIVATE):
            if scope is Scope.EXPOSED and model.parts[name].rows == "item":
                continue  # what a model reads of an item table depends on whose it is
            moved = with_scope(model, name, scope)
            assert moved.parts[name].scope is scope
            fed = federation(phones(checkerboard), moved)
            assert any(part_of(n.removeprefix(KEPT)) == name for n in held(fed, run(fed)))


def test_a_defence_may_change_the_scoring_vector(case: Case, checkerboard: Interactions) -> None:
    """The engine must not take a batched form that knows nothing of the change."""
    twice = {"scoring_user": lambda self, batch: 2 * self.represent(batch)}
    slow = {name: getattr(Recommender, name) for name in ("cohort_loss", "cohort_scores")}
    states, scored = [], []
    for methods in (twice, {**twice, **slow}):
        model = case.build(24, 1)
        model.__class__ = type("Guarded", (type(model),), methods)
        fed = federation(phones(checkerboard), model, lr=0.5, batch=4, precision="float64")
        states.append(run(fed, 2))
        scored.append(fed.evaluate(states[-1]))
    assert all(largest(states[0].server[n], states[1].server[n]) < 1e-9 for n in states[0].server)
    assert all(largest(scored[0].values[m], scored[1].values[m]) < 1e-9 for m in scored[0].values)


@pytest.mark.parametrize(("seated", "case"), SEATED)
def test_the_batched_form_trains_like_the_slow_one(case: Case, seated: int) -> None:
    """Over several steps, epochs and rounds, whichever part moves; no bias starts on a ReLU's edge."""
    board = checkerboard(12)
    clients = phones(board) if seated == 1 else silos(board, 12 // seated)
    slow = {name: getattr(Recommender, name) for name in ("cohort_loss", "cohort_scores")}

    def initial(self: Recommender, name: str, keys: Keys) -> Tensor:
        return 0.3 * keys.normal(*self.get_parameter(name).shape)

    alone = [] if case.varied or seated > 1 else [{name} for name in case.build(12, 1).parts]
    for trains in (None, *alone):
        states = []
        for methods in ({}, slow):
            model = case.build(12, clients.n_seats)
            model.__class__ = type("Twin", (type(model),), {**methods, "initial": initial})
            fed = federation(clients, model, lr=0.5, batch=3, epochs=2, precision="float64")
            states.append(run(fed, 1 if trains else 2, trains=trains))
        assert all(largest(states[0].server[n], states[1].server[n]) < 1e-9 for n in states[0].server), trains


def test_the_floor_is_the_counts() -> None:
    """One round of plain descent: each item's score is the number of its touches, per device."""
    log = ragged((1, 3, 5, 6, 9, 14), 30)
    (floor,) = [case for case in CASES if case.name == FLOOR]
    clients = phones(log)
    state = run(federation(clients, floor.build(30, 1), lr=1.0, batch=4, chunk=2))
    counts = torch.bincount(clients.log.item, minlength=30)
    assert largest(state.server["item"] * len(clients), counts) < 1e-5
