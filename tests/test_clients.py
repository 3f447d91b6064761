"""The log cut by device: who sits where, what each one holds, who shares what."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.worlds import log_of, phones, ragged, silos
from veilrec.base.keys import Keys
from veilrec.clients import Batch, Clients
from veilrec.errors import BadInput
from veilrec.interactions import Interactions


def known(clients: Clients, cohort: list[int], history: int = 0) -> Batch:
    rows = torch.arange(clients.log.n_items)
    return clients.batch(torch.tensor(cohort), history=history, rows=rows, dtype=torch.float32)


def test_phones_hold_one_user_each(checkerboard: Interactions) -> None:
    clients = phones(checkerboard)
    assert (len(clients), clients.n_seats) == (24, 1)
    assert clients.sizes == [10] * 24
    assert clients.test[:, 0].tolist() == [(u - 2) % 24 for u in range(24)]
    assert clients.validation[:, 0].tolist() == [(u - 4) % 24 for u in range(24)]
    assert clients.name(7) == "person 7"


@pytest.mark.parametrize("n", [1, 5, 7, 24])
def test_silos_seat_every_user_once_and_evenly(n: int, checkerboard: Interactions) -> None:
    clients = silos(checkerboard, n)
    seated = clients.seats[clients.seats >= 0]
    assert sorted(seated.tolist()) == list(range(24))
    counts = (clients.seats >= 0).sum(1)
    assert int(counts.max() - counts.min()) <= 1
    assert clients.sizes == (10 * counts).tolist()
    taken = clients.seats >= 0
    assert torch.equal(clients.test[taken], (seated - 2) % 24)
    assert (clients.test[~taken] == -1).all()
    if n > 1:
        assert clients.name(n - 1) == f"silo {n - 1}" if n < 24 else clients.name(0).startswith("person")


def test_who_sits_where_is_a_matter_of_keys(checkerboard: Interactions) -> None:
    split = checkerboard.leave_one_out()
    first, again, other = (Clients.silos(split, 4, keys=Keys.seed(s)).seats for s in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("n", [0, 25, -1])
def test_impossible_numbers_of_silos_are_refused(n: int, checkerboard: Interactions) -> None:
    with pytest.raises(BadInput, match="silos"):
        silos(checkerboard, n)


@pytest.mark.parametrize("n", [0, 3])
def test_touched_lists_each_clients_own_events(n: int) -> None:
    log = ragged((3, 1, 8, 2, 5), 40)
    clients = silos(log, n) if n else phones(log)
    cohort = torch.tensor([2, 0])
    row, item = clients.touched(cohort)
    for k, client in enumerate(cohort.tolist()):
        for seat, user in enumerate(clients.seats[client].tolist()):
            mine = item[row == k * clients.n_seats + seat].tolist()
            assert mine == clients.log.item[clients.log.user == user].tolist()  # in time order


def test_history_is_the_latest_items_in_time_order() -> None:
    log = log_of(*((0, i, 9 - i) for i in range(6)), (1, 3, 0), (1, 4, 1), (1, 5, 2), users=3, items=8)
    clients = Clients.phones(log.leave_one_out())
    history = known(clients, [0, 1, 2], history=3).history[:, 0]
    assert history.tolist() == [[4, 3, 2], [-1, -1, 3], [-1, -1, -1]]
    assert known(clients, [0, 1, 2], history=0).history.shape == (3, 1, 0)


def test_history_in_silos_is_each_users_own(checkerboard: Interactions) -> None:
    clients = silos(checkerboard, 5)
    history = known(clients, [4, 1], history=2).history
    for k, client in enumerate((4, 1)):
        for seat, user in enumerate(clients.seats[client].tolist()):
            expected = [-1, -1] if user < 0 else clients.log.item[clients.log.user == user][-2:].tolist()
            assert history[k, seat].tolist() == expected


def test_attributes_and_features_of_a_cohort(checkerboard: Interactions) -> None:
    clients = silos(checkerboard, 5)
    batch = known(clients, [3, 4])
    seats = clients.seats[[3, 4]]
    assert torch.equal(batch.attributes["gender"], torch.where(seats >= 0, seats % 2, -1))
    assert batch.features.shape == (2, 5, 0)
    assert batch.item.shape == (2, 0)


def test_features_are_each_users_own(checkerboard: Interactions) -> None:
    features = Keys.seed(0).normal(24, 3, dtype=torch.float64)
    clients = phones(replace(checkerboard, features=features))
    assert torch.equal(known(clients, [5, 2]).features[:, 0], features[[5, 2]].float())


def test_consent_is_a_share_keyed_by_the_person(checkerboard: Interactions) -> None:
    log = ragged((1,) * 400, 10)
    some, more = phones(log, 0.2).consents, phones(log, 0.5).consents
    assert 55 < int(some["gender"].sum()) < 105
    assert bool((some["gender"] <= more["gender"]).all())  # whoever shares at 0.2 shares at 0.5
    assert not phones(log).consents["gender"].any()
    assert phones(log, 1.0).consents["age"].all()
    spread = silos(log, 7, 0.2)
    users = spread.seats[spread.consents["gender"]]
    assert sorted(users.tolist()) == some["gender"][:, 0].nonzero().squeeze(1).tolist()  # the same people


def test_consent_by_attribute() -> None:
    split = ragged((1,) * 50, 10).leave_one_out()
    clients = Clients.phones(split, consent={"age": 1.0})
    assert clients.consents["age"].all()
    assert not clients.consents["gender"].any()


def test_an_empty_seat_consents_to_nothing(checkerboard: Interactions) -> None:
    clients = silos(checkerboard, 5, 1.0)
    assert torch.equal(clients.consents["gender"], clients.seats >= 0)


def test_everybody_has_a_place(checkerboard: Interactions) -> None:
    users = torch.arange(checkerboard.n_users).flip(0)
    for clients in (phones(checkerboard), silos(checkerboard, 5, 0.0)):
        client, seat = clients.place_of(users)
        assert torch.equal(clients.seats[client, seat], users)


def test_tags_follow_names_and_not_places() -> None:
    log = log_of(*((u, i, i) for u in range(4) for i in range(4)))
    clients = phones(log)
    renamed = Clients.phones(
        Interactions.build(
            3 - log.user, log.item, list(log.user_ids)[::-1], log.item_ids, time=log.time
        ).leave_one_out()
    )
    assert torch.equal(clients.tags, renamed.tags.flip(0))
    assert len(set(clients.tags.tolist())) == 4


def test_moving_to_a_device_keeps_everything(checkerboard: Interactions) -> None:
    clients = silos(checkerboard, 5, 0.5)
    moved = clients.to("cpu")
    assert torch.equal(moved.seats, clients.seats)
    assert torch.equal(moved.log.item, clients.log.item)
    assert torch.equal(moved.consents["gender"], clients.consents["gender"])
    assert moved.sizes == clients.sizes
