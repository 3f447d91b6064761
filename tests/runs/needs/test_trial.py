"""A trial of a few devices tells what a whole chunk takes, and leaves no trace."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

from tests.worlds import digest, federation, phones, run, silos
from veilrec.clients import Clients
from veilrec.datasets.synthetic import synthetic
from veilrec.defences.laplace import Laplace
from veilrec.defences.pard import PARD
from veilrec.engine.respond import Chunk, respond
from veilrec.models.fedmf import FedMF
from veilrec.models.fedncf import FedNCF
from veilrec.models.fedrap import FedRAP
from veilrec.models.fedvae import FedVAE
from veilrec.protocols.fedavg import FedAvg
from veilrec.rounds import Federation
from veilrec.runs.needs.live import grown
from veilrec.runs.needs.trial import Line, Tryout

WORLD = synthetic(users=120, items=150)
SENT = FedAvg(sends="gradients", server="adam", server_lr=0.01)
CASES = {
    "FedMF": (partial(FedMF, dim=16), FedAvg(), None, {}),
    "FedNCF with gradients": (partial(FedNCF, dim=16, head=(16,)), SENT, None, {"optimiser": "adam"}),
    "many steps": (partial(FedNCF, dim=16, head=(16,)), FedAvg(), None, {"batch": 4}),
    "several epochs": (partial(FedMF, dim=16), FedAvg(), None, {"epochs": 4}),
    "FedRAP": (partial(FedRAP, dim=8), SENT, None, {"optimiser": "adam"}),
    "FedVAE": (partial(FedVAE, hidden=32, dim=8), SENT, None, {"batch": 4096}),
    "noise": (partial(FedMF, dim=16, user="exposed"), FedAvg(), Laplace(rows="all"), {}),
    "PARD": (partial(FedNCF, dim=16, head=(16,), user="exposed"), FedAvg(), PARD(head=(16,)), {}),
}


def made(name: str, clients: Clients | None = None) -> Federation:
    model, protocol, defence, plan = CASES[name]
    people = clients or phones(WORLD, consent=0.3)
    seats = people.n_seats
    rest: dict[str, Any] = plan
    return federation(people, model(WORLD.n_items, seats), protocol, defence, chunk=20, **rest)


def taken(fed: Federation) -> int:
    """The bytes that a real chunk of the largest devices takes in the first round."""
    fleet, some = (
        fed.fleet,
        torch.tensor(fed.fleet.clients.sizes).argsort(descending=True)[:20],
    )
    letter = fed.letter(fed.server.start(fed.keys.fold("server")), some)
    keys, schema = fleet.client_keys(some, 0), fleet.schema(letter)
    chunk = Chunk(fleet.clients, some, letter, fleet.fresh(some), keys, fleet.first_keys(some))
    return grown(lambda: respond(fleet.task(), chunk, schema, fleet.announced))[1].most


@pytest.mark.parametrize("name", [name for name in CASES if name != "PARD"])
def test_a_few_devices_tell_what_many_take(name: str) -> None:
    fed = made(name)
    largest = torch.tensor(fed.fleet.clients.sizes).argsort(descending=True)[:20]
    told = Tryout(fed).chunk(largest).work.of(20)
    assert taken(fed) / 1.35 < told < taken(fed) * 1.35


@pytest.mark.parametrize(
    "name", ["FedMF", *(pytest.param(one, marks=pytest.mark.slow) for one in ("FedRAP", "PARD"))]
)
def test_a_trial_changes_nothing_of_the_run(name: str) -> None:
    before, after = made(name), made(name)
    trial = Tryout(after, rows=30)
    trial.chunk(after.able[:5])
    trial.look(after.able[:5])
    trial.reading(after.able[:5], ("user_vectors",), "updates", (), 64)
    assert digest(run(after, 2)) == digest(run(before, 2))
    assert not Tryout(made(name)).fleet.__dict__.get("devices"), "nobody's store is made"


def test_silos_and_lone_devices_are_tried_as_well() -> None:
    for fed in (made("FedMF", silos(WORLD, 3)), made("FedMF", silos(WORLD, 1))):
        trial = Tryout(fed)
        assert trial.chunk(fed.able).work.of(len(fed.able)) > 0
        assert trial.look(fed.able).of(1) > 0


def test_what_everybody_posts_is_there() -> None:
    trial = Tryout(made("PARD"))
    consents = trial.fleet.clients.consents["gender"]
    assert len(trial.state.posts.owner) == int(consents.sum())


def test_rows_of_a_devices_own_tables_count() -> None:
    fed = made("FedRAP")
    few, many = (Tryout(fed, rows=rows).chunk(fed.able[:5]).work.each for rows in (0, 150))
    assert many > few + 150 * 8 * 4


def test_a_line_through_what_was_tried() -> None:
    assert Line.through(10, 30, 3) == (0, 10)
    assert Line.through(10, 12, 3).of(10) == 19
    assert Line.through(7, 7, 1).of(4) == 28
