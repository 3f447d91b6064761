"""The log is the same whatever the order of its rows, and what is held out is nobody's choice."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.worlds import log_of
from veilrec.base.keys import Keys
from veilrec.interactions import Interactions, id_hashes

Row = tuple[int, int, int, int]  # user, item, time, rating


def build(rows: list[Row], **rest: int) -> Interactions:
    user, item, time, rating = (torch.tensor(column) for column in zip(*rows, strict=True))
    users, items = [f"u{k}" for k in range(6)], [f"i{k}" for k in range(8)]
    return Interactions.build(user, item, users, items, time=time, rating=rating, **rest)


def columns(log: Interactions) -> list[list[int]]:
    assert log.time is not None
    assert log.rating is not None
    return [c.tolist() for c in (log.user, log.item, log.time, log.rating)]


@given(
    rows=st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 7), st.integers(0, 3), st.integers(1, 5)),
        min_size=1,
        max_size=40,
    ),
    random=st.randoms(use_true_random=False),
)
def test_any_order_of_rows_gives_the_same_log(rows: list[Row], random: object) -> None:
    shuffled = list(rows)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    log, other = build(rows), build(shuffled)
    assert columns(log) == columns(other)
    split, twin = log.leave_one_out(), other.leave_one_out()
    assert split.test.tolist() == twin.test.tolist()
    assert split.validation.tolist() == twin.validation.tolist()
    pairs = list(zip(log.user.tolist(), log.item.tolist(), strict=True))
    assert sorted(pairs) == sorted({(u, i) for u, i, _, _ in rows})  # each pair once
    assert log.time is not None
    earliest = {pair: min(t for u, i, t, _ in rows if (u, i) == pair) for pair in pairs}
    assert log.time.tolist() == [earliest[pair] for pair in pairs]
    assert pairs == sorted(pairs, key=lambda pair: (pair[0], earliest[pair]))  # stable: only ties are free


@given(
    rows=st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 7), st.integers(0, 3), st.just(1)),
        min_size=1,
        max_size=40,
    )
)
def test_leave_one_out_takes_each_users_last_events(rows: list[Row]) -> None:
    log = build(rows)
    split = log.leave_one_out()
    for user in range(log.n_users):
        events = log.item[log.user == user].tolist()
        kept = split.train.item[split.train.user == user].tolist()
        test, validation = int(split.test[user]), int(split.validation[user])
        assert test == (events[-1] if len(events) >= 2 else -1)
        assert validation == (events[-2] if len(events) >= 3 else -1)
        assert [*kept, *([validation] if validation >= 0 else []), *([test] if test >= 0 else [])] == events
    whole = log.leave_one_out(validation=False)
    assert whole.test.tolist() == split.test.tolist()
    assert whole.validation.eq(-1).all()
    assert len(whole.train) == len(split.train) + int((split.validation >= 0).sum())


def test_repeated_pairs_are_reported() -> None:
    log = build([(0, 1, 5, 1), (0, 1, 2, 2), (0, 2, 3, 3), (0, 1, 2, 1)])
    assert columns(log) == [[0, 0], [1, 2], [2, 3], [1, 3]]
    assert any("2 rows repeat" in sentence for sentence in log.report)
    assert len(log) == 2


def test_ties_are_broken_by_a_keyed_hash_and_not_by_ids() -> None:
    events = [(u, i, 0) for u in range(200) for i in range(10)]
    test = log_of(*events).leave_one_out().test
    counts = torch.bincount(test, minlength=10)
    assert int(counts.min()) > 5  # every item is somebody's last; by id it would be one item for all
    other = log_of(*events, split_seed=1).leave_one_out().test
    assert 100 < int((test != other).sum()) < 200


def test_ties_depend_on_the_original_ids_only() -> None:
    """Two files that number the same people and things differently hold out the same ones."""
    people, things = [f"p{k}" for k in range(30)], [f"t{k}" for k in range(12)]
    user, item = torch.arange(30).repeat_interleave(12), torch.arange(12).repeat(30)
    log = Interactions.build(user, item, people, things, time=torch.zeros(360, dtype=torch.int64))
    swap = Keys.seed(1).order(30)
    place = torch.empty_like(swap)
    place[swap] = torch.arange(30)
    renumbered = Interactions.build(
        place[user],
        11 - item,
        [people[k] for k in swap.tolist()],
        things[::-1],
        time=torch.zeros(360, dtype=torch.int64),
    )
    first = {people[u]: things[i] for u, i in enumerate(log.leave_one_out().test.tolist())}
    second = {
        renumbered.user_ids[u]: things[::-1][i]
        for u, i in enumerate(renumbered.leave_one_out().test.tolist())
    }
    assert first == second


def test_without_times_the_order_is_random_and_said_to_be() -> None:
    log = Interactions.build(torch.zeros(5, dtype=torch.int64), torch.arange(5), ["a"], list("vwxyz"))
    assert sorted(log.item.tolist()) == list(range(5))
    assert any("no times" in sentence for sentence in log.report)
    assert log.time is None


def test_users_without_events_stay() -> None:
    log = log_of((2, 0, 1), (2, 1, 2), (2, 2, 3), users=5, items=9)
    assert (log.n_users, log.n_items) == (5, 9)
    assert log.counts.tolist() == [0, 0, 3, 0, 0]
    split = log.leave_one_out()
    assert split.test.tolist() == [-1, -1, 2, -1, -1]
    assert split.validation.tolist() == [-1, -1, 1, -1, -1]
    assert split.train.item.tolist() == [0]


def test_the_input_is_not_changed(checkerboard: Interactions) -> None:
    before = {f.name: getattr(checkerboard, f.name) for f in dataclasses.fields(checkerboard)}
    copies = checkerboard.user.clone(), checkerboard.item.clone()
    checkerboard.leave_one_out()
    assert all(getattr(checkerboard, name) is value for name, value in before.items())
    assert torch.equal(checkerboard.user, copies[0])
    assert torch.equal(checkerboard.item, copies[1])


def test_the_checkerboard(checkerboard: Interactions) -> None:
    split = checkerboard.leave_one_out()
    assert split.test.tolist() == [(u - 2) % 24 for u in range(24)]
    assert split.validation.tolist() == [(u - 4) % 24 for u in range(24)]
    assert torch.equal(split.train.item % 2, split.train.user % 2)
    assert split.train.counts.tolist() == [10] * 24


def test_ids_hash_by_text() -> None:
    hashes = id_hashes(["7", "8", "seven", "7 "])
    assert len(set(hashes.tolist())) == 4
    assert torch.equal(hashes, id_hashes(["7", "8", "seven", "7 "]))


def test_values_stay_with_the_users(checkerboard: Interactions) -> None:
    values = {"age in years": torch.arange(24).double()}
    log = dataclasses.replace(checkerboard, values=values)
    for kept in (log.take(log.item < 3), log.leave_one_out().train):
        assert torch.equal(kept.values["age in years"], values["age in years"])


@pytest.mark.parametrize("mask", [True, False])
def test_take(mask: bool, checkerboard: Interactions) -> None:
    events = checkerboard.item < 3 if mask else (checkerboard.item < 3).nonzero().squeeze(1)
    some = checkerboard.take(events)
    assert len(some) == 36
    assert set(some.item.tolist()) == {0, 1, 2}
    assert some.time is not None
    assert len(some.time) == 36
