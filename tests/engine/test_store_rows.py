"""What devices keep row by row: each its own rows, in memory and in files, through copies and checkpoints."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.worlds import (
    SHORT,
    Both,
    both,
    digest,
    emptied,
    everyone,
    federation,
    held,
    phones,
    ragged,
    resume,
    run,
)
from veilrec.base.params import KEPT, ROW, Params
from veilrec.base.tensors import read, write
from veilrec.engine.devices import store as stores
from veilrec.engine.devices.shelf import COUNT
from veilrec.engine.devices.store import Keeps, Store
from veilrec.errors import Corrupted
from veilrec.models.fedrap import FedRAP
from veilrec.rounds import Federation
from veilrec.runs.checkpoint import flat, unflat
from veilrec.runs.folder import MODEL, USERS, _state_of, save_state

N, ITEMS = 7, 9
EITHER = pytest.mark.parametrize("keeps", ["memory", "disk"])


def fresh(cohort: Tensor, names: Collection[str] | None = None) -> Params:
    c = len(cohort)
    return {
        "user": cohort[:, None].double(),
        "kept/table": torch.zeros(c, 0, 2),
        "kept/m/table": torch.zeros(c, 0, 2),
        "t/table": torch.zeros(c),
        ROW: torch.zeros(c, 0, dtype=torch.int64),
    }


def left(rows: dict[int, list[int]], number: int) -> Params:
    """What devices leave in a round: each value tells the round, the device and the row."""
    longest = max(len(some) for some in rows.values())
    row = torch.tensor([some + [-1] * (longest - len(some)) for some in rows.values()], dtype=torch.int64)
    row = row.reshape(len(rows), longest)
    value = (row + 10 * torch.tensor(list(rows))[:, None] + 100 * number) * (row >= 0)
    both = torch.stack([value, -value], 2).float()
    count = torch.full((len(rows),), float(number))
    user = torch.tensor(list(rows))[:, None] + 1000.0 * number
    return {"user": user.double(), "kept/table": both, "kept/m/table": 2 * both, "t/table": count, ROW: row}


def made(keeps: Keeps, folder: Path | None = None) -> Store:
    return Store.of(keeps, N, fresh, torch.device("cpu"), folder, rows=ITEMS)


def same(a: Params, b: Params) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


Rounds = list[dict[int, list[int]]]
cohorts = st.dictionaries(
    st.integers(0, N - 1),
    st.lists(st.integers(0, ITEMS - 1), unique=True, max_size=ITEMS).map(sorted),
    min_size=1,
    max_size=N,
)
ROUNDS: Rounds = [{3: [1, 4, 8], 1: []}, {1: [0, 2], 5: [7]}, {3: [0, 1, 4, 6, 8]}, {0: [5]}]


def filled(keeps: Keeps, rounds: Rounds = ROUNDS) -> Store:
    store = made(keeps)
    for number, rows in enumerate(rounds, 1):
        store.put(torch.tensor(list(rows)), left(rows, number))
    return store


@given(st.lists(cohorts, max_size=5), st.lists(st.integers(0, N - 1), min_size=1, unique=True))
def test_what_was_put_is_got(rounds: Rounds, asked: list[int]) -> None:
    last: dict[int, Params] = {}
    for number, rows in enumerate(rounds, 1):
        last |= {client: left({client: some}, number) for client, some in rows.items()}
    for keeps in ("memory", "disk"):
        store = filled(keeps, rounds)
        got = store.get(torch.tensor(asked))
        for place, client in enumerate(asked):
            own = last.get(client, fresh(torch.tensor([client])))
            count = own[ROW].shape[1]
            assert got[ROW][place, count:].tolist() == [-1] * (got[ROW].shape[1] - count)
            assert not got["kept/table"][place, count:].any()
            for name, value in own.items():
                mine = got[name][place, :count] if name.startswith(KEPT) else got[name][place]
                assert torch.equal(mine, value[0]), (keeps, name)
        some = store.get(torch.tensor(asked), [ROW, "user"])
        assert same(some, {name: got[name] for name in (ROW, "user")})


@pytest.mark.parametrize("after", ["memory", "disk"])
@EITHER
def test_state_and_back(keeps: Keeps, after: Keeps, tmp_path: Path) -> None:
    store, twin = filled(keeps), filled(after, [{6: [1]}])  # what was there before is gone
    before = store.get(torch.arange(N))
    store.snapshot(tmp_path / "snap")
    write(tmp_path / "state", store.state())
    store.put(torch.arange(N), left({k: list(range(ITEMS)) for k in range(N)}, 9))
    twin.restore(read(tmp_path / "state"), tmp_path / "snap")
    assert same(twin.get(torch.arange(N)), before)
    assert twin.clients().tolist() == [3, 1, 5, 0]
    twin.put(torch.tensor([5]), left({5: [2, 3]}, 6))
    assert twin.get(torch.tensor([5]))[ROW].tolist() == [[2, 3]]


@EITHER
def test_an_emptied_store_holds_nothing(keeps: Keeps) -> None:
    store = filled(keeps)
    store.restore({"slot": torch.full((N,), -1)})
    assert same(store.get(torch.arange(N)), fresh(torch.arange(N)))
    assert len(store.rows) == store.rows.nbytes == 0


def test_the_same_bytes_from_memory_and_from_files(tmp_path: Path) -> None:
    files = [write(tmp_path / k, dict(filled(k).columns())) for k in ("memory", "disk")]
    assert files[0] == files[1]
    found = read(tmp_path / "disk")
    assert found[COUNT].tolist() == [5, 2, 1, 1]
    assert found[ROW].tolist() == [0, 1, 4, 6, 8, 0, 2, 7, 5]
    assert found["kept/table"].shape == (9, 2)
    assert dict(made("disk").columns()) == {}


def test_files_where_all_rows_would_be_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """By what it is once everybody has touched everything."""
    each = 8 + 4 + 8 + ITEMS * (8 + 2 * 8)
    monkeypatch.setattr(stores, "MUCH", N * each)
    assert made("auto").shelf is None
    monkeypatch.setattr(stores, "MUCH", N * each - 1)
    assert made("auto").shelf is not None


def test_files_are_as_long_as_what_is_kept(tmp_path: Path) -> None:
    store = made("disk", tmp_path / "devices")
    store.put(torch.tensor([3, 4]), left({3: [1, 2, 5], 4: []}, 1))
    sizes = [(tmp_path / "devices" / name).stat().st_size for name in ("00000003", "00000004")]
    assert sizes == [8 + 4 + 8 + 3 * (8 + 2 * 8), 8 + 4 + 8]
    os.truncate(tmp_path / "devices" / "00000003", sizes[0] - 1)
    with pytest.raises(Corrupted, match=r"00000003: cannot be read .the file is too short"):
        store.get(torch.tensor([3, 4]))
    store.put(torch.tensor([3]), left({3: [1]}, 2))
    os.truncate(tmp_path / "devices" / "00000004", 15)
    with pytest.raises(Corrupted, match=r"00000004: cannot be read .the file is too short"):
        store.columns()


def fed_of(keeps: Keeps, **plan: Any) -> Federation:
    model = FedRAP(120, 1, dim=3, variant="original")
    settings = {
        "keeps": keeps,
        "optimiser": "adam",
        "cohort": 0.6,
        "chunk": 2,
        "lr": 0.05,
        "batch": 8,
        **plan,
    }
    return federation(phones(ragged(SHORT, 120)), model, **settings)


def test_memory_holds_what_was_touched_and_no_more() -> None:
    fed = fed_of("memory", cohort=0.3)
    state = run(fed, 2)
    kept = state.devices.rows
    rows, used = int(kept.counts.sum()), state.devices.used
    assert 0 < rows < used * 120 / 2
    each = sum(kept.column(name, 0, used).nbytes for name in kept.names) / rows
    assert rows * each <= kept.nbytes <= 2 * rows * each


def test_the_same_bits_from_memory_and_from_files() -> None:
    ends = []
    for keeps, workers in (("memory", 1), ("disk", 2)):
        fed = fed_of(keeps, workers=workers)  # type: ignore[arg-type]
        state = run(fed, 3)
        ends.append({**held(fed, state), **state.server, **fed.evaluate(state).values})
    assert same(ends[0], ends[1])


@pytest.mark.parametrize("after", ["memory", "disk"])
@EITHER
def test_a_run_goes_on_from_a_checkpoint_with_the_same_bits(
    keeps: Keeps, after: Keeps, tmp_path: Path
) -> None:
    fed, other = fed_of(keeps), fed_of(after)
    state = run(fed, 2)
    state.devices.snapshot(tmp_path / "files")
    write(tmp_path / "state", flat(state, state.devices, {}))
    whole = resume(fed, state, 4)
    again = unflat(2, read(tmp_path / "state"), emptied(other), tmp_path / "files")[0]
    assert told(other, resume(other, both(other, again), 4)) == told(fed, whole)


@pytest.mark.parametrize("after", ["memory", "disk"])
@EITHER
def test_a_run_directory_gives_back_what_devices_held(keeps: Keeps, after: Keeps, tmp_path: Path) -> None:
    fed, other = fed_of(keeps), fed_of(after)
    state = run(fed, 3)
    save_state(tmp_path, state, state.devices)
    again = both(other, _state_of(tmp_path / MODEL, tmp_path / USERS, state.round, emptied(other)))
    assert told(other, again) == told(fed, state)
    assert again.devices.clients().tolist() == state.devices.clients().tolist()


def told(fed: Federation, state: Both) -> str:
    """A fingerprint of a state, wherever devices keep theirs."""
    memory = Store(len(fed.clients), fed.fleet.fresh)
    memory.put(everyone(fed), held(fed, state))
    return digest(replace(state, devices=memory))
