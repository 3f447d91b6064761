"""A checkpoint is the whole state, and whatever is not what was written is noticed."""

from __future__ import annotations

import json
import shutil
import stat
from pathlib import Path

import pytest
import torch

from tests.forking import small
from tests.worlds import Both, both, digest, emptied
from veilrec.base.keys import Keys
from veilrec.base.tensors import read, write
from veilrec.errors import BadInput, Corrupted
from veilrec.runs.checkpoint import Checkpoints, Damaged
from veilrec.runs.integrity.described import Saved
from veilrec.runs.selection import Selection


def fine(saved: Saved) -> str:
    return ""


@pytest.fixture(scope="module")
def states() -> list[Both]:
    """The states after rounds 1, 2 and 3, each with a store of its own."""
    fed, found = small(3).federation(), []
    for rounds in (1, 2, 3):
        found.append(both(fed, list(fed.rounds(fed.start(), until=rounds))[-1][0]))
    return found


@pytest.fixture(scope="module")
def kept(states: list[Both], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoints of rounds 1 to 3, of which 1 was selected."""
    folder = tmp_path_factory.mktemp("kept") / "checkpoint"
    checkpoints = Checkpoints(folder, "mark")
    checkpoints.select(states[0], states[0].devices, {})
    for state in states:
        more = {"more": {"n": torch.tensor([state.round])}}
        checkpoints.write(state, state.devices, more, {"k": state.round}, 1)
    return folder


def test_everything_comes_back(states: list[Both], kept: Path) -> None:
    checkpoints = Checkpoints(kept, "mark")
    saved = checkpoints.latest(fine)
    assert saved is not None
    assert (saved.round, saved.notes) == (3, {"k": 3})
    fed = small(3).federation()
    state, extra = checkpoints.load(3, emptied(fed))
    assert digest(both(fed, state)) == digest(states[2])
    assert list(state.server) == list(states[2].server)
    assert len(state.posts.owner) > 0
    assert len(state.memory) > 0
    assert extra["more"]["n"].tolist() == [3]
    selected, _ = checkpoints.load(1, emptied(fed))
    assert digest(both(fed, selected)) == digest(states[0])


def test_the_last_two_and_the_selected_state_are_kept(kept: Path) -> None:
    names = {path.name for path in kept.iterdir()}
    assert {name for name in names if name.startswith("round")} == {"round-000002.json", "round-000003.json"}
    assert {name for name in names if name.startswith("state")} == {
        f"state-00000{k}.safetensors" for k in (1, 2, 3)
    }


def test_a_new_selection_drops_the_old_one(states: list[Both], tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoint", "mark")
    for state in states:
        checkpoints.select(state, state.devices, {})
        assert [path.name for path in checkpoints.folder.iterdir()] == [
            f"state-00000{state.round}.safetensors"
        ]


def test_states_are_for_their_owner_only(kept: Path) -> None:
    for path in kept.glob("state-*"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def damage(folder: Path, trial: int) -> None:
    """Cut one of the newest checkpoint's files, or flip one bit of it."""
    draw = Keys.seed(trial).fold("damage")
    path = folder / ("round-000003.json" if trial % 2 else "state-000003.safetensors")
    data = bytearray(path.read_bytes())
    place, bit = int(draw.integers(len(data))), int(draw.fold("bit").integers(8))
    if trial % 4 < 2:
        del data[place:]
    else:
        data[place] ^= 1 << bit
    path.write_bytes(data)


def test_any_damage_is_noticed(kept: Path, tmp_path: Path) -> None:
    for trial in range(200):
        folder = tmp_path / str(trial)
        shutil.copytree(kept, folder)
        damage(folder, trial)
        with pytest.warns(Damaged) as told:
            saved = Checkpoints(folder, "mark").latest(fine)
        assert saved is not None
        assert saved.round == 2
        assert len(told) == 1
        assert Checkpoints(folder, "mark").latest(fine) == saved  # and only once


def test_without_one_that_is_whole_nothing_changes(kept: Path, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    shutil.copytree(kept, folder)
    (folder / "state-000001.safetensors").write_bytes(b"")  # both of them need it
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(Corrupted, match="no older one is whole"):
        Checkpoints(folder, "mark").latest(fine)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_no_checkpoint_yet(tmp_path: Path, states: list[Both]) -> None:
    assert Checkpoints(tmp_path / "none", "mark").latest(fine) is None
    Checkpoints(tmp_path / "some", "mark").select(
        states[0], states[0].devices, {}
    )  # the process died before the first was complete
    assert Checkpoints(tmp_path / "some", "mark").latest(fine) is None


def test_another_run_is_refused(kept: Path) -> None:
    with pytest.raises(BadInput, match="another recipe or other data"):
        Checkpoints(kept, "other").latest(fine)


def test_a_file_elsewhere_is_never_read(kept: Path, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    shutil.copytree(kept, folder)
    from veilrec.runs.integrity.sealed import _checksum

    for path in folder.glob("round-*.json"):
        body = json.loads(path.read_text(encoding="utf-8"))
        body.pop("sha256")
        body["files"] = {"../state-000003.safetensors": next(iter(body["files"].values()))}
        path.write_text(json.dumps({**body, "sha256": _checksum(body)}), encoding="utf-8")
    with pytest.raises(Corrupted):
        Checkpoints(folder, "mark").latest(fine)


def test_a_newer_version_is_refused(kept: Path, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    shutil.copytree(kept, folder)
    from veilrec.runs.integrity.sealed import _checksum

    path = folder / "round-000003.json"
    body = {**json.loads(path.read_text(encoding="utf-8")), "version": 99}
    body.pop("sha256")
    path.write_text(json.dumps({**body, "sha256": _checksum(body)}), encoding="utf-8")
    with pytest.raises(BadInput, match="version 99"):
        Checkpoints(folder, "mark").latest(fine)


def test_tensors_of_every_kind_come_back(tmp_path: Path) -> None:
    tensors = {
        "z": torch.arange(3),
        "empty": torch.zeros(0, 4, dtype=torch.float64),
        "scalar": torch.tensor(2.5),
        "mask": torch.tensor([[True], [False]]),
        "half": torch.tensor([1.5], dtype=torch.bfloat16),
        "turned": torch.arange(6.0).reshape(2, 3).T,
        "a/ü": torch.tensor([1, 2], dtype=torch.uint8),
    }
    write(tmp_path / "x.safetensors", tensors)
    back = read(tmp_path / "x.safetensors")
    assert list(back) == list(tensors)
    for name, value in tensors.items():
        assert back[name].dtype == value.dtype
        assert torch.equal(back[name], value)


def test_selection_takes_the_first_of_equal_looks() -> None:
    chosen = Selection("ndcg@10", patience=2)
    looks = [0.1, 0.3, None, 0.3, 0.2, 0.4]
    found = []
    for number, value in enumerate(looks, 1):
        row = {"round": number} if value is None else {"round": number, "ndcg@10": value}
        found.append((chosen.look(row), chosen.exhausted))
        assert Selection.of(json.loads(json.dumps(chosen.state()))) == chosen
    assert found == [
        (True, False),
        (True, False),
        (False, False),
        (False, False),
        (False, True),
        (True, False),
    ]
    assert (chosen.round, chosen.best, chosen.since) == (6, 0.4, 0)
    assert Selection.of(Selection("hr@5").state()) == Selection("hr@5")


def test_selection_passes_over_rounds_in_which_nothing_is_guarded() -> None:
    chosen = Selection("ndcg@10", patience=1, first=2)
    looks = [chosen.look({"round": number, "ndcg@10": 1 - number / 10}) for number in (1, 2, 3, 4)]
    assert looks == [False, False, True, False]
    assert (chosen.round, chosen.exhausted) == (3, True)
