"""A round's examples: every event once a pass, negatives uniform among the untouched, alone as in company."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch
from scipy import stats
from torch import Tensor

from tests.worlds import log_of, phones, ragged, silos
from veilrec.base.keys import Keys
from veilrec.base.plan import Plan
from veilrec.clients import Clients
from veilrec.examples import Draw, Portion, Sequences
from veilrec.wire.uploads import Letter


class Read(NamedTuple):
    """What one client reads in one pass, in original item numbers."""

    seat: list[int]
    item: list[int]
    negative: list[list[int]]


def keys_of(clients: Clients, cohort: Tensor, round: int = 0) -> Keys:
    return Keys.seed(1).fold("client").fold(round).fold(clients.tags[cohort])


def draw(clients: Clients, cohort: list[int], round: int = 0, **settings: Any) -> Portion:
    who = torch.tensor(sorted(cohort, key=lambda k: -clients.sizes[k]))  # largest first
    options = {"epochs": 1, "negatives": 4, **settings}
    return Portion.draw(clients, who, keys_of(clients, who, round), **options)


def reads(portion: Portion, size: int = 5, *, narrow: bool = False) -> dict[int, list[Read]]:
    """By client and pass, put together from the steps."""
    found: dict[int, list[Read]] = {client: [] for client in portion.cohort.tolist()}
    for epoch in range(len(portion.epochs)):
        for passes in found.values():
            passes.append(Read([], [], []))
        for batch, _ in portion.steps(epoch, size, narrow=narrow):
            for k in range(len(batch.weight)):
                meant = batch.weight[k] > 0
                table, reading = batch.rows[k], found[portion.cohort.tolist()[k]][-1]
                reading.seat.extend(batch.user[k][meant].tolist())
                reading.item.extend(table[batch.item[k][meant]].tolist())
                reading.negative.extend(table[batch.negative[k][meant]].tolist())
    return found


SIZES = (1, 30, 2, 7, 7, 90)


@pytest.fixture(params=["phones", "silos"])
def clients(request: pytest.FixtureRequest) -> Clients:
    log = ragged(SIZES, 100)
    return phones(log) if request.param == "phones" else silos(log, 3)


def test_every_event_exactly_once_in_every_pass(clients: Clients) -> None:
    for client, passes in reads(draw(clients, list(range(len(clients))), epochs=3)).items():
        row, item = clients.touched(torch.tensor([client]))
        events = sorted(zip(row.tolist(), item.tolist(), strict=True))
        assert all(sorted(zip(read.seat, read.item, strict=True)) == events for read in passes)
        if len(events) > 5:
            assert passes[0].item != passes[1].item  # shuffled anew


def test_negatives_are_never_touched_by_their_user(clients: Clients) -> None:
    for client, passes in reads(draw(clients, list(range(len(clients))), epochs=3)).items():
        row, item = clients.touched(torch.tensor([client]))
        for read in passes:
            for seat, negative in zip(read.seat, read.negative, strict=True):
                assert not set(negative) & set(item[row == seat].tolist())
                assert all(0 <= n < 100 for n in negative)


@pytest.mark.parametrize("shape", ["phones", "silos"])
def test_negatives_are_uniform_over_the_untouched(shape: str) -> None:
    log = log_of(
        *((0, i, i) for i in (0, 3, 4, 9, 10, 11)), *((1, i, i) for i in (1, 2, 6)), users=2, items=12
    )
    clients = (
        Clients.phones(log.leave_one_out()) if shape == "phones" else Clients.silos(log.leave_one_out(), 1)
    )
    counts = torch.zeros(2, 12)
    for round in range(60):
        for client, passes in reads(
            draw(clients, list(range(len(clients))), round, negatives=50, epochs=2)
        ).items():
            for read in passes:
                for seat, negative in zip(read.seat, read.negative, strict=True):
                    user = int(clients.seats[client, seat])
                    counts[user] += torch.bincount(torch.tensor(negative), minlength=12)
    for user in (0, 1):
        touched = clients.log.item[clients.log.user == user]
        assert counts[user, touched].sum() == 0
        free = counts[user][counts[user] > 0]
        assert len(free) == 12 - len(touched)  # items held out for the tests are untouched as well
        assert stats.chisquare(free.numpy()).pvalue > 1e-6


def test_negatives_and_orders_are_redrawn_each_round_and_pass(clients: Clients) -> None:
    largest = max(range(len(clients)), key=lambda k: clients.sizes[k])
    seen = [
        (tuple(read.item), tuple(map(tuple, read.negative)))
        for round in range(3)
        for read in reads(draw(clients, [largest], round, epochs=2))[largest]
    ]
    assert len({items for items, _ in seen}) == 6
    assert len({negatives for _, negatives in seen}) == 6


def test_draws_depend_on_nobody_else(clients: Clients) -> None:
    together = reads(draw(clients, list(range(len(clients))), epochs=2))
    for client in range(len(clients)):
        assert reads(draw(clients, [client], epochs=2))[client] == together[client]
    pair = reads(draw(clients, [0, 1], epochs=2), size=1000)
    assert all(pair[k] == together[k] for k in (0, 1))


def test_more_passes_begin_like_fewer(clients: Clients) -> None:
    one, three = (reads(draw(clients, [0, 1], epochs=e)) for e in (1, 3))
    assert all(three[k][0] == one[k][0] for k in (0, 1))


def test_local_tables_hold_what_is_touched_and_nothing_else(clients: Clients) -> None:
    portion = draw(clients, list(range(len(clients))), epochs=2)
    for client, passes in reads(portion).items():
        place = portion.cohort.tolist().index(client)
        rows = portion.known.rows[place]
        meant = rows[rows >= 0].tolist()
        touched = {i for read in passes for i in read.item} | {
            n for r in passes for some in r.negative for n in some
        }
        assert meant == sorted(touched)
        assert (rows[len(meant) :] == -1).all()


@pytest.mark.parametrize("size", [1, 4, 30, 1000])
def test_steps_are_full_but_for_the_last(size: int, clients: Clients) -> None:
    portion = draw(clients, list(range(len(clients))))
    total = torch.zeros(len(clients))
    for step, (batch, _) in enumerate(portion.steps(0, size)):
        filled, active = batch.weight.sum(1), len(batch.weight)
        expected = [min(size, max(0, n - step * size)) for n in portion.sizes]
        assert filled.tolist() == expected[:active]
        assert not any(expected[active:])
        total[:active] += filled
    assert total.tolist() == portion.sizes


def test_narrow_steps_read_the_same_from_smaller_tables(clients: Clients) -> None:
    portion = draw(clients, list(range(len(clients))), epochs=2)
    assert reads(portion, 7, narrow=True) == reads(portion, 7)
    for batch, place in portion.steps(0, 7, narrow=True):
        assert place is not None
        whole = portion.known.rows[: len(place)].gather(1, place)
        there = batch.rows >= 0
        assert torch.equal(batch.rows[there], whole[there])  # where each narrow row comes from
        for k, rows in enumerate(batch.rows):
            meant = batch.weight[k] > 0
            named = torch.cat([batch.item[k][meant], batch.negative[k][meant].flatten()])
            assert set(rows[named].tolist()) <= set(rows[rows >= 0].tolist())
            assert len(set(rows[rows >= 0].tolist())) == int((rows >= 0).sum())  # each row once


def test_a_user_with_one_untouched_item() -> None:
    log = log_of(*((0, i, 0) for i in range(9)), users=1, items=10)
    clients = Clients.phones(log.leave_one_out()._replace(train=log))
    (read,) = reads(draw(clients, [0], negatives=3))[0]
    assert read.negative == [[9, 9, 9]] * 9


def test_no_negatives() -> None:
    clients = phones(ragged((3, 2), 10))
    portion = draw(clients, [0, 1], negatives=0)
    assert portion.epochs[0][2].shape == (2, 3, 0)
    assert portion.known.rows.shape == (2, 3)


def test_history_points_into_the_local_table(clients: Clients) -> None:
    portion = draw(clients, list(range(len(clients))), history=4)
    for place, client in enumerate(portion.cohort.tolist()):
        for seat, user in enumerate(clients.seats[client].tolist()):
            items = clients.log.item[clients.log.user == user][-4:].tolist()
            local = portion.known.history[place, seat]
            table = portion.known.rows[place]
            assert [-1 if k < 0 else int(table[k]) for k in local.tolist()] == [-1] * (4 - len(items)) + items


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_weights_have_the_precision_asked_for(dtype: torch.dtype, clients: Clients) -> None:
    batch, _ = next(iter(draw(clients, [0], dtype=dtype).steps(0, 4)))
    assert batch.weight.dtype == dtype


LENGTH, BROUGHT = 5, 3


def sequences(clients: Clients, cohort: list[int], also: bool = True, **plan: Any) -> Sequences:
    """Ordered histories, beside items that came down for each; the last of those is none."""
    who = torch.tensor(cohort)
    items = (who[:, None] * 7 + torch.arange(BROUGHT) * 11) % clients.log.n_items
    items[:, -1] = -1
    letter, keys = Letter({}, {"items": items}), keys_of(clients, who)
    drawn = Draw(clients, who, keys, Plan(**{"negatives": 2, **plan}), letter)
    found = drawn.sequences(LENGTH, also=items if also else None)
    return found.bringing(brought=found.local(items)) if also else found


def users_of(clients: Clients, client: int) -> list[int]:
    return [user for user in clients.seats[client].tolist() if user >= 0]


def test_sequences_are_the_latest_items_in_the_order_of_time(clients: Clients) -> None:
    """Behind padding of no weight, seat after seat; one step reads all of them."""
    found = sequences(clients, list(range(len(clients))))
    ((batch, place),) = found.steps(0, 1)
    assert place is None
    assert found.paces(1) == [1] * len(clients)
    for k in range(len(clients)):
        table = batch.rows[k]
        for seat, user in enumerate(users_of(clients, k)):
            items = clients.log.item[clients.log.user == user][-LENGTH:].tolist()
            mine = slice(seat * LENGTH, (seat + 1) * LENGTH)
            meant = batch.weight[k, mine] > 0
            assert meant.tolist() == [False] * (LENGTH - len(items)) + [True] * len(items)
            assert table[batch.item[k, mine][meant]].tolist() == items
            assert batch.user[k, mine].tolist() == [seat] * LENGTH
            local = batch.history[k, seat]
            assert [-1 if row < 0 else int(table[row]) for row in local] == [-1] * (~meant).sum() + items
        assert found.sizes[k] == int(batch.weight[k].sum())


def test_sequences_bring_negatives_that_their_user_never_touched(clients: Clients) -> None:
    found = sequences(clients, list(range(len(clients)))).known
    for k in range(len(clients)):
        for seat, user in enumerate(users_of(clients, k)):
            drawn = found.rows[k][found.negative[k, seat * LENGTH : (seat + 1) * LENGTH]]
            assert drawn.shape == (LENGTH, 2)
            assert not set(drawn.flatten().tolist()) & set(
                clients.log.item[clients.log.user == user].tolist()
            )


def test_sequences_hold_the_rows_of_what_came_down_and_say_where(clients: Clients) -> None:
    found, plain = (sequences(clients, list(range(len(clients))), also=also) for also in (True, False))
    for k in range(len(clients)):
        brought, table = found.known.more["brought"][k], found.known.rows[k]
        wanted = [(k * 7) % 100, (k * 7 + 11) % 100]
        assert table[brought[:-1]].tolist() == wanted
        assert brought[-1] == -1
        rows, fewer = set(table.tolist()), set(plain.known.rows[k].tolist())
        assert rows | {-1} == fewer | set(wanted) | {-1}
    assert plain.known.more == {}


def test_sequences_depend_on_nobody_else(clients: Clients) -> None:
    everyone = sequences(clients, list(range(len(clients)))).known
    for k in range(len(clients)):
        alone = sequences(clients, [k]).known
        for name in ("item", "negative"):
            one, other = getattr(alone, name)[0], getattr(everyone, name)[k]
            meant = alone.weight[0] > 0
            assert torch.equal(alone.rows[0][one][meant], everyone.rows[k][other][meant])


def test_pairs_too_may_ask_for_more_rows_than_their_own(clients: Clients) -> None:
    also = torch.tensor([[3, 99, -1]]).expand(len(clients), -1)
    everybody = list(range(len(clients)))
    with_them, without = draw(clients, everybody, also=also), draw(clients, everybody)
    for more, fewer in zip(with_them.known.rows, without.known.rows, strict=True):
        assert set(more.tolist()) | {-1} == set(fewer.tolist()) | {3, 99, -1}
    assert reads(with_them) == reads(without)
