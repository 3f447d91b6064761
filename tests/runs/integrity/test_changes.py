"""A change of a finished run is made as a whole or not at all, wherever the process ends on its way."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.results import result
from tests.together import together
from veilrec.base import files
from veilrec.base.files import Digest, digest, read_json
from veilrec.errors import BadInput, Corrupted
from veilrec.result import Result
from veilrec.runs.integrity import changes
from veilrec.runs.integrity.changes import change, settle, vouched_for
from veilrec.runs.integrity.manifest import Manifest, staged
from veilrec.runs.integrity.verify import verified

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
CALLS = ("open", "write", "ftruncate", "fsync", "replace", "rename", "link", "unlink", "rmdir", "mkdir")
TEXTS = {"recipe.toml": "a = 1\n", "transcript.safetensors": "seen", "users.safetensors": "theirs"}
KILLED = 77


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of few bytes; the folder of its checkpoints, and a file of somebody's, lie there as well."""
    folder = tmp_path_factory.mktemp("original") / "run"
    folder.mkdir()
    for name, text in TEXTS.items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "checkpoint").mkdir()
    (folder / "checkpoint" / "state").write_text("old vectors", encoding="utf-8")
    (folder / "notes.g1").write_text("mine", encoding="utf-8")
    result().save(folder, {name: digest(folder / name) for name in TEXTS})
    return folder


@pytest.fixture
def run(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "run"))


def erase(run: Path) -> None:
    """What an erasure will do: new vectors, no transcript, nothing old left, and a result that says so."""
    with change(run) as new:
        told = read_json(new.path("result.json"))
        new.write_json("result.json", {**told, "rounds": told["rounds"] + 1})
        new.write_tensors("users.safetensors", {"user": torch.ones(3)}, secret=True)
        with new.writing("per_user.csv", secret=True) as sink:
            sink.write(b"user\n")
        new.drop("transcript.safetensors")
        new.drop("checkpoint")


def held(run: Path) -> dict[str, bytes]:
    """What the files of a run hold, by the name that its manifest gives them."""
    manifest = Manifest.load(run)
    return {name: manifest.path(name).read_bytes() for name in manifest.files}


def names(run: Path) -> set[str]:
    return {path.name for path in run.iterdir()}


AFTER = {"manifest.json", "result.json", "recipe.toml", "users.safetensors", "per_user.csv", "notes.g1"}


def test_a_change_is_made(run: Path) -> None:
    erase(run)
    assert names(run) == AFTER
    assert Result.load(run).rounds == result().rounds + 1
    manifest = Manifest.load(run)
    assert (manifest.generation, manifest.dropped) == (2, ())
    assert set(manifest.files) == AFTER - {"manifest.json", "notes.g1"}
    assert all(path.stat().st_mode & 0o77 == 0 for path in run.glob("*user*"))
    assert verified(run).sentence == "whole: 4 files, generation 2"


def test_who_fails_on_the_way_changes_nothing(run: Path) -> None:
    def fail() -> None:
        with change(run) as new:
            new.write_json("result.json", {"half": True})
            new.drop("transcript.safetensors")
            raise ZeroDivisionError

    before, files_before = held(run), names(run)
    with pytest.raises(ZeroDivisionError):
        fail()
    assert (held(run), names(run)) == (before, files_before)


@contextmanager
def counted(at: int, act: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """While this lasts, something happens instead of the n-th call of the system that writes."""
    made: list[str] = []

    def counting(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, **options: Any) -> Any:
            if name == "open" and not arguments[1] & (os.O_CREAT | os.O_WRONLY | os.O_RDWR):
                return call(*arguments, **options)
            made.append(name)
            if len(made) == at:
                act()
            return call(*arguments, **options)

        return called

    def halved(sink: files.Sink, data: bytes, whole: Callable[..., None] = files.Sink.write) -> None:
        made.append("half")
        if len(made) == at:
            sink._file.write(bytes(data)[: len(data) // 2])
            sink._file.flush()
            act()
        whole(sink, data)

    with monkeypatch.context() as patch:
        patch.setattr(files.Sink, "write", halved)
        for name in CALLS:
            patch.setattr(os, name, counting(name, getattr(os, name)))
        yield made


def killed(run: Path, at: int, monkeypatch: pytest.MonkeyPatch, act: Callable[[Path], None] = erase) -> bool:
    """Make a change in a process that ends, as if killed, at its n-th call; False if it needs fewer."""
    child = os.fork()
    if not child:
        code = 1
        try:
            with counted(at, partial(os._exit, KILLED), monkeypatch):
                act(run)
            code = 0
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, KILLED)
    return code == KILLED


EVERY = [5, pytest.param(1, marks=pytest.mark.slow)]  # one in so many of the calls that write


@needs_fork
@pytest.mark.parametrize("step", EVERY)
def test_a_process_that_is_killed_at_any_write_leaves_the_old_or_the_new(
    original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """And who comes next finds a run that can be read at once, verified, and changed again."""
    old, seen = held(original), []
    new = held_after(original, tmp_path / "new")
    for at in range(1, 200, step):
        run = Path(shutil.copytree(original, tmp_path / str(at)))
        if not killed(run, at, monkeypatch):
            break
        assert verified(run).faults == (), at
        found = held(run)
        seen.append(found == new)
        assert found in (old, new), at
        assert Result.load(run).rounds == result().rounds + seen[-1]
        erase(run)
        assert verified(run).faults == ()
        assert names(run) == AFTER, at
        assert Result.load(run).rounds == result().rounds + 1 + seen[-1]
    assert at > 30
    assert seen == sorted(seen), "once it is new, it stays so"
    assert {True, False} == set(seen)


def held_after(original: Path, place: Path) -> dict[str, bytes]:
    erase(Path(shutil.copytree(original, place)))
    return held(place)


@pytest.mark.parametrize("step", EVERY)
def test_a_call_that_fails_leaves_the_old_or_the_new_and_says_so(
    original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    old, new = held(original), held_after(original, tmp_path / "new")

    def full() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for at in range(1, 200, step):
        run = Path(shutil.copytree(original, tmp_path / str(at)))
        with counted(at, full, monkeypatch) as made:
            said = told(run)
        assert "No space left on device" in said or len(made) < at, (at, made[-1])
        if len(made) < at:
            break
        assert held(run) in (old, new), (at, made[-1])
        assert verified(run).faults == ()
        erase(run)
        assert names(run) == AFTER
    assert at > 30


def told(run: Path) -> str:
    """What an erasure says that fails: an error that names the file, or that of the system from a cleaner."""
    try:
        erase(run)
    except (BadInput, OSError) as error:
        return f"{error}"
    return ""


def test_where_nothing_is_finished_there_is_nothing_to_change(tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text("a = 1\n", encoding="utf-8")
    with pytest.raises(BadInput, match="not a finished run"), change(tmp_path):
        pass
    assert names(tmp_path) == {"recipe.toml"}


def test_what_a_run_ends_without_is_gone_with_its_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Secrets of an eraser, say: also where the process ends between the commit and their removal."""
    (tmp_path / "draws-0.safetensors").write_bytes(b"secret")
    with monkeypatch.context() as patch:
        patch.setattr(changes.os, "replace", cut_off(os.replace))
        with pytest.raises(KeyboardInterrupt):
            result().save(tmp_path, without=["draws-0.safetensors"])
    assert (tmp_path / "draws-0.safetensors").exists()
    settle(tmp_path)
    assert names(tmp_path) == {"manifest.json", "result.json"}


def add(run: Path, name: str) -> None:
    with change(run) as new:
        told = read_json(new.path("result.json"))
        new.write_json("result.json", {**told, "privacy": {**told["privacy"], name: {}}})


def test_changes_at_once_are_made_one_after_another(run: Path) -> None:
    together(*(partial(add, run, f"finding {k}") for k in range(6)))
    told = read_json(run / "result.json")["privacy"]
    assert {f"finding {k}" for k in range(6)} <= told.keys()
    assert Manifest.load(run).generation == 7


def test_who_reads_meanwhile_reads_the_old_or_the_new(run: Path) -> None:
    """Never a name's file of one generation for another one's checksum."""
    over = threading.Event()

    def write() -> None:
        for k in range(12):
            add(run, f"finding {k}")
        over.set()

    def read() -> list[int]:
        found = []
        while not over.is_set():
            found.append(len(Result.load(run).privacy))
        return found

    _, *seen = together(write, read, read)
    assert all(found == sorted(found) for found in seen)
    assert len(Result.load(run).privacy) == len(result().privacy) + 12


def test_what_is_committed_counts_before_it_has_its_name(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(changes, "_purge", lambda after: None)
        patch.setattr(changes.os, "replace", cut_off(os.replace))
        with pytest.raises(KeyboardInterrupt):
            add(run, "more")
    manifest = Manifest.load(run)
    assert not manifest.settled
    assert manifest.path("result.json").name == staged("result.json", 2)
    assert "more" in Result.load(run).privacy
    assert verified(run).faults == ()
    assert vouched_for(run / "result.json") == run / "result.json"
    assert Manifest.load(run).settled
    assert "more" in read_json(run / "result.json")["privacy"]


def cut_off(call: Callable[..., None]) -> Callable[..., None]:
    def called(source: Path, target: Path) -> None:
        if Path(source).suffix in (".g1", ".g2"):
            raise KeyboardInterrupt
        call(source, target)

    return called


def test_a_staged_file_that_was_damaged_is_not_taken(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(changes.os, "replace", cut_off(os.replace))
        with pytest.raises(KeyboardInterrupt):
            add(run, "more")
    (run / "result.json.g2").write_text("{}", encoding="utf-8")
    before = {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()}
    with pytest.raises(Corrupted, match=r"result\.json: not what the run wrote"):
        Result.load(run)
    with pytest.raises(Corrupted, match=r"result\.json: not what the run wrote"):
        settle(run)
    assert {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()} == before


def test_what_was_dropped_may_be_put_there_again(run: Path) -> None:
    erase(run)
    (run / "checkpoint").mkdir()
    add(run, "more")
    assert (run / "checkpoint").exists()


def test_a_file_behind_a_link_is_not_the_runs(run: Path, tmp_path: Path) -> None:
    (run / "users.safetensors").rename(tmp_path / "elsewhere")
    (run / "users.safetensors").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Corrupted, match=r"users\.safetensors: not what the run wrote"):
        Manifest.load(run).path("users.safetensors")
    erase(run)
    assert (tmp_path / "elsewhere").read_text(encoding="utf-8") == "theirs"
    assert not (run / "users.safetensors").is_symlink()


@pytest.mark.parametrize("name", ["report.html", "../result.json", "lock", "result.json.g2"])
def test_only_files_of_a_run_are_changed(run: Path, name: str) -> None:
    before = names(run)
    with pytest.raises(ValueError, match="is no file of a run"), change(run) as new:
        new.write_json(name, {})
    for dropped in ("../run", "a/b", "", ".", "..", "/", "a\0b", "lock", "manifest.json"):
        with pytest.raises(ValueError, match="what is dropped"), change(run) as new:
            new.drop(dropped)
    assert names(run) == before


def test_a_run_of_before_gets_its_manifest_with_its_first_change(run: Path) -> None:
    of_before(run)
    with pytest.warns(UserWarning, match="written before runs had manifests"):
        assert Result.load(run).rounds == result().rounds
    erase(run)
    assert names(run) == AFTER
    assert set(Manifest.load(run).files) == {
        "recipe.toml",
        "users.safetensors",
        "per_user.csv",
        "result.json",
    }
    assert Manifest.load(run).generation == 1


@pytest.mark.filterwarnings("ignore::veilrec.runs.integrity.manifest.Unverified")
def test_a_run_of_before_that_was_damaged_does_not_get_one(run: Path) -> None:
    of_before(run)
    (run / "recipe.toml").write_text("a = 2\n", encoding="utf-8")
    assert Result.load(run).selected == result().selected
    with pytest.raises(Corrupted, match=r"recipe\.toml: not what the run wrote"):
        erase(run)
    assert not (run / "manifest.json").exists()


def of_before(run: Path) -> None:
    """Make a run what the version before would have left."""
    told: dict[str, Digest] = {name: digest(run / name) for name in TEXTS}
    whole = {**replace(result()).values(), "version": 2}
    whole["files"] = {name: entry._asdict() for name, entry in told.items()}
    files.write_json(run / "result.json", whole)
    (run / "manifest.json").unlink()
