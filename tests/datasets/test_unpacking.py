"""What unpacks to too much is given up while it is read, after a bounded number of bytes."""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

from veilrec.base.limits.machine import Room
from veilrec.datasets.lastfm_360k import lastfm_360k
from veilrec.datasets.reading import unpacking
from veilrec.datasets.reading.archives import Archive, read
from veilrec.datasets.reading.unpacking import BLOCK, FREE, RATIO, Counted, Metered
from veilrec.errors import BadInput
from veilrec.lab.columns import opened
from veilrec.lab.vectors import read_vectors

ROWS = b"".join(b"%d,%d\n" % (k, k * 7919 % 10007) for k in range(50_000))  # packs to a third


class Endless:
    """A stream without an end, of so many packed bytes for each block."""

    def __init__(self, packed: int) -> None:
        self.each, self.packed = packed, 0

    def read(self, size: int = -1, /) -> bytes:
        self.packed += self.each
        return bytes(size)


def test_what_is_packed_as_no_text_is_ends_after_some_megabytes() -> None:
    stream = Endless(packed=1000)
    metered = Metered("x", stream, lambda: stream.packed)
    with pytest.raises(BadInput, match="unpacks to more than 33,554,432 bytes"):
        metered.whole()
    assert metered.total <= FREE + FREE // 8


def test_what_came_before_does_not_count_for_it() -> None:
    stream = Endless(packed=BLOCK)
    metered = Metered("x", stream, lambda: stream.packed)
    for _ in range(100):
        metered.read()
    before, stream.each = metered.total, 1
    with pytest.raises(BadInput, match="unpacks to more than"):
        metered.whole()
    assert metered.total - before <= FREE + 2 * BLOCK


def test_what_is_packed_as_text_is_passes() -> None:
    stream = Endless(packed=BLOCK // RATIO + 1)
    metered = Metered("x", stream, lambda: stream.packed)
    assert sum(len(metered.read()) for _ in range(200)) == 200 * BLOCK


@pytest.fixture
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with room for one megabyte."""
    monkeypatch.setattr(unpacking, "room", lambda: Room(1 << 20, "the memory that is free"))


@pytest.mark.parametrize("kind", ["plain", "gzip", "zip"])
@pytest.mark.usefixtures("little")
def test_what_does_not_fit_is_refused_with_what_there_is(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "log.csv"
    if kind == "zip":
        with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("log.csv", ROWS)
        path = tmp_path / "a.zip" / "log.csv"
    else:
        path.write_bytes(gzip.compress(ROWS, 1) if kind == "gzip" else ROWS)
    with pytest.raises(
        BadInput, match="takes up to 4 times, and the memory that is free is 1,048,576; cut it"
    ):
        read(path)


def test_what_fits_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_bytes(gzip.compress(ROWS, 1))
    assert read(tmp_path / "log.csv").data == ROWS
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("log.csv", ROWS)
    assert Archive(tmp_path / "a.zip").read("log.csv").data == ROWS
    with Counted(tmp_path / "a.zip") as file:
        assert len(file.read()) == file.count == (tmp_path / "a.zip").stat().st_size


def test_a_member_before_the_one_that_is_wanted_may_be_no_bomb(tmp_path: Path) -> None:
    path = tmp_path / "lastfm-360k.tar.gz"
    with tarfile.open(path, "w:gz", compresslevel=6) as archive:
        junk = tarfile.TarInfo("junk")
        junk.size = 48 << 20
        archive.addfile(junk, io.BytesIO(bytes(junk.size)))
    with pytest.raises(BadInput, match=r"tar\.gz: unpacks to more than 33,554,432 bytes"):
        lastfm_360k(path)


@pytest.mark.usefixtures("little")
def test_a_table_that_says_it_is_too_large_is_not_read(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "vectors.parquet"
    parquet.write_table(pyarrow.table({"id": np.arange(50_000), "x": np.zeros(50_000)}), path)
    assert path.stat().st_size < 1 << 20
    with pytest.raises(BadInput, match=r"has [\d,]+ bytes, which reading takes"):
        opened(path, path.read_bytes()[:8], None)


@pytest.mark.usefixtures("little")
def test_vectors_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "vectors.npy"
    np.save(path, np.zeros((1000, 300), np.float32))
    with pytest.raises(BadInput, match="has 1,200,000 bytes, which reading takes"):
        read_vectors(path)
