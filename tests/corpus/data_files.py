"""Data files that are bombs, or larger than anything that is read: all are made here, none is kept."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.corpus import Case, Command
from tests.corpus.stock import Stock

__all__ = ["CASES"]

HEAD = b"user,item,rating\n"
BLOCK = 1 << 24
BOMB = "packed more than 100-fold, as no text is"


def gzip_bomb(path: Path, *, before: int = 0, megabytes: int = 256) -> None:
    """Zeros behind so many bytes that do not pack."""
    with gzip.open(path, "wb", compresslevel=6) as file:
        file.write(HEAD + os.urandom(before))
        for _ in range(megabytes * (1 << 20) // BLOCK):
            file.write(bytes(BLOCK))


def ten_gigabytes(path: Path) -> None:
    """Members of a gzip file, one after another: each is 16 MB of zeros, and all of them are 10 GB."""
    path.write_bytes(gzip.compress(bytes(BLOCK)) * (10 * (1 << 30) // BLOCK))


def zip_bomb(path: Path, *, before: int = 0) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("log.csv", "w") as file:
        file.write(HEAD + os.urandom(before))
        for _ in range(12):
            file.write(bytes(BLOCK))


def tar_bomb(path: Path) -> None:
    with tarfile.open(path, "w:gz", compresslevel=6) as archive:
        junk = tarfile.TarInfo("junk")
        junk.size = 16 * BLOCK
        archive.addfile(junk, io.BytesIO(bytes(junk.size)))


def text(data: Callable[[], bytes]) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(data()) and None


FILES: dict[str, tuple[str, Callable[[Path], None], str]] = {  # the file's name, who makes it, what is said
    "a gzip of 10 GB": ("log.csv.gz", ten_gigabytes, BOMB),
    "a gzip bomb behind honest bytes": ("log.csv.gz", partial(gzip_bomb, before=8 << 20), BOMB),
    "a zip bomb": ("log.zip", zip_bomb, "the member unpacks from"),
    "a zip bomb behind honest bytes": ("log.zip", partial(zip_bomb, before=4 << 20), BOMB),
    "a line of 100 MB": ("log.csv", text(lambda: HEAD + b"x" * 100_000_000), "a line of more than 4,194,304"),
    "a line of fifty million fields": (
        "log.csv",
        text(lambda: HEAD + b"1," * 50_000_000),
        "a line of more than",
    ),
    "a row of a million lines": (
        "log.csv",
        text(lambda: HEAD + b'1,2,3\n"\n' + b'",\n"' * (2 << 20)),
        "a row of more than 4,194,304 letters|cannot be cut into fields|fields where",
    ),
    "a file of holes": ("log.csv", lambda path: sparse(path, 5 << 30), "and at most|reading takes up to"),
}


def sparse(path: Path, size: int) -> None:
    """A file that says it is long, and takes no room."""
    with path.open("wb") as file:
        file.truncate(size)


def imported(name: str, make: Callable[[Path], None], folder: Path, stock: Stock) -> Command:
    make(folder / name)
    return Command("data", "import", name, "--yes")


def last_fm(folder: Path, stock: Stock) -> Command:
    """A release whose first member is a bomb."""
    tar_bomb(folder / "lastfm-360k.tar.gz")
    (folder / "a.toml").write_text(
        '[data]\nname = "lastfm-360k"\npath = "lastfm-360k.tar.gz"\n', encoding="utf-8"
    )
    return Command("run", "a.toml", "--out", "out", "--quiet")


def deep_card(folder: Path, stock: Stock) -> Command:
    """A stored dataset whose description is nested a hundred thousand deep."""
    home = folder / "sets" / "mine"
    home.mkdir(parents=True)
    (home / "dataset.json").write_text("[" * 100_000, encoding="utf-8")
    (folder / "a.toml").write_text('[data]\nname = "mine"\n', encoding="utf-8")
    return Command("run", "a.toml", "--data-dir", "sets", "--out", "out", "--quiet")


CASES = [
    *(
        Case(f"data: {name}", partial(imported, *made), 2, says, slow=True)
        for name, (*made, says) in FILES.items()
    ),
    Case("data: a tar.gz whose first member is a bomb", last_fm, 2, BOMB, slow=True),
    Case("data: a description nested a hundred thousand deep", deep_card, 4, "dataset.json"),
]
