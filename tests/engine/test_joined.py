"""Joined: the stores of several fleets do what one store of all their devices does."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.engine.test_store_rows import ROUNDS, N, Rounds, cohorts, left, made, same
from veilrec.base.tensors import Lazy, read, write
from veilrec.engine.devices import kept
from veilrec.engine.devices.joined import Joined
from veilrec.engine.devices.store import Keeps, Store

EITHER = pytest.mark.parametrize("keeps", ["memory", "disk"])
PARTS = ([0, 3, 4], [1, 6], [2, 5])


def joined(keeps: Keeps, folder: Path | None = None, parts: tuple[list[int], ...] = PARTS) -> Joined:
    """Three fleets, whose devices are numbered anew in each."""
    own = [Store.of("memory", len(part), shifted(part), torch.device("cpu"), rows=9) for part in parts]
    numbers = [torch.tensor(part) for part in parts]
    return Joined(list(zip(numbers, own, strict=True)), made(keeps, folder))


def shifted(part: list[int]) -> object:
    """What devices of a fleet begin with, by their numbers in the whole."""
    whole, number = made("memory"), torch.tensor(part)
    return lambda cohort, names=None: whole.fresh(number[cohort], names)


def put(devices: Joined | Store, rounds: Rounds) -> None:
    for number, rows in enumerate(rounds, 1):
        who = torch.tensor(list(rows))
        devices.put(who, left(rows, number))
        if isinstance(devices, Joined):
            devices.changed(who)


@settings(max_examples=40)
@given(st.lists(cohorts, max_size=4), st.lists(st.integers(0, N - 1), unique=True))
def test_what_was_put_is_got(rounds: Rounds, asked: list[int]) -> None:
    one, many = made("memory"), joined("memory")
    put(one, rounds)
    put(many, rounds)
    who = torch.tensor(asked, dtype=torch.int64)
    assert same(one.get(who), many.get(who))
    assert same(one.get(who, ["user"]), many.get(who, ["user"]))
    assert sorted(one.clients().tolist()) == sorted(many.clients().tolist())
    many.clear()
    assert many.columns() == {}


def in_one(many: Joined, keeps: Keeps, folder: Path | None = None) -> Store:
    """A store with what all fleets hold, put there device by device."""
    one = made(keeps, folder)
    for some in many.clients().split(1):
        one.put(some, many.get(some))
    return one


@EITHER
def test_the_bytes_of_a_checkpoint_are_those_of_one_store(
    keeps: Keeps, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether columns are read in one piece or device by device."""
    many = joined(keeps, tmp_path / "many")
    put(many, ROUNDS)
    one = in_one(many, keeps, tmp_path / "one")
    sums = []
    for size in (1 << 20, 1):
        monkeypatch.setattr(kept, "BYTES", size)
        sums += [write(tmp_path / f"{size}-{k}", d.state()) for k, d in enumerate((one, many))]
        sums += [write(tmp_path / f"{size}-{k}-end", dict(d.columns())) for k, d in enumerate((one, many))]
    assert sums[0] == sums[1] == sums[4] == sums[5]
    assert sums[2] == sums[3] == sums[6] == sums[7]


@pytest.mark.parametrize("after", ["memory", "disk"])
@EITHER
def test_state_and_back_into_other_fleets(keeps: Keeps, after: Keeps, tmp_path: Path) -> None:
    many, twin = joined(keeps, tmp_path / "a"), joined(after, tmp_path / "b", ([0, 1, 2, 6], [3, 4, 5]))
    put(many, ROUNDS)
    put(twin, [{6: [1]}])  # what was there before is gone
    many.snapshot(tmp_path / "snap")
    write(tmp_path / "state", many.state())
    before = many.get(torch.arange(N))
    put(many, [{k: [0, 1] for k in range(N)}])
    for state in (read(tmp_path / "state"), Lazy(tmp_path / "state")):
        twin.restore(state, tmp_path / "snap")
        assert same(twin.get(torch.arange(N)), before)
        assert sorted(twin.clients().tolist()) == [0, 1, 3, 5]
    one = made(after, tmp_path / "c")
    one.restore(Lazy(tmp_path / "state"), tmp_path / "snap")
    assert same(one.get(torch.arange(N)), before)


def test_files_of_devices_that_did_not_learn_are_not_written_again(tmp_path: Path) -> None:
    many = joined("disk", tmp_path / "devices")
    put(many, ROUNDS)
    many.snapshot(tmp_path / "first")
    put(many, [{1: [3]}])
    many.snapshot(tmp_path / "second")
    names = [f"{client:08}" for client in (0, 1, 3, 5)]
    again = [(tmp_path / "first" / n).samefile(tmp_path / "second" / n) for n in names]
    assert again == [True, False, True, True]
    assert sorted(path.name for path in (tmp_path / "second").iterdir()) == names


def test_a_device_that_failed_in_its_first_round_has_no_file(tmp_path: Path) -> None:
    """It was asked to learn, and nothing of it was kept."""
    many = joined("disk", tmp_path / "devices")
    many.changed(torch.arange(N))
    put(many, [{2: [1]}])
    assert many.clients().tolist() == [2]
    many.snapshot(tmp_path / "snap")
    assert [path.name for path in (tmp_path / "snap").iterdir()] == ["00000002"]


def test_no_piece_is_larger_than_it_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    many = joined("memory")
    put(many, ROUNDS)
    monkeypatch.setattr(kept, "BYTES", 16)

    def pieces(self: Store, name: str, size: int, really=Store.pieces) -> object:  # type: ignore[no-untyped-def]
        for piece in really(self, name, size):
            seen.append(len(piece))
            yield piece

    monkeypatch.setattr(Store, "pieces", pieces)
    for column in many.columns().values():
        assert isinstance(column, Tensor) or sum(len(rows) for rows in column.rows()) == column.shape[0]
    assert max(seen) <= 5  # the rows of one device, or two devices' vectors
