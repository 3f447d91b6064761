"""Devices find what they left, and those that never took part cost nothing."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from veilrec.params import Params
from veilrec.store import Store

N = 12


def fresh(cohort: Tensor) -> Params:
    return {"user": cohort[:, None].double().expand(-1, 3).clone(), "t/user": 0.0 * cohort.double()}


def left(cohort: Tensor, number: int) -> Params:
    values = cohort[:, None].double().expand(-1, 3)
    return {"user": values + 100 * number, "t/user": cohort.double() + number}


cohorts = st.lists(st.lists(st.integers(0, N - 1), min_size=1, max_size=N, unique=True), max_size=6)


@given(rounds=cohorts, asked=st.lists(st.integers(0, N - 1), min_size=1, unique=True))
def test_what_was_put_is_got(rounds: list[list[int]], asked: list[int]) -> None:
    store = Store(N, fresh)
    last: dict[int, int] = {}
    for number, cohort in enumerate(rounds, 1):
        store.put(torch.tensor(cohort), left(torch.tensor(cohort), number))
        last |= dict.fromkeys(cohort, number)
    got = store.get(torch.tensor(asked))
    assert got["user"][:, 0].tolist() == [100.0 * last.get(k, 0) + k for k in asked]
    assert got["t/user"].tolist() == [k + last[k] if k in last else 0.0 for k in asked]
    assert store.used == len(last)
    assert all(len(column) <= N for column in store.values.values())


def test_what_is_got_is_a_copy() -> None:
    store = Store(N, fresh)
    who = torch.tensor([3, 1])
    store.put(who, fresh(who))
    store.get(who)["user"].fill_(-1)
    store.get(torch.tensor([3, 5]))["user"].fill_(-1)
    assert store.get(who)["user"][:, 0].tolist() == [3.0, 1.0]


def test_a_copy_lives_on_its_own() -> None:
    store = Store(N, fresh)
    store.put(torch.tensor([2]), left(torch.tensor([2]), 1))
    twin = store.copy()
    store.put(torch.tensor([2, 7]), left(torch.tensor([2, 7]), 2))
    assert twin.get(torch.tensor([2, 7]))["user"][:, 0].tolist() == [102.0, 7.0]
    twin.put(torch.arange(N), left(torch.arange(N), 3))
    assert store.get(torch.tensor([0, 2]))["user"][:, 0].tolist() == [0.0, 202.0]


def test_state_and_back() -> None:
    store, twin = Store(N, fresh), Store(N, fresh)
    for number in range(1, 4):
        store.put(torch.tensor([number, 9]), left(torch.tensor([number, 9]), number))
    state = store.state()
    assert len(state["value/user"]) == 4  # spare rows are left out
    twin.restore({n: v.clone() for n, v in state.items()})
    everyone = torch.arange(N)
    assert all(torch.equal(store.get(everyone)[n], twin.get(everyone)[n]) for n in ("user", "t/user"))
    for one in (store, twin):
        one.put(torch.tensor([0, 9]), left(torch.tensor([0, 9]), 5))
    assert all(torch.equal(store.get(everyone)[n], twin.get(everyone)[n]) for n in ("user", "t/user"))


def test_an_empty_store() -> None:
    store = Store(N, fresh)
    assert store.get(torch.tensor([4]))["user"].tolist() == [[4.0] * 3]
    assert (store.used, store.values) == (0, {})
    twin = Store(N, fresh)
    twin.restore(store.state())
    assert twin.used == 0


def test_devices_that_keep_nothing() -> None:
    store = Store(N, lambda cohort: {})
    store.put(torch.tensor([1, 2]), {})
    assert store.get(torch.tensor([1, 5])) == {}
