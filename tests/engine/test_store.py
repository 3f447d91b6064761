"""Devices find what they left, and those that never took part cost nothing."""

from __future__ import annotations

import os
import resource
import shutil
import stat
import subprocess
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.worlds import contents
from veilrec.base import scratch
from veilrec.base.files import digest
from veilrec.base.params import Params
from veilrec.base.tensors import read, write
from veilrec.engine.devices import store as stores
from veilrec.engine.devices.shelf import Shelf
from veilrec.engine.devices.store import Keeps, Store
from veilrec.errors import BadInput, Corrupted

N = 12


def fresh(cohort: Tensor, names: Collection[str] | None = None) -> Params:
    return {"user": cohort[:, None].double().expand(-1, 3).clone(), "t/user": 0.0 * cohort.double()}


def left(cohort: Tensor, number: int) -> Params:
    values = cohort[:, None].double().expand(-1, 3)
    return {"user": values + 100 * number, "t/user": cohort.double() + number}


def made(keeps: Keeps, folder: Path | None = None) -> Store:
    return Store.of(keeps, N, fresh, torch.device("cpu"), folder)


@pytest.fixture(params=["memory", "disk"])
def keeps(request: pytest.FixtureRequest) -> Keeps:
    found: Keeps = request.param
    return found


cohorts = st.lists(st.lists(st.integers(0, N - 1), min_size=1, max_size=N, unique=True), max_size=6)


@given(
    rounds=cohorts,
    asked=st.lists(st.integers(0, N - 1), min_size=1, unique=True),
    keeps=st.sampled_from(["memory", "disk"]),
)
def test_what_was_put_is_got(rounds: list[list[int]], asked: list[int], keeps: Keeps) -> None:
    store = made(keeps)
    last: dict[int, int] = {}
    for number, cohort in enumerate(rounds, 1):
        store.put(torch.tensor(cohort), left(torch.tensor(cohort), number))
        last |= dict.fromkeys(cohort, number)
    got = store.get(torch.tensor(asked))
    assert got["user"][:, 0].tolist() == [100.0 * last.get(k, 0) + k for k in asked]
    assert got["t/user"].tolist() == [k + last[k] if k in last else 0.0 for k in asked]
    assert store.used == len(last)
    assert all(len(column) <= N for column in store.values.values())


def test_what_is_got_is_a_copy(keeps: Keeps) -> None:
    store = made(keeps)
    who = torch.tensor([3, 1])
    store.put(who, fresh(who))
    store.get(who)["user"].fill_(-1)
    store.get(torch.tensor([3, 5]))["user"].fill_(-1)
    assert store.get(who)["user"][:, 0].tolist() == [3.0, 1.0]


def held(store: Store) -> Params:
    return store.get(torch.arange(N))


def same(a: Params, b: Params) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("after", ["memory", "disk"])
def test_state_and_back(keeps: Keeps, after: Keeps, tmp_path: Path) -> None:
    """Into a store of either kind: a run may be continued in the other way than it was begun."""
    store, twin = made(keeps), made(after)
    twin.put(torch.tensor([5]), left(torch.tensor([5]), 9))  # what was there before is gone
    for number in range(1, 4):
        store.put(torch.tensor([number, 9]), left(torch.tensor([number, 9]), number))
    store.snapshot(tmp_path / "snap")
    state = contents(store)
    assert len(state["value/user" if keeps == "memory" else "sums"]) == 4  # spare rows are left out
    before = held(store)
    store.put(torch.arange(N), left(torch.arange(N), 7))  # changes nothing of what was kept
    twin.restore({n: v.clone() for n, v in state.items()}, tmp_path / "snap")
    assert same(held(twin), before)
    assert twin.clients().tolist() == [1, 9, 2, 3]
    again = made(keeps)
    again.restore({n: v.clone() for n, v in state.items()}, tmp_path / "snap")
    for one in (again, twin):
        one.put(torch.tensor([0, 9]), left(torch.tensor([0, 9]), 5))
    assert same(held(again), held(twin))
    assert not same(held(twin), before)


def test_an_empty_store(keeps: Keeps) -> None:
    store = made(keeps)
    assert store.get(torch.tensor([4]))["user"].tolist() == [[4.0] * 3]
    assert (store.used, store.values) == (0, {})
    twin = made(keeps)
    twin.restore(contents(store))
    assert twin.used == 0


def test_devices_that_keep_nothing() -> None:
    store = Store(N, lambda *_: {})
    store.put(torch.tensor([1, 2]), {})
    assert store.get(torch.tensor([1, 5])) == {}


def test_the_same_bytes_from_memory_and_from_files(tmp_path: Path) -> None:
    files = []
    for keeps in ("memory", "disk"):
        store = made(keeps)
        for number, cohort in enumerate(([7, 2], [2, 11, 0], [7])):
            store.put(torch.tensor(cohort), left(torch.tensor(cohort), number))
        files.append(write(tmp_path / keeps, {"client": store.clients(), **store.columns()}))
    assert files[0] == files[1]
    assert read(tmp_path / "disk")["user"][:, 0].tolist() == [207.0, 102.0, 111.0, 100.0]
    assert dict(made("disk").columns()) == {}


def test_only_what_is_asked_for_is_read_and_drawn(keeps: Keeps) -> None:
    asked: list[Collection[str] | None] = []

    def watched(cohort: Tensor, names: Collection[str] | None = None) -> Params:
        asked.append(names)
        return fresh(cohort)

    store = Store.of(keeps, N, watched, torch.device("cpu"))
    store.put(torch.tensor([3]), left(torch.tensor([3]), 1))
    asked.clear()
    assert list(store.get(torch.tensor([3]), ["user"])) == ["user"]
    assert asked == []
    assert store.get(torch.tensor([3, 4]), ["user"])["user"][:, 0].tolist() == [103.0, 4.0]
    assert asked == [["user"]]
    assert store.get(torch.tensor([4]), []) == {}


def test_files_from_a_gigabyte_on(monkeypatch: pytest.MonkeyPatch) -> None:
    assert made("auto").shelf is None
    each = 4 * 8  # bytes of one device here
    monkeypatch.setattr(stores, "MUCH", N * each)
    assert made("auto").shelf is None
    monkeypatch.setattr(stores, "MUCH", N * each - 1)
    assert made("auto").shelf is not None
    assert made("memory").shelf is None


ODD: dict[str, Tensor] = {
    "none": torch.zeros(3, 0, 4),
    "truth": torch.tensor([[True], [False], [True]]),
    "half": torch.arange(6).reshape(3, 2).to(torch.bfloat16),
    "count": torch.arange(3),
    "strided": torch.arange(24.0).reshape(3, 4, 2).transpose(1, 2),
}


def test_whatever_devices_keep_comes_back(tmp_path: Path) -> None:
    shelf = Shelf({name: value[:1] for name, value in ODD.items()}, tmp_path / "devices")
    shelf.clear()
    shelf.write([4, 0, 8], ODD)
    got = shelf.read([8, 4], list(ODD))
    assert same(got, {name: value[[2, 0]] for name, value in ODD.items()})
    assert {n: v.dtype for n, v in got.items()} == {n: v.dtype for n, v in ODD.items()}
    assert [len(v) for v in shelf.read([], list(ODD)).values()] == [0] * len(ODD)
    with pytest.raises(ValueError, match="other things"):
        shelf.write([1], {**{n: v[:1] for n, v in ODD.items()}, "count": torch.zeros(1)})


def test_files_are_for_their_owner_and_gone_with_the_store(tmp_path: Path) -> None:
    store = made("disk")
    store.put(torch.tensor([3]), left(torch.tensor([3]), 1))
    assert store.shelf is not None
    folder = store.shelf.folder
    assert stat.S_IMODE((folder / "00000003").stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    store.snapshot(tmp_path / "snap")
    assert (tmp_path / "snap" / "00000003").samefile(folder / "00000003")  # a link, no copy
    del store
    assert not folder.parent.exists()


def test_a_file_system_without_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    store = made("disk")
    store.put(torch.tensor([3]), left(torch.tensor([3]), 1))
    monkeypatch.setattr(os, "link", no_links)
    store.snapshot(tmp_path / "snap")
    state = contents(store)
    store.put(torch.tensor([3]), left(torch.tensor([3]), 2))
    store.restore(state, tmp_path / "snap")
    assert store.get(torch.tensor([3]))["user"][:, 0].tolist() == [103.0]
    assert digest(tmp_path / "snap" / "00000003").sha256 == bytes(state["sums"][0].tolist()).hex()


@contextmanager
def full() -> Iterator[None]:
    """No file may grow beyond 16 bytes; while it lasts, since what tests print may go to a file as well."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_is_told_in_one_line(tmp_path: Path) -> None:
    store = made("disk", tmp_path / "devices")
    said = r'devices: what .* cannot be written .*; make room.*keeps = "memory"'
    with pytest.raises(BadInput, match=said) as told, full():
        store.put(torch.tensor([3]), left(torch.tensor([3]), 1))
    assert "\n" not in f"{told.value}"
    assert told.value.code == 2


def test_a_lost_or_shortened_file_is_noticed(tmp_path: Path) -> None:
    store = made("disk", tmp_path / "devices")
    store.put(torch.tensor([3, 4]), left(torch.tensor([3, 4]), 1))
    os.truncate(tmp_path / "devices" / "00000003", 20)
    with pytest.raises(Corrupted, match=r"00000003: cannot be read .the file is too short"):
        store.get(torch.tensor([3]))
    (tmp_path / "devices" / "00000004").unlink()
    with pytest.raises(Corrupted, match=r"00000004: cannot be read .*No such file"):
        store.get(torch.tensor([4]))


KILLED = """
import os, signal, torch
from tests.engine.test_store import left, made
store = made("disk")
store.put(torch.tensor([3]), left(torch.tensor([3]), 1))
print(store.shelf.folder.parent, flush=True)
{end}
"""


@pytest.mark.skipif(sys.platform == "win32", reason="a lock that is open cannot be removed there")
@pytest.mark.parametrize(
    "end",
    [
        pytest.param("raise SystemExit", marks=pytest.mark.slow),
        pytest.param("1 / 0", marks=pytest.mark.slow),
        "os.kill(os.getpid(), signal.SIGKILL)",
    ],
)
def test_nothing_stays_after_the_process(end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    alive = made("disk")
    assert alive.shelf is not None
    done = subprocess.run(
        [sys.executable, "-c", KILLED.format(end=end)],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    folder = Path(done.stdout.strip())
    assert folder.parent == tmp_path
    assert folder.exists() == ("SIGKILL" in end)
    (tmp_path / "veilrec-scratch-run").mkdir()  # somebody's folder of a like name
    made("disk")  # whoever comes next cleans up, and leaves the living alone
    assert not folder.exists()
    assert alive.shelf.folder.exists()
    assert (tmp_path / "veilrec-scratch-run").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="nobody sweeps there")
def test_a_folder_that_its_owner_removes_is_not_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    mine, removed, really = scratch.Scratch(), [], shutil.rmtree

    def meanwhile(folder: Path) -> None:
        removed.append(folder)
        if len(removed) == 1:
            scratch.Scratch().close()  # another process comes and goes
        really(folder)

    monkeypatch.setattr(scratch.shutil, "rmtree", meanwhile)
    mine.close()
    assert removed.count(mine.folder) == 1
    assert not list(tmp_path.iterdir())
