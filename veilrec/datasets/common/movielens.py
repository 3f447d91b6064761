"""Common form of the MovieLens releases: three files with fixed columns and no header."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

import numpy as np

from veilrec.datasets.common.published import without_header
from veilrec.datasets.reading.archives import Files
from veilrec.datasets.reading.assemble import Log, assemble, sound_ids, titles_of
from veilrec.datasets.reading.people import Amounts, Attribute, people_of
from veilrec.datasets.reading.table import Kind, TextTable
from veilrec.datasets.reading.times import times_of
from veilrec.interactions import Interactions

__all__: list[str] = []

GENDERS = {"F": "female", "M": "male"}


@dataclass(frozen=True)
class File:
    """One file of a release: its name, its columns, and which of them to read."""

    name: str
    columns: tuple[str, ...]
    read: tuple[str, ...]
    encoding: str | None = None


@dataclass(frozen=True)
class Release:
    """A release: the separators and the files of its events, users and films."""

    name: str
    log: tuple[str, File]
    users: tuple[str, File]
    items: tuple[str, File]


def load(
    release: Release,
    files: Files,
    attributes: Callable[[TextTable], Mapping[str, Attribute]],
    values: Callable[[TextTable], Mapping[str, Amounts]] | None = None,
    *,
    strict: bool,
    split_seed: int,
) -> Interactions:
    """The log of a release; users and films are optional files, and the report says what is missing."""
    log = _log(_read(files, *release.log))
    present = {PurePosixPath(name).name for name in files.names}
    people = titles = None
    absent = []
    if release.users[1].name in present:
        table = _read(files, *release.users)
        sound_ids(table, "user")
        people = people_of(table, "user", attributes(table), values=values(table) if values else {})
    else:
        absent.append(f"there is no {release.users[1].name}: attributes are switched off")
    if release.items[1].name in present:
        titles = titles_of(_read(files, *release.items), "item", "title")
    else:
        absent.append(f"there is no {release.items[1].name}: titles are switched off")
    return assemble(release.name, log, people, titles, absent=absent, strict=strict, split_seed=split_seed)


def _read(files: Files, separator: str, file: File) -> TextTable:
    kinds: dict[str, Kind] = {name: "number" if name in {"rating", "time"} else "token" for name in file.read}
    return without_header(files.read(file.name), separator, file.columns, kinds, file.encoding)


def _log(table: TextTable) -> Log:
    rating = table.numbers["rating"]
    stars = (rating >= 1) & (rating <= 5) & (rating == rating.round())
    table.refuse(~stars, "rating", 'rating is "{value}"', "it must be 1, 2, 3, 4 or 5")
    return Log(table, "user", "item", rating.astype(np.float32), times_of(table, "time"))
