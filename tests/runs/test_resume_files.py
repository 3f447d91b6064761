"""Where devices' weights lie, in memory or in files, changes no byte of a run, killed or not."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path

import pytest
import torch

from tests.forking import Order, Pool, small
from tests.runs.test_resume import SAME
from tests.worlds import everyone
from veilrec.base.files import digest
from veilrec.base.keys import Keys
from veilrec.engine.devices.store import Keeps, Store
from veilrec.result import Result
from veilrec.runs.checkpoint import Damaged
from veilrec.runs.folder import load_run

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


@pytest.fixture(scope="module")
def whole(runner: Pool, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in memory that nobody disturbs."""
    out = tmp_path_factory.mktemp("whole") / "run"
    assert runner.run(Order(str(out), keeps="memory")) == {"code": 0, "error": ""}
    return out


def assert_same(out: Path, whole: Path) -> None:
    """The same bytes, and nothing left behind."""
    assert {n: digest(out / n) for n in SAME} == {n: digest(whole / n) for n in SAME}
    assert Result.load(out).fingerprint == Result.load(whole).fingerprint
    assert {p.name for p in out.iterdir() if p.is_dir()} == {"checkpoint"}
    assert not [p for p in (out / "checkpoint").iterdir() if p.is_dir()]


@pytest.fixture(scope="module")
def shelved(runner: Pool, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with files."""
    out = tmp_path_factory.mktemp("shelved") / "run"
    order = Order(str(out), keeps="disk", report=str(out.with_name("counts.json")))
    assert runner.run(order) == {"code": 0, "error": ""}
    return out


def counts(shelved: Path, kind: str) -> int:
    found: dict[str, int] = json.loads(shelved.with_name("counts.json").read_text())
    return found[kind]


def test_undisturbed(whole: Path, shelved: Path) -> None:
    assert_same(shelved, whole)
    assert counts(shelved, "unlink") > 9 * 12  # it did use files: one a device and round


@pytest.mark.parametrize("trials", [1, pytest.param(4, marks=pytest.mark.slow)])
@pytest.mark.parametrize("after", ["disk", pytest.param("memory", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "kind", [*(pytest.param(kind, marks=pytest.mark.slow) for kind in ("fsync", "replace", "unlink")), "link"]
)
def test_killed_while_something_is_written(
    runner: Pool, whole: Path, shelved: Path, tmp_path: Path, kind: str, after: Keeps, trials: int
) -> None:
    """And resumed in either way."""
    draws = Keys.seed(4).fold(kind).fold(after).integers(counts(shelved, kind), trials)
    for trial, place in enumerate(draws.tolist()):
        out = str(tmp_path / str(trial))
        assert runner.run(Order(out, fail={kind: 1 + place}, keeps="disk"))["code"] == -signal.SIGKILL
        assert runner.run(Order(out, resume=True, keeps=after)) == {"code": 0, "error": ""}
        assert_same(Path(out), whole)


@pytest.mark.slow
def test_begun_in_memory(runner: Pool, whole: Path, tmp_path: Path) -> None:
    out = str(tmp_path / "run")
    assert runner.run(Order(out, fail={"replace": 20}, keeps="memory"))["code"] == -signal.SIGKILL
    assert runner.run(Order(out, resume=True, keeps="disk")) == {"code": 0, "error": ""}
    assert_same(Path(out), whole)


@pytest.fixture(scope="module")
def stopped(runner: Pool, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run killed in its seventh round, with checkpoints of rounds 5 and 6, and its devices' files."""
    out = tmp_path_factory.mktemp("stopped") / "run"
    order = Order(str(out), signals=[(signal.SIGKILL, "clients", 6 * 4 + 2, 1)], keeps="disk")
    assert runner.run(order)["code"] == -signal.SIGKILL
    return out


def test_checkpoints_share_what_did_not_change(stopped: Path) -> None:
    place = stopped / "checkpoint"
    fifth, sixth = ({p.name: p for p in (place / f"state-00000{k}").iterdir()} for k in (5, 6))
    alike = [name for name, path in fifth.items() if path.samefile(sixth[name])]
    assert len(sixth) - len(alike) == 12  # the devices of round 6
    assert alike
    assert {p.name for p in (stopped / "devices").iterdir()} >= set(sixth)  # what nobody could remove


@pytest.mark.parametrize(
    "damage", ["flipped", *(pytest.param(d, marks=pytest.mark.slow) for d in ("truncated", "missing"))]
)
def test_a_damaged_file_is_noticed(stopped: Path, whole: Path, tmp_path: Path, damage: str) -> None:
    out = tmp_path / "run"
    shutil.copytree(stopped, out)
    path = sorted((out / "checkpoint" / "state-000006").iterdir())[1]
    data = path.read_bytes()
    path.write_bytes(data[:-1] if damage == "truncated" else data[:-1] + bytes([data[-1] ^ 1]))
    if damage == "missing":
        path.unlink()
    with pytest.warns(Damaged, match=rf"state-000006/{path.name} does not match .* round 5"):
        small(keeps="disk").run(out, resume=True)
    assert_same(out, whole)


def test_a_process_that_fails_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(store: Store, folder: Path) -> None:
        assert (tmp_path / "run" / "devices").is_dir()
        raise RuntimeError("broken")

    monkeypatch.setattr(Store, "snapshot", fails)
    with pytest.raises(RuntimeError, match="broken"):
        small(keeps="disk").run(tmp_path / "run")
    assert not (tmp_path / "run" / "devices").exists()


def test_a_run_without_a_directory_leaves_nothing(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert small(keeps="disk").run().utility == Result.load(whole).utility
    assert list(tmp_path.iterdir()) == []


def test_a_finished_run_is_read_into_files(whole: Path) -> None:
    run = load_run(whole)
    held = []
    for keeps in ("memory", "disk"):
        fed = small(keeps=keeps).federation()
        state = run.state(fed)
        assert (fed.fleet.devices.shelf is None) == (keeps == "memory")
        held.append({"slot": fed.fleet.devices.slot, **fed.fleet.devices.get(everyone(fed))})
        held[-1] |= {f"scores/{n}": v for n, v in fed.evaluate(state).values.items()}
    assert held[0].keys() == held[1].keys()
    assert all(torch.equal(held[0][name], held[1][name]) for name in held[0])
