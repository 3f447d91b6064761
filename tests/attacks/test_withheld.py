"""Uploaded vectors come before granted ones, and what a device keeps is read by a grant of its own alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.canary_world import ITEMS, canary_world
from tests.worlds import everyone, federation, phones, run, silos
from veilrec.attacks.common.readings import read
from veilrec.defence import Defence
from veilrec.defences.laplace import Laplace
from veilrec.defences.pard import PARD
from veilrec.engine.probe import probe, public, see, user_vectors, withheld
from veilrec.errors import BadInput
from veilrec.lab.examiner import Examiner
from veilrec.lab.threat import Threat
from veilrec.models.fedmf import FedMF
from veilrec.models.fedncf import FedNCF
from veilrec.protocol import State
from veilrec.protocols.fedavg import FedAvg
from veilrec.rounds import Federation

LOG = canary_world()
BOTH = ("interactions", "user_vectors")


def trained(defence: Defence | None, model: Any = None, clients: Any = None) -> tuple[Federation, State]:
    clients = clients or phones(LOG, 0.4)
    model = model or FedNCF(ITEMS, clients.n_seats, dim=6, head=(8,), user="exposed")
    fed = federation(clients, model, None, defence, lr=0.5)
    return fed, run(fed, 2)


def uploaded(fed: Federation, state: State) -> Tensor:
    """``[users, dim]`` the user vectors as the server gets them."""
    found = torch.zeros(LOG.n_users, 6)
    for exchange in probe(fed, state):
        value, seats = exchange.received.values["user"], fed.clients.seats[exchange.received.cohort]
        assert isinstance(value, Tensor)
        found[seats[seats >= 0]] = value[seats >= 0].float()
    return found


# ---- what is uploaded comes first


@pytest.mark.parametrize("grants", [(), ("user_vectors",), BOTH])
def test_a_grant_does_not_take_the_noise_off_what_is_uploaded(grants: tuple[str, ...]) -> None:
    fed, state = trained(Laplace(scale=0.5))
    seen, noised = see(fed, state, grants), uploaded(fed, state)
    assert float((noised - user_vectors(fed, state)).abs().mean()) > 0.1  # noise that can be seen
    assert torch.equal(read(seen, "embeddings").features, noised)
    assert torch.equal(read(seen, "parameters").features[:, :6], noised)


def test_a_vector_that_is_not_uploaded_is_the_granted_one() -> None:
    fed, state = trained(Laplace(scale=0.5), FedMF(ITEMS, 1, dim=6))
    assert public(fed).vectors == []
    assert torch.equal(read(see(fed, state, BOTH), "embeddings").features, user_vectors(fed, state))


def test_a_user_vector_that_is_averaged_is_uploaded_all_the_same() -> None:
    """The mean that a device gets back says nothing about its user; what it sent does."""
    fed, state = trained(PARD(average_user=True, head=(8,)))
    sent = read(see(fed, state, BOTH), "embeddings").features
    assert torch.equal(sent, uploaded(fed, state))
    assert float(user_vectors(fed, state).std(0).max()) < 1e-6 < float(sent.std(0).min())


def test_a_gradient_is_no_vector() -> None:
    defence = PARD(average_user=True, head=(8,))
    fed = federation(
        phones(LOG, 0.4), FedNCF(ITEMS, 1, dim=6), FedAvg(sends="gradients", server="sgd"), defence
    )
    assert public(fed).vectors == []


# ---- what stays on the device


@pytest.mark.parametrize("place", ["phones", "silos"])
def test_what_pard_keeps_back_is_read_where_it_is_granted(place: str) -> None:
    clients = phones(LOG, 0.4) if place == "phones" else silos(LOG, 5, 0.4)
    fed, state = trained(PARD(head=(8,)), clients=clients)
    assert public(fed).withheld == ["user_re"]
    kept = fed.fleet.devices.get(everyone(fed))["user_re"]  # [clients, seats, dim]
    seats = clients.seats
    found = read(see(fed, state, ("withheld",)), "withheld").features
    assert found.shape == (LOG.n_users, 6)
    assert torch.equal(found[seats[seats >= 0]], kept[seats >= 0].float())
    assert not torch.allclose(found, uploaded(fed, state), atol=1e-3)
    assert torch.equal(withheld(fed, state).float(), found)


def test_without_the_grant_it_stays_there() -> None:
    fed, state = trained(PARD(head=(8,)))
    seen = see(fed, state, BOTH)
    assert seen.granted.withheld is None
    with pytest.raises(BadInput, match="withheld is not uploaded"):
        read(seen, "withheld")
    assert read(seen, "parameters").features.shape[1] == 12  # the vector that leaves, and the items


def test_where_nothing_is_kept_back_there_is_nothing_to_read() -> None:
    fed, state = trained(None)
    assert withheld(fed, state).shape == (LOG.n_users, 0)
    with pytest.raises(BadInput, match="no device keeps anything"):
        read(see(fed, state, ("withheld",)), "withheld")
    fed, state = trained(PARD(head=(8,)))
    with pytest.raises(BadInput, match="name no parts"):
        read(see(fed, state, ("withheld",)), "withheld", ("user_re",))


def test_the_halves_of_pard_are_attacked_by_name_and_marked_as_granted() -> None:
    threat = Threat(attributes=("gender",), also=("pard-halves",), own=False, resamples=100, permutations=99)
    examiner = Examiner.of(LOG, threat, {}, 0)
    fed, state = trained(PARD(head=(8,)))
    examiner.check(fed)
    told = examiner.examine(fed, state, 2, None, lambda *given: None)["pard-halves"]
    entry = told["attributes"]["gender"]
    assert [one["name"] for one in entry["attackers"]] == [
        f"{reads}/mlp-pard" for reads in ("embeddings", "parameters", "withheld")
    ]
    kept = "what a defence keeps on the device, to show what stays there"
    assert told["grants"] == ["which items each user touched in training", kept]
    assert kept in entry["verdict"]["sentence"]
    assert told["oracle"]
    bare, _ = trained(None)
    with pytest.raises(BadInput, match="no device keeps anything"):
        examiner.check(bare)
