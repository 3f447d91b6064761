"""What a device does in a round is the same alone and in company, and touches nothing but its own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.reference import Reference, Shape
from tests.worlds import SHORT, federation, largest, phones, ragged, run, silos
from veilrec.base.params import Params, Part, Rows, Scope
from veilrec.clients import Batch
from veilrec.engine.evaluation import Evaluation
from veilrec.engine.respond import respond
from veilrec.model import Device, Recommender, bind
from veilrec.models.fedmf import FedMF
from veilrec.models.fedncf import FedNCF
from veilrec.protocols.fedavg import FedAvg
from veilrec.rounds import Federation
from veilrec.wire.codec import one
from veilrec.wire.uploads import Letter, Uploads

MODELS: dict[str, Any] = {
    "mf": lambda seats: FedMF(120, seats, dim=4),
    "ncf": lambda seats: FedNCF(120, seats, dim=4, head=(6,), kind="neumf"),
}


def answer(fed: Federation, who: list[int], letter: Letter | None = None) -> tuple[Uploads, Params]:
    """What some devices upload and keep in the first round."""
    some = torch.tensor(who)
    letter = letter or fed.letter(fed.start(), some)
    chunk = fed.fleet.chunk(letter, some, some, fed.keys)
    found = respond(fed.fleet.task(), chunk, fed.fleet.schema(letter), fed.fleet.announced)
    return found.uploads, found.kept


def examples_of(uploads: Uploads) -> Tensor:
    """How many examples each device says that it has."""
    found = uploads.values["examples"]
    assert isinstance(found, Tensor)
    return found


@pytest.mark.parametrize(
    "protocol",
    [FedAvg(weigh="examples"), FedAvg(sends="gradients", weigh="examples", server="sgd")],
    ids=["weights", "gradients"],
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
    assert examples_of(together) is not None
    for place, client in enumerate(order):
        alone, own = answer(fed, [client])
        assert alone.loss is not None
        assert examples_of(alone) is not None
        assert largest(alone.loss[0], together.loss[place]) < 1e-6
        assert int(examples_of(alone)[0]) == int(examples_of(together)[place]) == clients.sizes[client]
        assert all(largest(own[n][0], kept[n][place]) < 1e-6 for n in own)
        for name, value in one(alone.values, 0).items():
            other = one(together.values, place)[name]
            if isinstance(value, Rows) and isinstance(other, Rows):
                assert torch.equal(other.row[: len(value.row)], value.row)
                assert bool((other.row[len(value.row) :] == -1).all())
                assert largest(value.value, other.value[: len(value.row)]) < 1e-6
            elif isinstance(value, Tensor) and isinstance(other, Tensor):
                assert largest(value, other) < 1e-6


class Latest(Recommender):
    """A score is the likeness to the mean of the latest three items: a model that reads the history."""

    history = 3

    def __init__(self, n_items: int, n_seats: int = 1) -> None:
        super().__init__()
        self.parts = {"item": Part(Scope.SHARED, rows="item")}
        self.dim = 4
        self.item = nn.Parameter(torch.empty(n_items, 4))

    def represent(self, batch: Batch) -> Tensor:
        there = (batch.history >= 0)[..., None]
        return (self.item[batch.history.clamp(min=0)] * there).sum(1) / there.sum(1).clamp(min=1)

    def loss(self, device: Device) -> Tensor:
        batch = device.batch
        user = self.represent(batch)[batch.user]
        gap = (user[:, None] * (self.item[batch.item][:, None] - self.item[batch.negative])).sum(-1)
        return (batch.weight[:, None] * nn.functional.softplus(-gap)).sum() / batch.weight.sum().clamp(min=1)

    def scores(self, batch: Batch, items: Tensor | None = None) -> Tensor:
        user = self.represent(batch)
        return user @ self.item.T if items is None else (user[:, None] * self.item[items]).sum(-1)


@pytest.mark.parametrize("seated", [1, 3])
def test_a_model_that_reads_the_history(seated: int) -> None:
    """In training ids point into the local table, in scoring into the whole one; both mean the same items."""
    log = ragged(SHORT, 120)
    clients = phones(log) if seated == 1 else silos(log, 3)
    judge = Evaluation(ks=(10,), select="hr@10")
    states = []
    for chunk in (1, 3, 100):
        fed = federation(
            clients, Latest(120), evaluation=judge, lr=5.0, batch=16, chunk=chunk, precision="float64"
        )
        states.append(run(fed, 3))
    assert all(largest(states[0].server["item"], state.server["item"]) < 1e-9 for state in states)
    whole = clients.batch(torch.tensor([0]), history=3, rows=torch.arange(120), dtype=torch.float64)
    item = states[0].server["item"]
    batch = whole._replace(history=whole.history[0])
    for seat, user in enumerate(clients.seats[0].tolist()):
        own = clients.log.item[clients.log.user == user][-3:]
        mean = item[own].mean(0) if len(own) else torch.zeros(4)
        assert largest(bind(fed.model, states[0].server, lambda m: m.represent(batch))[seat], mean) < 1e-12
    loss = [row["loss"] for _, row in fed.rounds(fed.start(), until=40)]
    assert sum(loss[-5:]) < sum(loss[:5])
    assert 0 <= fed.evaluate(states[-1]).means()["hr@10"] <= 1


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
    sent = fed.letter(fed.start(), torch.tensor([7, 6, 0]))
    before = {name: value.clone() for name, value in sent.all.items()}
    answer(fed, [7, 6, 0], sent)
    assert all(torch.equal(sent.all[name], value) for name, value in before.items())
    assert fed.fleet.devices.used == 0  # whoever asked decides what is stored
