"""Where datasets are looked for, and how published ones get there."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from veilrec.datasets.layout import plain
from veilrec.datasets.store import CARD
from veilrec.errors import BadInput

__all__: list[str] = []

TIMEOUT = 30.0  # seconds without a byte


@dataclass(frozen=True)
class Published:
    """A dataset that others publish: where, with what checksum, under what terms."""

    address: str
    md5: str
    marker: str
    users: int
    items: int
    events: int
    terms: str


GROUPLENS = "GroupLens: research only, no commercial use, no redistribution; cite Harper and Konstan (2015)"
PUBLISHED = {
    "ml-100k": Published(
        "https://files.grouplens.org/datasets/movielens/ml-100k.zip",
        "0e33842e24a9c977be4e0107933c0723",
        "u.data",
        943,
        1_682,
        100_000,
        GROUPLENS,
    ),
    "ml-1m": Published(
        "https://files.grouplens.org/datasets/movielens/ml-1m.zip",
        "c4d9eecfca2ab87c1945afe126590906",
        "ratings.dat",
        6_040,
        3_706,
        1_000_209,
        GROUPLENS,
    ),
}


def places(data_dir: Path | None = None) -> list[Path]:
    """The folders that are searched, in order: `data_dir`, VEILREC_DATA_DIR, the user's cache."""
    told = [data_dir, os.environ.get("VEILREC_DATA_DIR"), _cache()]
    found = [Path(place).expanduser() for place in told if place]
    return list(dict.fromkeys(found))


def find(name: str, data_dir: Path | None = None) -> Path:
    """The folder or zip of a dataset, stored or published.

    Raises:
        BadInput: Saying where it was looked for and what to do.
    """
    if not plain(name):
        raise BadInput("data.name", f'"{name}" names no dataset', "see `veilrec data list`")
    for place in places(data_dir):
        if (found := _in(place, name)) is not None:
            return found
    looked = ", ".join(str(place) for place in places(data_dir))
    known = next((key for key in PUBLISHED if plain(key) == plain(name)), None)
    fix = (
        f"veilrec data get {known}, or name its folder with --data-dir"
        if known
        else "see `veilrec data list`"
    )
    raise BadInput(name, f"not found in {looked}", fix)


def stored(data_dir: Path | None = None) -> dict[str, Path]:
    """The datasets that were imported, by name; the first place wins."""
    found: dict[str, Path] = {}
    for place in places(data_dir):
        for folder in _entries(place):
            if not folder.name.startswith(".") and (folder / CARD).is_file():
                found.setdefault(folder.name, folder)
    return found


def get(name: str, data_dir: Path | None = None) -> Path:
    """Download a published dataset into the first place and check it; a good copy there is kept as it is.

    Raises:
        BadInput: Where it is not published, cannot be reached, or is not what was published.
    """
    key = next((key for key in PUBLISHED if plain(key) == plain(name)), None)
    if key is None:
        raise BadInput(
            name, "cannot be downloaded", f"choose one of: {', '.join(PUBLISHED)}; or `veilrec data import`"
        )
    import pooch  # type: ignore[import-untyped]

    published, folder = PUBLISHED[key], places(data_dir)[0]
    hand = f"download {published.address} by hand and put it into {folder}"
    try:
        pooch.get_logger().setLevel("ERROR")
        path = pooch.retrieve(
            published.address,
            known_hash=f"md5:{published.md5}",
            fname=f"{key}.zip",
            path=folder,
            downloader=pooch.HTTPDownloader(timeout=TIMEOUT),
        )
    except ValueError as error:
        raise BadInput(published.address, "what came is not what was published (checksum)", hand) from error
    except OSError as error:  # what requests raises is an OSError too
        raise BadInput(published.address, f"cannot be downloaded: {_brief(error)}", hand) from error
    return Path(path)


def _cache() -> Path:
    """The user's cache, where the platform keeps such things."""
    if home := os.environ.get("VEILREC_HOME"):
        return Path(home) / "data"
    try:
        import platformdirs
    except ImportError:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "veilrec"
    return platformdirs.user_cache_path("veilrec")


def _in(place: Path, name: str) -> Path | None:
    """A dataset in one place: ``name/``, ``name.zip``, or the place itself where it holds the files."""
    for entry in _entries(place):
        stem = entry.name.removesuffix(".zip")
        if plain(stem) == plain(name) and (entry.is_dir() or entry.suffix == ".zip"):
            return entry
    published = next((known for key, known in PUBLISHED.items() if plain(key) == plain(name)), None)
    return place if published and (place / published.marker).is_file() else None


def _entries(place: Path) -> list[Path]:
    try:
        return sorted(place.iterdir())
    except OSError:  # a place that does not exist, or may not be read, holds nothing
        return []


def _brief(error: OSError) -> str:
    return str(error).split("(Caused by")[0].strip()[:160] or type(error).__name__
