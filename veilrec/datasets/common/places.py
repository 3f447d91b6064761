"""Places where datasets are looked for, and the download of published ones."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from veilrec.datasets.common.card import CARD
from veilrec.datasets.reading.layout import plain
from veilrec.errors import BadInput

__all__: list[str] = []

TIMEOUT = 30.0  # seconds without a byte


@dataclass(frozen=True)
class Published:
    """A dataset that others publish.

    Attributes:
        address: Where it can be had.
        terms: What may be done with it.
        sizes: Users, items and events with the default options, where somebody has counted.
        md5: The checksum of what is fetched; "" for what must be got by hand.
        marker: A file by which its folder is known under any name.
        called: The name of its folder and its ``.tar.gz``, where that is not the name of the dataset.
    """

    address: str
    terms: str
    sizes: tuple[int, int, int] | None = None
    md5: str = ""
    marker: str = ""
    called: str = ""


GROUPLENS = "GroupLens: research only; no commercial use, no redistribution"
PUBLISHED = {
    "amazon": Published(
        "https://jmcauley.ucsd.edu/data/amazon, the 5-core of one category",
        "McAuley lab: research, with citation",
    ),
    "mind": Published("https://msnews.github.io", "Microsoft: research only"),
    "ml-100k": Published(
        "https://files.grouplens.org/datasets/movielens/ml-100k.zip",
        GROUPLENS,
        (943, 1_682, 100_000),
        "0e33842e24a9c977be4e0107933c0723",
        "u.data",
    ),
    "ml-1m": Published(
        "https://files.grouplens.org/datasets/movielens/ml-1m.zip",
        GROUPLENS,
        (6_040, 3_706, 1_000_209),
        "c4d9eecfca2ab87c1945afe126590906",
        "ratings.dat",
    ),
    "lastfm-1k": Published(
        "https://github.com/amirreza-m95/robustCErec, as two tables",
        "Last.fm: no commercial use; a small stand-in for LastFM-360K",
        (268, 3_972, 109_302),
    ),
    "lastfm-360k": Published(
        "https://zenodo.org/records/6090214", "Last.fm: no commercial use", called="lastfm-dataset-360K"
    ),
    "lastfm-1k-plays": Published(
        "http://ocelma.net/MusicRecommendationDataset/lastfm-1K.html",
        "Last.fm: no commercial use",
        called="lastfm-dataset-1K",
    ),
    "modcloth": Published(
        "https://cseweb.ucsd.edu/~jmcauley/datasets.html, df_modcloth.csv",
        "McAuley lab: research, with citation",
    ),
    "renttherunway": Published(
        "https://cseweb.ucsd.edu/~jmcauley/datasets.html, as one table",
        "McAuley lab: research, with citation",
        (4_552, 3_001, 39_373),
    ),
    "taobao": Published("https://tianchi.aliyun.com/dataset/56", "Alibaba: research only"),
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
    if (found := located(name, data_dir)) is not None:
        return found
    looked = ", ".join(str(place) for place in places(data_dir))
    fix = "see `veilrec data list`"
    if (known := published(name)) is not None:
        fix = f"get it from {known.address}; put its folder there, or set data.path to it"
        if known.md5:
            fix = f"veilrec data get {name}, or name the folder that holds it with --data-dir"
    raise BadInput(name, f"not found in {looked}", fix)


def located(name: str, data_dir: Path | None = None) -> Path | None:
    """The folder or zip of a dataset, or None."""
    found = (_in(place, name) for place in places(data_dir)) if plain(name) else ()
    return next((path for path in found if path is not None), None)


def published(name: str) -> Published | None:
    """The entry of a published dataset, by its name without case and punctuation."""
    return next((known for key, known in PUBLISHED.items() if plain(key) == plain(name)), None)


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
    known = published(name)
    if known is None:
        fetched = ", ".join(name for name, each in PUBLISHED.items() if each.md5)
        fix = f"choose one of: {fetched}; or `veilrec data import` a file"
        raise BadInput(name, "is not published for download", fix)
    if not known.md5:
        fix = f"get it from {known.address} by hand and put it into {places(data_dir)[0]}"
        raise BadInput(name, "is not fetched by veilrec", fix)
    folder, file = places(data_dir)[0], known.address.rsplit("/", 1)[-1]
    hand = f"download {known.address} by hand and put it into {folder}"
    fresh = not folder.exists()
    try:
        return _downloaded(known, folder, file)
    except ImportError as error:
        raise BadInput(
            "veilrec data get", "pooch is not installed", f"pip install pooch, or {hand}"
        ) from error
    except ValueError as error:
        raise BadInput(known.address, "what came is not what was published (checksum)", hand) from error
    except OSError as error:  # what requests raises is an OSError too
        raise BadInput(known.address, f"cannot be downloaded: {_brief(error)}", hand) from error
    finally:
        if fresh and folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


def _downloaded(known: Published, folder: Path, file: str) -> Path:
    import pooch  # type: ignore[import-untyped]

    pooch.get_logger().setLevel("ERROR")
    downloader = pooch.HTTPDownloader(timeout=TIMEOUT)
    return Path(
        pooch.retrieve(
            known.address, known_hash=f"md5:{known.md5}", fname=file, path=folder, downloader=downloader
        )
    )


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
    known = published(name)
    if known and known.called:
        found = (place / f"{known.called}{end}" for end in ("", ".tar.gz"))
        return next((path for path in found if path.exists()), None)
    return place if known and known.marker and (place / known.marker).is_file() else None


def _entries(place: Path) -> list[Path]:
    try:
        return sorted(place.iterdir())
    except OSError:  # a place that does not exist, or may not be read, holds nothing
        return []


def _brief(error: OSError) -> str:
    return str(error).split("(Caused by")[0].strip()[:160] or type(error).__name__
