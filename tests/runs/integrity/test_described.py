"""What a checkpoint says of itself is what was written, or the one before it is used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.mutated import mutated
from veilrec.errors import BadInput, VeilrecError
from veilrec.runs.integrity import described
from veilrec.runs.integrity.described import Faulty, begun_with, check_states
from veilrec.runs.integrity.sealed import _checksum, write_sealed
from veilrec.runs.selection import Selection

SUM = {"sha256": "a" * 64, "bytes": 5}
BODY: dict[str, Any] = {
    "round": 12,
    "fingerprint": "f" * 64,
    "files": {"state-000012.safetensors": SUM},
    "notes": {
        "selection": Selection("ndcg@10", round=12, best=0.5).state(),
        "journals": {"metrics.jsonl": SUM, "timing.jsonl": SUM},
        "began": {"recipe.toml": SUM},
    },
}


def described_as(folder: Path, **changes: Any) -> Path:
    path = folder / "round-000012.json"
    write_sealed(path, described.VERSION, {**BODY, **changes})
    return path


def test_a_description_comes_back(tmp_path: Path) -> None:
    saved = described.read(described_as(tmp_path))
    assert (saved.round, saved.fingerprint, saved.notes) == (12, "f" * 64, BODY["notes"])
    assert begun_with(tmp_path) == {"recipe.toml": ("a" * 64, 5)}
    with pytest.raises(Faulty, match=r"state-000012\.safetensors does not match its checksum"):
        check_states(tmp_path, saved)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"round": -1}, "round: is below 0"),
        ({"round": "12"}, "round: is no whole number"),
        ({"fingerprint": None}, "fingerprint: is no text"),
        ({"files": {"../state": SUM}}, "files: the key: is not what it can be"),
        ({"files": {"a": {**SUM, "bytes": -5}}}, "files.a.bytes: is below 0"),
        ({"notes": {"selection": {"metric": "x"}}}, "notes.selection: lacks round"),
        ({"notes": {"selection": {**Selection("x").state(), "best": "y"}}}, "best: is no finite number"),
        ({"notes": {"journals": {"metrics.jsonl": 5}}}, "notes.journals.metrics.jsonl: is no table"),
        ({"notes": {"began": {"/etc/passwd": SUM}}}, "notes.began: the key: is not what it can be"),
        ({"more": 1}, 'has an unknown entry "more"'),
    ],
)
def test_a_description_that_was_never_written_is_faulty(
    tmp_path: Path, change: dict[str, Any], says: str
) -> None:
    """Also where its checksum is right: nothing elsewhere is looked at."""
    with pytest.raises(Faulty) as error:
        described.read(described_as(tmp_path, **change))
    assert says in str(error.value)
    assert begun_with(tmp_path) == {}


def test_another_version_is_told_as_that(tmp_path: Path) -> None:
    path = described_as(tmp_path)
    write_sealed(path, 9, BODY)
    with pytest.raises(BadInput, match="written as version 9"):
        described.read(path)


@settings(max_examples=100)
@given(mutated(json.loads(json.dumps(BODY))), st.booleans())
def test_mutated_descriptions_are_faulty_or_read(
    tmp_path_factory: pytest.TempPathFactory, body: dict[str, Any], sealed: bool
) -> None:
    folder = tmp_path_factory.getbasetemp() / "mutated"
    folder.mkdir(exist_ok=True)
    path, told = folder / "round-000012.json", {"version": described.VERSION, **body}
    sha256 = _checksum(told) if sealed else "0" * 64
    path.write_text(json.dumps({**told, "sha256": sha256}), encoding="utf-8")
    try:
        check_states(folder, described.read(path))
    except (Faulty, VeilrecError):
        return
    assert sealed
    assert not body["files"]
