"""The places of a protocol: its own objective, its own serving, and what it sends to each device alone."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from tests.worlds import SHORT, checkerboard, federation, held, largest, phones, ragged, run, uploads_of
from veilrec.base.keys import Keys
from veilrec.base.params import Message, Params, Scope
from veilrec.engine.evaluation import Evaluation
from veilrec.model import Device, Recommender
from veilrec.models.fedmf import FedMF
from veilrec.models.fedncf import FedNCF
from veilrec.protocol import Server, Shape, State
from veilrec.protocols.fedavg import Averaging, FedAvg
from veilrec.wire.codec import Schema, Spec, one
from veilrec.wire.uploads import Letter


@dataclass(frozen=True)
class Halved(FedAvg):
    """Devices minimise half of their loss."""

    def objective(self, model: Recommender, device: Device) -> Tensor:
        return model.loss(device) / 2


class Pacing(Averaging):
    """A letter with a part for each."""

    def send(self, state: State, cohort: Tensor, keys: Keys) -> Letter:
        return (
            super().send(state, cohort, keys)._replace(each={"pace": cohort.to(state.server["item"].dtype)})
        )


@dataclass(frozen=True)
class Paced(FedAvg):
    """The server tells each device how seriously to take its loss: by its number."""

    def make_server(self, shape: Shape) -> Server:
        return Pacing(self, shape)

    def objective(self, model: Recommender, device: Device) -> Tensor:
        return device.sent["pace"] * model.loss(device)


class Backwards(Averaging):
    """A server that scores by itself, and shows the worst first."""

    def scores(self, state: State, query: Message, items: Tensor | None) -> Tensor:
        user, table = query["user"], state.server["item"]
        assert isinstance(user, Tensor)
        every = user @ table.T
        return -(every if items is None else every.gather(-1, items))


@dataclass(frozen=True)
class Upside(FedAvg):
    """Users are shown what the server makes of their vectors, with which their devices ask."""

    def query(self, model: Recommender, device: Device) -> Message:
        return {"user": model.represent(device.batch)}

    def query_schema(self, model: Recommender, dtype: torch.dtype = torch.float32) -> Schema:
        return {"user": Spec((1, model.dim), dtype)}

    def make_server(self, shape: Shape) -> Server:
        return Backwards(self, shape)


@pytest.mark.parametrize("model", [FedMF, FedNCF])
def test_devices_minimise_what_the_protocol_says(model: type[FedMF]) -> None:
    clients = phones(ragged(SHORT, 120))
    halved = federation(clients, model(120, dim=4), Halved(), lr=0.8, batch=16, precision="float64")
    slow = federation(clients, model(120, dim=4), lr=0.4, batch=16, precision="float64")
    assert largest(run(halved).server["item"], run(slow).server["item"]) < 1e-12


@pytest.mark.parametrize("chunk", [1, 5, 100])
def test_what_is_sent_to_one_device_reaches_that_device(chunk: int) -> None:
    clients = phones(checkerboard())
    paced = federation(
        clients, FedMF(24, dim=4), Paced(), lr={"user": 0.1, "default": 0.0}, chunk=chunk, precision="float64"
    )
    plain = federation(
        clients, FedMF(24, dim=4), lr={"user": 0.1, "default": 0.0}, chunk=chunk, precision="float64"
    )
    start = held(plain, plain.start())["user"]
    moved, step = held(paced, run(paced))["user"] - start, held(plain, run(plain))["user"] - start
    assert largest(moved, step * torch.arange(24)[:, None, None]) < 1e-12


@dataclass(frozen=True)
class Normed(FedAvg):
    """Devices upload their vector with length one: a computation about one device."""

    def pack(self, model: Recommender, device: Device, trained: Params, gradient: Params) -> Message:
        packed = super().pack(model, device, trained, gradient)
        return {**packed, "user": trained["user"] / trained["user"].norm()}


def test_packing_sees_one_device() -> None:
    """A protocol that inherits from one whose packing needs no such care gets it all the same."""
    fed = federation(phones(checkerboard()), FedMF(24, dim=4, user="exposed"), Normed(), chunk=7)
    state, seen = uploads_of(fed)
    own = held(fed, state)["user"]
    for client, (exchange, place) in seen.items():
        sent = one(exchange.received.values, place)["user"]
        assert isinstance(sent, Tensor)
        assert largest(sent, own[client] / own[client].norm()) < 1e-6


@pytest.mark.parametrize("sampled", [0, 5])
def test_users_are_shown_what_the_protocol_serves(sampled: int) -> None:
    clients, judge = phones(checkerboard()), Evaluation(candidates=sampled, ks=(1, 30), select="hr@1")
    places = []
    for protocol in (FedAvg(), Upside()):
        fed = federation(clients, FedMF(24, dim=4), protocol, evaluation=judge, lr=0.5)
        places.append(1 / fed.evaluate(run(fed, 2)).values["mrr@30"])  # all candidates fit the list
    assert torch.allclose(places[0] + places[1], torch.full((24,), (sampled or 12) + 2.0).double())


def test_the_schema_is_what_the_scopes_say() -> None:
    model = FedNCF(50, dim=4, head=(6,), user="exposed")
    schema, letter = FedAvg().schema(model), FedAvg().letter(model)
    assert set(schema) == set(model.names(Scope.SHARED, Scope.EXPOSED))
    assert set(FedAvg(weigh="examples").schema(model)) - set(schema) == {"examples"}
    assert set(letter) == {"round", *model.names(Scope.SHARED)}
    assert (schema["item"].table, schema["item"].shape) == (50, (4,))
    assert (letter["item"].table, letter["item"].shape) == (None, (50, 4))
    assert schema["user"].shape == (1, 4)
    assert FedAvg().schema(model, dtype=torch.float64)["user"].dtype is torch.float64
