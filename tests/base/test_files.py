"""Files are whole or not there, whoever writes them at the same time, and never what a link leads to."""

from __future__ import annotations

import os
import socket
import stat
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.devices import device
from tests.together import together
from veilrec.base.files import atomic, digest, matches, read_json, reading, sweep, write_json
from veilrec.base.plain import NotPlain, check_folder, made
from veilrec.errors import BadInput, Corrupted

needs_posix = pytest.mark.skipif(os.name != "posix", reason="needs links and pipes")


def link(path: Path) -> None:
    (path.parent / "elsewhere").write_text("theirs", encoding="utf-8")
    path.symlink_to("elsewhere")


def dangling(path: Path) -> None:
    path.symlink_to("nowhere")


def listening(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(path))


TRAPS: dict[str, Callable[[Path], None]] = {
    "link": link,
    "dangling": dangling,
    "pipe": os.mkfifo if hasattr(os, "mkfifo") else Path.mkdir,
    "folder": Path.mkdir,
    "socket": listening,
}


def write(path: Path, text: bytes = b"mine") -> None:
    with atomic(path) as sink:
        sink.write(text)


@needs_posix
@pytest.mark.parametrize("trap", TRAPS)
def test_what_is_no_plain_file_is_neither_replaced_nor_read(
    tmp_path: Path, trap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # the name of a socket must be short
    path = Path("x.json")
    TRAPS[trap](path)
    before = os.lstat(path)
    with pytest.raises(
        BadInput, match=r"^x\.json: is a \w+, no plain file; remove it, or name another place$"
    ):
        write(path)
    with pytest.raises(Corrupted, match=r"^x\.json: cannot be read as JSON \(is a \w+, no plain file\)"):
        read_json(path)
    assert not matches(path, digest(Path(__file__)))
    assert (os.lstat(path).st_ino, os.lstat(path).st_mode) == (before.st_ino, before.st_mode)
    assert not (tmp_path / "nowhere").exists()
    if trap == "link":
        assert Path("elsewhere").read_text(encoding="utf-8") == "theirs"


@needs_posix
def test_a_device_stays_one(tmp_path: Path) -> None:
    path = device(tmp_path / "null")
    with pytest.raises(BadInput, match="null: is a device, no plain file"):
        write(path)
    assert stat.S_ISCHR(os.lstat(path).st_mode)


@needs_posix
def test_a_folder_of_ours_is_not_looked_for_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    made(tmp_path / "real")
    made(tmp_path / "new", 0o700)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700
    for call in (made, check_folder):
        with pytest.raises(NotPlain):
            call(tmp_path / "link")
    check_folder(tmp_path / "nothing")


def test_two_who_write_one_file_leave_one_of_them_whole(tmp_path: Path) -> None:
    path, ready = tmp_path / "x", threading.Barrier(2, timeout=10)
    texts = [b"a" * 100_000, b"b" * 150_000]

    def one(text: bytes) -> None:
        with atomic(path) as sink:
            sink.write(text[:50_000])
            ready.wait()  # both are half-way, beside each other
            sink.write(text[50_000:])

    together(*(partial(one, text) for text in texts))
    assert path.read_bytes() in texts
    assert list(tmp_path.iterdir()) == [path]


def test_what_somebody_writes_is_not_swept_away_and_what_the_dead_have_left_is(tmp_path: Path) -> None:
    path = tmp_path / "x"
    (tmp_path / "x.0123456789ab.tmp").write_bytes(b"of one who died")
    (tmp_path / "y.tmp").write_bytes(b"of one who died")
    with atomic(path) as sink:
        sink.write(b"whole")
        assert not (tmp_path / "x.0123456789ab.tmp").exists()
        assert (tmp_path / "y.tmp").exists(), "it may be anybody's"
        sweep(tmp_path)
        assert not (tmp_path / "y.tmp").exists()
        assert len(list(tmp_path.iterdir())) == 1
    assert path.read_bytes() == b"whole"


@needs_posix
def test_sweeping_removes_files_alone(tmp_path: Path) -> None:
    (tmp_path / "kept").write_bytes(b"kept")
    (tmp_path / "link.tmp").symlink_to("kept")
    (tmp_path / "folder.tmp").mkdir()
    sweep(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"kept", "link.tmp", "folder.tmp"}
    assert (tmp_path / "kept").read_bytes() == b"kept"


def test_a_long_name_may_be_written(tmp_path: Path) -> None:
    path = tmp_path / ("ü" * 120)
    write(path)
    assert path.read_bytes() == b"mine"


def test_permissions(tmp_path: Path) -> None:
    with atomic(tmp_path / "secret", secret=True) as sink:
        sink.write(b"")
        (unfinished,) = tmp_path.iterdir()
        assert stat.S_IMODE(unfinished.stat().st_mode) == 0o600
    write(tmp_path / "open")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes["secret"] == 0o600
    assert modes["open"] & 0o400


def test_digests_are_of_bytes(tmp_path: Path) -> None:
    path = tmp_path / "x"
    write(path, b"0123456789")
    with reading(path) as file:
        assert file.read() == b"0123456789"
    assert matches(path, digest(path))
    assert not matches(path, digest(path, 5))
    assert not matches(tmp_path / "none", digest(path))
    assert not matches(path / "below", digest(path))


@pytest.mark.parametrize("text", ['{"a": NaN}', '{"a": -Infinity}', "[" * 100_000, "{", "[]", "\xff", ""])
def test_json_of_others_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(Corrupted) as told:
        read_json(tmp_path / "x.json")
    assert len(str(told.value)) < len(str(tmp_path)) + 150


def test_json_has_a_largest_size(tmp_path: Path) -> None:
    write_json(tmp_path / "x.json", {"a": "b" * 100})
    assert read_json(tmp_path / "x.json", 150) == {"a": "b" * 100}
    with pytest.raises(Corrupted, match="more than 50 bytes"):
        read_json(tmp_path / "x.json", 50)
