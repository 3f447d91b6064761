"""One holder of a lock at a time, while it lives; nobody waits without end, and no file is harmed."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from tests.together import together
from veilrec.base.locks import held_by, locked, writer_of
from veilrec.errors import BadInput

needs_posix = pytest.mark.skipif(os.name != "posix", reason="needs links and pipes")


def test_one_at_a_time_and_the_second_waits_no_longer_than_it_was_told(tmp_path: Path) -> None:
    with locked(tmp_path):
        assert held_by(tmp_path) == f"pid {os.getpid()}"
        for wait in (0.0, 0.05):
            with pytest.raises(BadInput, match=f"locked by pid {os.getpid()}; wait"), locked(tmp_path, wait):
                pass
        with locked(tmp_path, name="other"):
            assert {path.name for path in tmp_path.iterdir()} == {"lock", "other"}
    assert held_by(tmp_path) == ""
    assert list(tmp_path.iterdir()) == []


def test_who_waits_gets_it_and_nothing_is_lost(tmp_path: Path) -> None:
    """Many who each read a number, add one and write it back."""
    count = tmp_path / "count"
    count.write_text("0", encoding="ascii")
    ready = threading.Barrier(8, timeout=10)

    def add() -> None:
        ready.wait()
        for _ in range(5):
            with locked(tmp_path, 30):
                now = int(count.read_text(encoding="ascii"))
                count.write_text(str(now + 1), encoding="ascii")

    together(*[add] * 8)
    assert count.read_text(encoding="ascii") == "40"


@needs_posix
@pytest.mark.parametrize("kind", ["link", "hard link", "pipe", "folder", "text"])
def test_what_is_no_lock_is_left_alone(tmp_path: Path, kind: str) -> None:
    mine, lock = tmp_path / "mine", tmp_path / "lock"
    mine.write_text("precious", encoding="utf-8")
    if kind == "link":
        lock.symlink_to(mine)
    elif kind == "hard link":
        os.link(mine, lock)
    elif kind == "pipe":
        os.mkfifo(lock)
    elif kind == "folder":
        lock.mkdir()
    else:
        lock.write_text("precious, too", encoding="utf-8")
    before = os.lstat(lock)
    with pytest.raises(BadInput, match="lock"), locked(tmp_path):
        pass
    assert os.lstat(lock)[:7] == before[:7]
    assert mine.read_text(encoding="utf-8") == "precious"


def test_a_lock_of_the_dead_is_free(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text("4194304\n", encoding="ascii")
    assert held_by(tmp_path) == ""
    with locked(tmp_path):
        assert (tmp_path / "lock").read_text(encoding="ascii") == f"{os.getpid()}\n"


def test_the_only_writer_of_a_file_locks_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    with writer_of(path), writer_of(tmp_path / "page.csv"), locked(tmp_path):
        with pytest.raises(BadInput, match=r"\.page\.html\.lock: locked by pid"), writer_of(path, 0.0):
            pass
        names = {one.name for one in tmp_path.iterdir()}
        assert names == {".page.html.lock", ".page.csv.lock", "lock"}
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(BadInput, match="is a folder"), writer_of(tmp_path):
        pass
    with pytest.raises(BadInput, match="cannot be written"), writer_of(tmp_path / "nowhere" / "x"):
        pass
