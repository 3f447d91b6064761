"""A run directory: whole files or none, one process at a time, and everything needed to use the run again."""

from __future__ import annotations

import csv
import json
import os
import stat
import tomllib
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.forking import Order, Pool, small
from tests.mutated import mutated
from tests.worlds import both, checkerboard, digest, emptied, files_of, held
from veilrec.base.files import atomic, read_json
from veilrec.base.locks import locked
from veilrec.base.plan import Plan
from veilrec.base.tensors import read, write
from veilrec.errors import BadInput, Corrupted
from veilrec.experiment import Experiment
from veilrec.interactions import Interactions
from veilrec.models.fedmf import FedMF
from veilrec.result import Result
from veilrec.runs.fingerprint import data_fingerprint
from veilrec.runs.folder import claim, load_run
from veilrec.runs.integrity.manifest import Manifest
from veilrec.runs.world import IDS, WORLD, load_world, save_world

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
SECRET = {"users.safetensors", "world.safetensors", "ids.json", "per_user.csv", "transcript.safetensors"}
OPEN = {"recipe.toml", "manifest.json", "result.json", "metrics.jsonl", "timing.jsonl", "model.safetensors"}


FEATURES = tuple(f"feature {k}" for k in range(24))


def world() -> Interactions:
    """A checkerboard with odd ids, ratings, features and titles."""
    log = checkerboard()
    ids = ["=1+1", "+x", "-y", "@z", "\tt", 'a,"b"', "Zoë", *log.user_ids[7:]]
    titles = [f"Thing, {k}" for k in range(24)]
    return replace(
        log,
        user_ids=ids,
        texts=titles,
        rating=torch.ones(len(log)),
        features=torch.eye(24),
        feature_names=FEATURES,
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Experiment, Path, Result]:
    out = tmp_path_factory.mktemp("finished") / "run"
    run = replace(small(4), data=world())
    return run, out, run.run(out)


def test_the_files(finished: tuple[Experiment, Path, Result]) -> None:
    _, out, result = finished
    assert {path.name for path in out.iterdir()} == {*SECRET, *OPEN, "checkpoint"}
    for name in SECRET:
        assert stat.S_IMODE((out / name).stat().st_mode) == 0o600, name
    assert set(Manifest.load(out).files) == (SECRET | OPEN) - {"manifest.json"}
    assert Result.load(out) == result


def test_metrics_are_reproducible_and_timing_is_apart(
    finished: tuple[Experiment, Path, Result], tmp_path: Path
) -> None:
    run, out, result = finished
    run.run(tmp_path / "again")
    assert (tmp_path / "again" / "metrics.jsonl").read_bytes() == (out / "metrics.jsonl").read_bytes()
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [row["round"] for row in rows] == [1, 2, 3, 4]
    assert {"clients", "loss", "up_bytes", "down_bytes"} <= rows[0].keys()
    assert not {"train", "seconds", "peak_bytes"} & {key for row in rows for key in row}
    timing = [json.loads(line) for line in (out / "timing.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [set(row) for row in timing] == [{"round", "train", "evaluate", "checkpoint", "peak_bytes"}] * 4
    phases = {"train", "evaluate", "checkpoint", "test", "write", "attack", "erase", "erase_cpu"}
    assert set(result.timing) == phases | {"total", "peak_bytes"}
    assert files_of(tmp_path / "again") == files_of(out)


def test_the_selected_state_from_the_directory_alone(finished: tuple[Experiment, Path, Result]) -> None:
    run, out, result = finished
    loaded = load_run(out)
    assert loaded.result == result
    assert list(loaded.data.texts or ()) == list(run.data.texts or ())
    fed = replace(run, data=loaded.data).federation()
    state = loaded.state(fed)
    assert state.round == result.selected
    assert fed.evaluate(state, "test").means() == result.utility.test
    assert fed.evaluate(state, "validation").means() == result.utility.validation
    found, lived = held(fed, state), run.federation()
    for done, _ in lived.rounds(lived.start(), until=result.selected):
        same = done
    assert all(torch.equal(value, found[name]) for name, value in held(lived, same).items())
    assert torch.equal(same.posts.owner, state.posts.owner)
    assert all(torch.equal(value, state.memory[name]) for name, value in same.memory.items())


def test_private_parts_are_not_in_the_model(tmp_path: Path) -> None:
    out = tmp_path / "run"
    Experiment(checkerboard(), partial(FedMF, dim=4), plan=Plan(rounds=1, evaluate_every=1)).run(out)
    assert set(read(out / "model.safetensors")) == {"item"}
    assert {"client", "user"} <= set(read(out / "users.safetensors"))


def test_the_world_comes_back(tmp_path: Path) -> None:
    log = world()
    save_world(tmp_path, log)
    back = load_world(tmp_path / WORLD, tmp_path / IDS)
    assert (back.name, back.n_users, back.n_items) == (log.name, 24, 24)
    assert (list(back.user_ids), list(back.item_ids)) == (list(log.user_ids), list(log.item_ids))
    for name in ("user", "item", "rating", "time", "features"):
        assert torch.equal(getattr(back, name), getattr(log, name))
    assert tuple(back.feature_names) == FEATURES
    assert torch.equal(back.attributes["gender"], log.attributes["gender"])
    assert dict(back.classes) == dict(log.classes)
    for mine, theirs in zip(back.leave_one_out()[1:], log.leave_one_out()[1:], strict=True):
        assert torch.equal(mine, theirs)


def test_continuous_attributes_come_back_and_count(tmp_path: Path) -> None:
    values = {"age in years": torch.tensor([*range(23), float("nan")]).double()}
    log = replace(world(), values=values)
    save_world(tmp_path, log)
    back = load_world(tmp_path / WORLD, tmp_path / IDS).values
    assert back.keys() == values.keys()
    assert torch.equal(back["age in years"].nan_to_num(-1), values["age in years"].nan_to_num(-1))
    assert data_fingerprint(load_world(tmp_path / WORLD, tmp_path / IDS)) == data_fingerprint(log)
    older = replace(log, values={"age in years": values["age in years"] + 1})
    assert len({data_fingerprint(one) for one in (world(), log, older)}) == 3


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("world")
    save_world(folder, world())
    return folder


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"user": torch.arange(5)}, "is not one number an event"),
        ({"item": None}, "lacks 'item'"),
        ({"rating": torch.ones(2)}, "rating is not one number an event"),
        ({"user": torch.arange(288).flip(0)}, "events are out of order"),
        ({"item": torch.full((288,), 99)}, "events name ids that do not exist"),
        ({"item": torch.zeros(288)}, "ids of events are no whole numbers"),
        ({"attributes/gender": torch.full((24,), 7)}, "attribute gender does not fit its classes"),
        ({"attributes/gender": torch.full((24,), -2)}, "attribute gender does not fit its classes"),
        ({"attributes/gender": torch.ones(3, dtype=torch.int64)}, "attribute gender does not fit"),
        ({"features": torch.ones(3, 3)}, "features are not one row a user"),
    ],
)
def test_a_world_that_cannot_be_is_refused(
    stored: Path, tmp_path: Path, change: dict[str, torch.Tensor | None], says: str
) -> None:
    tensors = {**read(stored / WORLD), **change}
    write(tmp_path / WORLD, {name: value for name, value in tensors.items() if value is not None})
    with pytest.raises(Corrupted, match=says):
        load_world(tmp_path / WORLD, stored / IDS)


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_mutated_ids_are_refused_or_read(stored: Path, data: st.DataObject) -> None:
    told = json.loads((stored / IDS).read_text(encoding="utf-8"))
    path = stored / "mutated.json"
    path.write_text(json.dumps(data.draw(mutated(told))), encoding="utf-8")
    try:
        found = load_world(stored / WORLD, path)
    except Corrupted as error:
        said = str(error)
    else:
        said = f"{found.n_users} users"
    assert said


def test_without_its_world_a_run_asks_for_data(tmp_path: Path) -> None:
    run = small(2)
    run.run(tmp_path / "run", world=False)
    assert not {"world.safetensors", "ids.json"} & {path.name for path in (tmp_path / "run").iterdir()}
    with pytest.raises(BadInput, match="--data"):
        load_run(tmp_path / "run")
    with pytest.raises(BadInput, match="not the data of this run"):
        load_run(tmp_path / "run", checkerboard(22))
    loaded = load_run(tmp_path / "run", run.data)
    assert loaded.state(run.federation()).round == loaded.result.selected


def test_per_user_metrics(finished: tuple[Experiment, Path, Result]) -> None:
    _, out, result = finished
    with (out / "per_user.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["user"] for row in rows][:7] == ["'=1+1", "'+x", "'-y", "'@z", "'\tt", 'a,"b"', "Zoë"]
    for name, mean in result.utility.test.items():
        assert sum(float(row[name]) for row in rows) / 24 == pytest.approx(mean, abs=1e-12)


@pytest.mark.parametrize("name", ["model.safetensors", "users.safetensors", "world.safetensors", "ids.json"])
def test_damaged_files_are_noticed(tmp_path: Path, name: str) -> None:
    run, out = small(1), tmp_path / "run"
    run.run(out)
    data = (out / name).read_bytes()
    (out / name).write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(Corrupted, match=name):
        load_run(out).state(run.federation())


def test_a_result_that_is_damaged_or_missing(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="not a finished run"):
        load_run(tmp_path)
    for text, error, says in (
        ("{", Corrupted, r"result\.json: cannot be read as JSON"),
        ('{"version": 3}', Corrupted, r"manifest\.json: missing"),
        ('{"version": 7}', BadInput, "version 7"),
        ('{"version": 2, "utility": {}}', Corrupted, r"result\.json: files: is no table"),
    ):
        (tmp_path / "result.json").write_text(text, encoding="utf-8")
        with pytest.raises(error, match=says):
            load_run(tmp_path)


def test_the_recipe_of_a_run_from_python(finished: tuple[Experiment, Path, Result]) -> None:
    run, out, result = finished
    values = tomllib.loads((out / "recipe.toml").read_text(encoding="utf-8"))
    assert values == run.settings() == result.settings
    assert values["model"] == {"name": "FedNCF", "dim": 8, "head": [8], "user": "exposed"}
    assert values["defence"] == [{"name": "Showing"}]


def test_a_full_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(BadInput, match="not empty"):
        small(1).run(tmp_path)
    with pytest.raises(BadInput, match="not a run"):
        small(1).run(tmp_path, resume=True)
    (tmp_path / "recipe.toml").write_text("mine = true", encoding="utf-8")
    with pytest.raises(BadInput, match="another recipe"):
        small(1).run(tmp_path, resume=True)
    with pytest.raises(BadInput, match="not a folder"):
        small(1).run(tmp_path / "precious.txt")
    assert {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()} == {
        "precious.txt": "mine",
        "recipe.toml": "mine = true",
    }


def test_one_process_at_a_time(tmp_path: Path) -> None:
    out = tmp_path / "run"
    seen: list[bool] = []

    def meddle(*_: object) -> None:
        if not seen:
            for resume in (False, True):
                with pytest.raises(BadInput, match=f"locked by pid {os.getpid()}"):
                    small(1).run(out, resume=resume)
                seen.append(resume)

    small(1).run(out, progress=meddle)
    assert seen == [False, True]
    assert not (out / "lock").exists()


def test_a_lock_of_the_dead_is_taken_over(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text("4194304\n", encoding="ascii")
    with claim(tmp_path, resume=False) as place:
        assert (place / "lock").read_text(encoding="ascii") == f"{os.getpid()}\n"
    assert list(tmp_path.iterdir()) == []


def test_the_lock_is_free_after_a_failure(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), locked(tmp_path):
        raise ZeroDivisionError
    with locked(tmp_path):
        pass


@pytest.fixture(scope="module")
def roomy(runner: Pool, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with room enough."""
    out = tmp_path_factory.mktemp("roomy") / "run"
    assert runner.run(Order(str(out)))["code"] == 0
    return out


@needs_fork
@pytest.mark.parametrize("space", [*(pytest.param(n, marks=pytest.mark.slow) for n in (500, 3000)), 9000])
def test_a_full_disk(runner: Pool, roomy: Path, tmp_path: Path, space: int) -> None:
    out = tmp_path / "run"
    ended = runner.run(Order(str(out), space=space))
    assert ended["code"] == 2
    assert "cannot be written (File too large); make room" in ended["error"]
    assert str(out) in ended["error"]
    assert runner.run(Order(str(out), resume=True)) == {"code": 0, "error": ""}
    for name in ("model.safetensors", "users.safetensors", "metrics.jsonl"):
        assert (out / name).read_bytes() == (roomy / name).read_bytes()


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match="cannot be written"):
        small(1).run(tmp_path / "file" / "run")


def test_a_file_that_was_not_finished_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"old")
    with pytest.raises(TypeError), atomic(path) as sink:
        sink.write(b"new" + sink.write(b"some"))  # type: ignore[func-returns-value, operator]
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("x", b"old")]


def test_json_that_is_no_object(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("[]", encoding="utf-8")
    with pytest.raises(Corrupted, match="no JSON object"):
        read_json(tmp_path / "x.json")


def test_states_agree_with_the_last_checkpoint(finished: tuple[Experiment, Path, Result]) -> None:
    """What is selected lies in the checkpoint too, until somebody removes it."""
    run, out, result = finished
    from veilrec.runs.checkpoint import Checkpoints

    fed = run.federation()
    checkpoints = Checkpoints(out / "checkpoint", result.fingerprint)
    saved = both(fed, checkpoints.load(result.selected, emptied(fed))[0])
    assert digest(saved) == digest(both(fed, load_run(out).state(fed)))


def test_a_folder_that_nothing_came_into_goes_again(tmp_path: Path) -> None:
    def fail(place: Path) -> None:
        if place.name == "kept":
            (place / "recipe.toml").touch()
        raise BadInput(place, "full")

    (tmp_path / "there").mkdir()
    for name in ("new", "there", "kept"):
        with pytest.raises(BadInput, match="full"), claim(tmp_path / name) as place:
            fail(place)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept", "there"]
