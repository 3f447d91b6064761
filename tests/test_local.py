"""What a device does in a round is the same alone and in company, and touches nothing but its own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.reference import Reference, Shape
from tests.worlds import SHORT, federation, largest, phones, ragged, silos
from veilrec.models.fedmf import FedMF
from veilrec.models.fedncf import FedNCF
from veilrec.params import Params, Rows
from veilrec.protocols.fedavg import FedAvg
from veilrec.rounds import Federation
from veilrec.uploads import Uploads
from veilrec.wire import one

MODELS: dict[str, Any] = {
    "mf": lambda seats: FedMF(120, seats, dim=4),
    "ncf": lambda seats: FedNCF(120, seats, dim=4, head=(6,), kind="neumf"),
}


def answer(fed: Federation, who: list[int]) -> tuple[Uploads, Params]:
    """What some devices upload and keep in the first round."""
    state, chunk = fed.start(), torch.tensor(who)
    sent = fed.protocol.send(state, chunk, fed.keys)
    _, uploads, kept = fed.respond(sent, state, state.devices.get(chunk), chunk, fed.task())
    return uploads, kept


@pytest.mark.parametrize(
    "protocol", [FedAvg(), FedAvg(sends="gradients", server="sgd")], ids=["weights", "gradients"]
)
@pytest.mark.parametrize("world", ["phones", "silos"])
@pytest.mark.parametrize("model", MODELS)
def test_alone_and_in_company(model: str, world: str, protocol: FedAvg) -> None:
    log = ragged(SHORT, 120)
    clients = phones(log) if world == "phones" else silos(log, 3)
    fed = federation(clients, MODELS[model](clients.n_seats), protocol, lr=0.5, batch=16, epochs=2)
    order = sorted(range(len(clients)), key=lambda k: -clients.sizes[k])
    together, kept = answer(fed, order)
    assert together.loss is not None
    for place, client in enumerate(order):
        alone, own = answer(fed, [client])
        assert alone.loss is not None
        assert largest(alone.loss[0], together.loss[place]) < 1e-6
        assert int(alone.examples[0]) == int(together.examples[place]) == clients.sizes[client]
        assert all(largest(own[n][0], kept[n][place]) < 1e-6 for n in own)
        for name, value in one(alone.values, 0).items():
            other = one(together.values, place)[name]
            if isinstance(value, Rows) and isinstance(other, Rows):
                assert torch.equal(other.row[: len(value.row)], value.row)
                assert bool((other.row[len(value.row) :] == -1).all())
                assert largest(value.value, other.value[: len(value.row)]) < 1e-6
            elif isinstance(value, Tensor) and isinstance(other, Tensor):
                assert largest(value, other) < 1e-6


def test_the_reported_loss_is_the_mean_over_all_examples() -> None:
    """With a rate of zero nothing moves, so the loss is that of the start on the very same examples."""
    clients = phones(ragged(SHORT, 120))
    fed = federation(clients, FedMF(120, dim=8), lr=0.0, batch=16, epochs=2)
    loop = Reference(clients, Shape(), fed.plan, FedAvg())
    order = sorted(range(len(clients)), key=lambda k: -clients.sizes[k])
    uploads, _ = answer(fed, order)
    assert uploads.loss is not None
    for place, client in enumerate(order):
        losses = []
        for shuffled, negatives in loop.passes(client):
            seat, item = torch.tensor([loop.events[client][e] for e in shuffled]).T
            negative = torch.tensor([negatives[e] for e in shuffled])
            losses.append(
                loop.shape.loss({**loop.server, **loop.device(client)}, seat, item, negative).detach()
            )
        assert largest(uploads.loss[place], torch.stack(losses).mean()) < 1e-6


def test_what_is_sent_and_held_is_not_written_to() -> None:
    clients = phones(ragged(SHORT, 120))
    fed = federation(clients, FedNCF(120, dim=4, head=(6,)), lr=0.5, batch=16, optimiser="adam")
    state, chunk = fed.start(), torch.tensor([7, 6, 0])
    sent = fed.protocol.send(state, chunk, fed.keys)
    before = {name: value.clone() for name, value in sent.all.items()}
    fed.respond(sent, state, state.devices.get(chunk), chunk, fed.task())
    assert all(torch.equal(sent.all[name], value) for name, value in before.items())
    assert state.devices.used == 0  # whoever asked decides what is stored
