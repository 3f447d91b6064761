"""A file is hashed once while it stays as it is, and again as soon as it may have changed."""

from __future__ import annotations

import json
import os
import stat
import time
from pathlib import Path

import pytest

from veilrec.base.files import digest
from veilrec.runs.integrity import checked
from veilrec.runs.integrity.checked import CHECKED, Checked

OLD = time.time() - 60


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that nobody has touched for longer than it takes to be trusted."""
    path = tmp_path / "model"
    path.write_bytes(b"weights")
    os.utime(path, (OLD, OLD))
    monkeypatch.setattr(checked, "YOUNG", -(10**12))  # the time of its name cannot be put back
    return path


def hashed(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that are read from now on."""
    read: list[Path] = []

    def reading(path: Path) -> object:
        read.append(path)
        return path.open("rb")

    monkeypatch.setattr(checked, "reading", reading)
    return read


def test_the_next_command_does_not_read_it_again(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected, read = digest(file), hashed(monkeypatch)
    for _ in range(3):
        known = Checked(file.parent)
        assert known.holds(file, expected)
        assert known.holds(file, expected)
        known.save()
    assert read == [file]
    assert stat.S_IMODE((file.parent / CHECKED).stat().st_mode) == 0o600
    known = Checked(file.parent)
    known.forget()
    assert known.holds(file, expected)
    assert len(read) == 2, "whoever verifies takes nothing for granted"


def test_what_has_just_been_written_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be written once more, at the same time as far as a clock can tell."""
    path = tmp_path / "model"
    path.write_bytes(b"weights")
    expected, read = digest(path), hashed(monkeypatch)
    for _ in range(2):
        known = Checked(tmp_path)
        assert known.holds(path, expected)
        known.save()
    assert len(read) == 2
    assert not (tmp_path / CHECKED).exists()


@pytest.mark.parametrize("change", ["bytes", "bytes, and its time put back", "size", "another file"])
def test_a_file_that_changed_is_read_again(file: Path, change: str) -> None:
    expected, before = digest(file), os.stat(file)
    known = Checked(file.parent)
    assert known.holds(file, expected)
    known.save()
    if change == "another file":
        (file.parent / "new").write_bytes(b"wEights")
        os.replace(file.parent / "new", file)
    else:
        file.write_bytes(b"weights." if change == "size" else b"wEights")
    if change != "bytes":
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert not Checked(file.parent).holds(file, expected)
    assert not known.holds(file, expected)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"version": 1}',
        '{"version": 2, "files": {}}',
        '{"version": 1, "files": {"model": {}}}',
    ],
)
def test_a_memory_that_cannot_be_read_is_none(file: Path, text: str) -> None:
    (file.parent / CHECKED).write_text(text, encoding="utf-8")
    expected = digest(file)
    known = Checked(file.parent)
    assert known.holds(file, expected)
    assert not known.holds(file, expected._replace(sha256="0" * 64))
    known.save()
    assert json.loads((file.parent / CHECKED).read_text(encoding="utf-8"))["files"].keys() == {"model"}


@pytest.mark.skipif(os.name != "posix", reason="needs links")
def test_a_memory_is_no_link_and_a_folder_may_be_closed(file: Path, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine", encoding="utf-8")
    (file.parent / CHECKED).symlink_to(tmp_path / "precious")
    known = Checked(file.parent)
    assert known.holds(file, digest(file))
    known.save()
    assert (tmp_path / "precious").read_text(encoding="utf-8") == "mine"
    known.folder = tmp_path / "nowhere"
    known._fresh = True
    known.save()


def test_a_digest_that_differs_is_not_remembered_as_right(file: Path) -> None:
    wrong = digest(file)._replace(sha256="0" * 64)
    known = Checked(file.parent)
    assert not known.holds(file, wrong)
    known.save()
    assert not (file.parent / CHECKED).exists()
    assert not Checked(file.parent).holds(file, wrong)
