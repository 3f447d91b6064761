"""What a manifest says is what was written, or it is refused; it speaks of files in its own folder alone."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.mutated import mutated
from tests.results import result
from veilrec.base.files import digest
from veilrec.errors import BadInput, Corrupted, VeilrecError
from veilrec.result import Result
from veilrec.runs.integrity.manifest import Manifest, is_finished
from veilrec.runs.integrity.sealed import _checksum


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("original")
    (folder / "recipe.toml").write_text("a = 1\n", encoding="utf-8")
    result().save(folder, {"recipe.toml": digest(folder / "recipe.toml")})
    return folder


@pytest.fixture
def run(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "run"))


def told(run: Path) -> dict[str, Any]:
    return json.loads((run / "manifest.json").read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def seal(run: Path, body: dict[str, Any]) -> None:
    """Write a manifest whose checksum is right, whatever it says."""
    rest = {key: value for key, value in body.items() if key != "sha256"}
    text = json.dumps({**rest, "sha256": _checksum(rest)})
    (run / "manifest.json").write_text(text, encoding="utf-8")


def edit(path: Path, old: bytes, new: bytes) -> None:
    path.write_bytes(path.read_bytes().replace(old, new, 1))


def test_a_run_is_its_manifest(run: Path) -> None:
    manifest = Manifest.load(run)
    assert sorted(manifest.files) == ["recipe.toml", "result.json"]
    assert manifest.path("recipe.toml") == run / "recipe.toml"
    assert manifest.settled
    assert manifest.faults() == []
    assert is_finished(run)
    with pytest.raises(BadInput, match=r"world\.safetensors: no such file: the run is kept without it"):
        manifest.path("world.safetensors")


def test_every_file_that_differs_is_named(run: Path) -> None:
    for name in ("recipe.toml", "result.json"):
        (run / name).write_bytes((run / name).read_bytes() + b" ")
    assert [fault.partition(": ")[0] for fault in Manifest.load(run).faults()] == [
        str(run / "recipe.toml"),
        str(run / "result.json"),
    ]


GOOD = {"sha256": "0" * 64, "bytes": 1}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"generation": 0}, "generation: is below 1"),
        ({"generation": 2**40}, "generation: is above"),
        ({"generation": True}, "generation: is no whole number"),
        ({"files": []}, "files: is no table"),
        ({"files": {"a": {"sha256": "0" * 64}}}, "files.a: lacks bytes"),
        ({"files": {"a": {**GOOD, "bytes": -1}}}, "files.a.bytes: is below 0"),
        ({"files": {"a": {**GOOD, "bytes": 1.0}}}, "files.a.bytes: is no whole number"),
        ({"files": {"a": {**GOOD, "sha256": "z" * 64}}}, "files.a.sha256: is not what it can be"),
        ({"files": {"a": {**GOOD, "sha256": "0" * 65}}}, "files.a.sha256: has more than 64 letters"),
        ({"files": {"a": {**GOOD, "more": 1}}}, 'files.a: has an unknown entry "more"'),
        ({"files": {"../a": GOOD}}, "files: the key: is not what it can be"),
        ({"files": {"": GOOD}}, "files: the key: is not what it can be"),
        ({"files": {str(k): GOOD for k in range(65)}}, "files: has more than 64 entries"),
        ({"dropped": ["../elsewhere"]}, "dropped.0: is not what it can be"),
        ({"dropped": [".."]}, "dropped.0: is not what it can be"),
        ({"dropped": [""]}, "dropped.0: is not what it can be"),
        ({"dropped": ["/etc"]}, "dropped.0: is not what it can be"),
        ({"dropped": [5]}, "dropped.0: is no text"),
        ({"dropped": "abc"}, "dropped: is no list"),
        ({"more": 1}, 'has an unknown entry "more"'),
    ],
)
def test_a_manifest_that_was_never_written_is_refused(run: Path, change: dict[str, Any], says: str) -> None:
    """Also where its checksum is right."""
    seal(run, {**told(run), **change})
    with pytest.raises(Corrupted) as error:
        Result.load(run)
    assert f"{run / 'manifest.json'}: {says}" in str(error.value)


def test_another_version_is_told_as_that(run: Path) -> None:
    seal(run, {**told(run), "version": 2})
    with pytest.raises(BadInput, match="written as version 2; this veilrec reads version 1"):
        Result.load(run)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (Path.unlink, r"manifest\.json: missing"),
        (lambda path: path.write_bytes(path.read_bytes()[:-9]), "cannot be read as JSON"),
        (lambda path: path.write_text("{}"), "does not match its checksum"),
        (
            lambda path: path.write_bytes(path.read_bytes().replace(b'"bytes": ', b'"bytes": 1', 1)),
            "does not",
        ),
        (lambda path: path.write_bytes(path.read_bytes().replace(b'"gener', b'"Gener', 1)), "does not match"),
    ],
)
def test_a_damaged_manifest_is_noticed(run: Path, damage: Callable[[Path], None], says: str) -> None:
    damage(run / "manifest.json")
    with pytest.raises(Corrupted, match=says):
        Result.load(run)


@settings(max_examples=150)
@given(st.data())
def test_mutated_manifests_raise_our_errors_alone(original: Path, data: st.DataObject) -> None:
    """Sealed again, so that more than the checksum is looked at."""
    before, right = (original / "manifest.json").read_bytes(), told(original)
    try:
        seal(original, data.draw(mutated(copy.deepcopy(right))))
        try:
            found = Manifest.load(original)
        except VeilrecError:
            return
        assert all(entry.bytes >= 0 for entry in found.files.values())
        assert isinstance(found.faults(), list)
        assert found.generation >= 1
    finally:
        (original / "manifest.json").write_bytes(before)
