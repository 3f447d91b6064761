"""Many devices at once give what one device after the other gives; and planted bugs do not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch

from tests.reference import Reference, Shape, Upload
from tests.worlds import RAGGED, SHORT, federation, held, largest, phones, ragged, silos, uploads_of
from veilrec import rounds
from veilrec.base import steps
from veilrec.base.keys import Keys
from veilrec.base.params import Rows
from veilrec.base.plan import Plan
from veilrec.clients import Clients
from veilrec.engine.devices.store import Store
from veilrec.engine.in_process import InProcess
from veilrec.examples import LocalStep, Portion
from veilrec.model import Recommender
from veilrec.models.fedmf import FedMF
from veilrec.models.fedncf import FedNCF
from veilrec.protocols.fedavg import FedAvg
from veilrec.rounds import Federation
from veilrec.wire.codec import one
from veilrec.wire.uploads import Uploads

SINGLE, DOUBLE = 1e-5, 1e-9
WORLDS: dict[str, Callable[[], Clients]] = {
    "phones": lambda: phones(ragged(RAGGED)),
    "short": lambda: phones(ragged(SHORT, 120)),
    "silos": lambda: silos(ragged((*SHORT, 1, 4), 120), 3),
}
MODELS: dict[str, tuple[type[Recommender], dict[str, Any], Shape]] = {
    "mf": (FedMF, {}, Shape()),
    "mf-bpr": (FedMF, {"objective": "bpr", "user": "exposed"}, Shape(objective="bpr")),
    "mlp": (FedNCF, {"head": (8, 4)}, Shape("mlp")),
    "mlp-bpr-exposed": (
        FedNCF,
        {"head": (8,), "user": "exposed", "objective": "bpr"},
        Shape("mlp", head=(8,), objective="bpr"),
    ),
    "neumf": (FedNCF, {"kind": "neumf", "head": (8, 4)}, Shape("neumf")),
    "private-head": (FedNCF, {"head": (8, 4), "sharing": "private"}, Shape("mlp", private_head=True)),
    "neumf-private": (
        FedNCF,
        {"kind": "neumf", "head": (6,), "sharing": "private"},
        Shape("neumf", head=(6,), private_head=True),
    ),
}


LOOPS: dict[str, tuple[Reference, dict[int, Upload]]] = {}


@dataclass(frozen=True)
class Case:
    """One world, one model, one way of training."""

    world: str = "short"
    model: str = "mf"
    protocol: FedAvg = FedAvg()  # noqa: RUF009
    plan: Plan = Plan(workers=1, evaluate_every=10**6, batch=16, lr=0.5)  # noqa: RUF009
    rounds: int = 1

    def but(self, **plan: Any) -> Case:
        return replace(self, plan=replace(self.plan, **plan))

    def engine(self) -> Federation:
        """Before the first round."""
        clients = WORLDS[self.world]()
        entry, options, shape = MODELS[self.model]
        model = entry(clients.log.n_items, clients.n_seats, dim=shape.dim, **options)
        settings = {name: getattr(self.plan, name) for name in Plan.__dataclass_fields__}
        return federation(clients, model, self.protocol, seed=3, **settings)

    def loop(self) -> tuple[Reference, dict[int, Upload]]:
        """After the last round, and what was uploaded in it; the loop knows neither chunks nor workers."""
        case = self.but(chunk=0, workers=1)
        if repr(case) not in LOOPS:
            loop = Reference(WORLDS[case.world](), MODELS[case.model][2], case.plan, case.protocol, seed=3)
            uploads = [loop.round() for _ in range(case.rounds)]
            LOOPS[repr(case)] = loop, uploads[-1]
        return LOOPS[repr(case)]


def compare(case: Case, bound: float) -> None:
    """Run both; server, devices, optimiser state and the last round's uploads must agree."""
    engine, (loop, uploads) = case.engine(), case.loop()
    state, seen = uploads_of(engine, case.rounds)
    assert engine.sample(case.rounds - 1).tolist() == sorted(uploads)
    for name, weight in loop.server.items():
        update = float((weight - loop.begin[name]).abs().max())
        assert update > 0, f"{name} has not moved"
        assert largest(state.server[name], weight) <= bound * max(1.0, update), name
    own = held(engine, state)
    for client, weights in loop.devices.items():
        for name, weight in weights.items():
            assert largest(own[name][client], weight.detach()) <= bound, (name, client)
            for kind, moment in (("m", "exp_avg"), ("v", "exp_avg_sq"), ("t", "step")):
                if f"{kind}/{name}" in own:
                    kept = loop.optimisers[client].state[weight][moment]
                    assert largest(own[f"{kind}/{name}"][client], kept) <= bound, (kind, name)
    for client, upload in uploads.items():
        exchange, place = seen[client]
        compare_upload(one(exchange.received.values, place), upload, bound)
        if engine.protocol.needs_examples:
            assert int(exchange.received.values.get("examples")[place]) == upload.examples
        else:
            assert exchange.received.values.get("examples") is None


def compare_upload(message: Any, upload: Upload, bound: float) -> None:
    for name, value in upload.values.items():
        sent = message[name]
        if "item" in name:
            assert sent.row[sent.row >= 0].tolist() == upload.touched
            sent, value = sent.value[sent.row >= 0], value[upload.touched]
        assert largest(sent, value) <= bound, name


BIG = Case("phones").but(batch=256, epochs=1)


@pytest.mark.parametrize("model", MODELS)
def test_one_round_of_ragged_clients(model: str) -> None:
    compare(replace(BIG, model=model), SINGLE)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("chunk", [1, 7, 32])
@pytest.mark.parametrize("model", ["mf", "mlp"])
def test_chunks_and_workers(model: str, chunk: int, workers: int) -> None:
    compare(replace(BIG, model=model).but(chunk=chunk, workers=workers), SINGLE)


def test_all_clients_in_one_chunk() -> None:
    compare(replace(BIG, model="neumf").but(chunk=10**6), SINGLE)


PROTOCOLS = {
    "touched": FedAvg(weigh="touched"),
    "examples": FedAvg(weigh="examples"),
    "server-sgd": FedAvg(server="sgd", server_lr={"item": 0.7, "default": 1.3}),
    "gradients": FedAvg(sends="gradients", server="sgd", server_lr=2.0),
    "gradients-touched": FedAvg(
        sends="gradients", weigh="touched", server="sgd", server_lr={"item": 9.0, "default": 0.5}
    ),
    "gradients-examples": FedAvg(sends="gradients", weigh="examples", server="sgd"),
}


@pytest.mark.parametrize("model", ["mf", "neumf"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_protocols(protocol: str, model: str) -> None:
    compare(Case("short", model, PROTOCOLS[protocol]).but(epochs=2, chunk=3), SINGLE)


@pytest.mark.parametrize("model", ["mf", "mlp", "neumf-private"])
def test_silos(model: str) -> None:
    compare(Case("silos", model).but(epochs=2, chunk=2), SINGLE)


LONG = replace(Case(rounds=20).but(precision="float64", chunk=3, batch=16), world="short")


@pytest.mark.parametrize(
    ("model", "protocol", "plan"),
    [
        ("mf", FedAvg(), {"epochs": 2, "lr": {"user": 2.0, "default": 0.5}}),
        pytest.param(
            "mlp", FedAvg(weigh="touched"), {"optimiser": "adam", "lr": 0.01}, marks=pytest.mark.slow
        ),
        pytest.param(
            "neumf",
            FedAvg(),
            {"optimiser": "adam", "lr": {"user": 0.02, "default": 0.01}, "epochs": 2},
            marks=pytest.mark.slow,
        ),
        ("private-head", FedAvg(weigh="examples"), {"optimiser": "adam", "lr": 0.01, "cohort": 0.5}),
        ("mlp", FedAvg(sends="gradients", server="adam", server_lr=0.01), {"optimiser": "adam", "lr": 0.01}),
        ("mf-bpr", FedAvg(server="adam", server_lr={"item": 0.05}), {"lr": 1.0, "cohort": 0.4, "workers": 2}),
    ],
    ids=["sgd", "adam", "adam-epochs", "adam-cohort", "gradients-adam", "server-adam-cohort"],
)
def test_twenty_rounds_in_double_precision(model: str, protocol: FedAvg, plan: dict[str, Any]) -> None:
    compare(replace(LONG, model=model, protocol=protocol).but(**plan), DOUBLE)


def test_twenty_rounds_of_silos_in_double_precision() -> None:
    case = Case("silos", "mlp", rounds=20).but(precision="float64", optimiser="adam", lr=0.01, chunk=2)
    compare(case, DOUBLE)


# Planted bugs: each must be caught by the same comparison, in a case that passes without it.


def padding_is_uploaded(patch: pytest.MonkeyPatch) -> None:
    original = FedAvg.fold

    def fold(self: FedAvg, model: Any, sent: Any, partial: Any, uploads: Uploads) -> Any:
        values = {
            n: Rows(v.row.clamp(min=0), v.value) if isinstance(v, Rows) else v
            for n, v in uploads.values.items()
        }
        return original(self, model, sent, partial, replace(uploads, values=values))

    patch.setattr(FedAvg, "fold", fold)


def clients_share_their_negatives(patch: pytest.MonkeyPatch) -> None:
    original = InProcess.client_keys

    def client_keys(self: InProcess, cohort: torch.Tensor, round: int, keys: Keys) -> Keys:
        keys = original(self, cohort, round, keys)
        return Keys(keys.value[:1].expand(len(cohort)))

    patch.setattr(InProcess, "client_keys", client_keys)


def optimiser_state_is_lost(patch: pytest.MonkeyPatch) -> None:
    original = Store.put

    def put(self: Store, cohort: torch.Tensor, values: Any) -> None:
        original(self, cohort, {n: v * 0 if n[:2] in ("m/", "v/", "t/") else v for n, v in values.items()})

    patch.setattr(Store, "put", put)


def private_parts_are_lost(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Store, "get", lambda self, cohort: self.fresh(cohort))


def padding_counts_as_examples(patch: pytest.MonkeyPatch) -> None:
    original = Portion.steps

    def steps_of(self: Portion, epoch: int, size: int, **rest: Any) -> Any:
        for batch, place in original(self, epoch, size, **rest):
            yield LocalStep(batch._replace(weight=torch.ones_like(batch.weight)), place)

    patch.setattr(Portion, "steps", steps_of)


def one_rate_for_all_parts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(steps, "rate_of", lambda rates, name: 0.5)


def negatives_are_the_same_every_round(patch: pytest.MonkeyPatch) -> None:
    original = InProcess.client_keys
    patch.setattr(InProcess, "client_keys", lambda self, cohort, round, keys: original(self, cohort, 0, keys))


def touched_instead_of_clients(patch: pytest.MonkeyPatch) -> None:
    original = FedAvg.fold

    def fold(self: FedAvg, *arguments: Any) -> Any:
        return original(replace(self, weigh="touched"), *arguments)

    patch.setattr(FedAvg, "fold", fold)


def everyone_is_sampled(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rounds, "sample", lambda plan, keys, roster, round: roster.able)


ADAM = Case("short", "mlp", rounds=2).but(precision="float64", optimiser="adam", lr=0.01, chunk=3)
PLANTED = [
    (padding_is_uploaded, Case(protocol=FedAvg(weigh="touched")), SINGLE),
    (clients_share_their_negatives, Case(), SINGLE),
    (optimiser_state_is_lost, ADAM, DOUBLE),
    (private_parts_are_lost, Case(rounds=2), SINGLE),
    (padding_counts_as_examples, Case(), SINGLE),
    (one_rate_for_all_parts, Case().but(lr={"user": 0.1, "default": 0.5}), SINGLE),
    (negatives_are_the_same_every_round, Case(rounds=2), SINGLE),
    (touched_instead_of_clients, Case(), SINGLE),
    (everyone_is_sampled, Case().but(cohort=0.5), SINGLE),
]


@pytest.mark.parametrize(
    ("plant", "case", "bound"), PLANTED, ids=lambda value: getattr(value, "__name__", "")
)
def test_planted_bugs_are_caught(
    plant: Callable[[pytest.MonkeyPatch], None], case: Case, bound: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    compare(case, bound)
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        compare(case, bound)
