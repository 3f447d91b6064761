"""LastFM-360K: which artists 359,347 users of Last.fm played most, and how often; gender and age.

Celma, "Music Recommendation and Discovery in the Long Tail", Springer 2010, as published: the files
``usersha1-artmbid-artname-plays.tsv`` and ``usersha1-profile.tsv``, or the ``tar.gz`` that has both.
FedAU² keeps users whose gender and age are known (0 to 100 years), cuts until users have 51 and artists 23,
and balances by gender (``data.balance``): 6,116 users, 3,834 artists and 339,032 events. It does not say what
it takes for an artist, so that these numbers cannot be promised.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from veilrec.datasets.common.lastfm import left_out, listened
from veilrec.datasets.reading.archives import Source
from veilrec.datasets.reading.assemble import Log, Titles, sound_ids
from veilrec.datasets.reading.layout import understand
from veilrec.datasets.reading.people import UNKNOWN, Attribute, People, amounts, declared, people_of
from veilrec.datasets.reading.streams import pieces
from veilrec.datasets.reading.table import Table, Tokens, read_table
from veilrec.datasets.reading.text import clean
from veilrec.errors import BadInput
from veilrec.interactions import Interactions

__all__ = ["lastfm_360k"]

PLAYS, PROFILES = "usersha1-artmbid-artname-plays.tsv", "usersha1-profile.tsv"
FOLDER, ARCHIVE = "lastfm-dataset-360K", "lastfm-dataset-360K.tar.gz"
EVENT = ("user", "mbid", "artist", "plays")
PERSON = ("user", "gender", "age", "country", "signup")
GENDERS = {"f": "female", "m": "male"}
OLDEST = 100  # years that are believed, from 0 on
CONTROL = re.compile(r"[\x00-\x20]+")


def lastfm_360k(
    path: Path, *, ages: Sequence[int] = (21, 26), least_of_user: int = 51, least_of_item: int = 23
) -> Interactions:
    r"""LastFM-360K as published, of users whose gender and age are known.

    An artist is known by its MusicBrainz id, or by its name where that is missing. There are no times: the
    order of rows stands for them. The files list the artists of a user by falling plays, so that the one
    played least is held out.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / PLAYS).write_text("ann\tmb1\tNico\t70\nann\t\tCan\t20\n")
    ...     _ = (Path(folder) / PROFILES).write_text("ann\tf\t24\tGermany\tFeb 1, 2007\n")
    ...     log = lastfm_360k(Path(folder), least_of_user=1, least_of_item=1)
    >>> log.item_ids, log.texts, log.classes["age"][log.attributes["age"]]
    (['Can', 'mb1'], ['Can', 'Nico'], '21 to 25')

    Args:
        path: The folder with the two files, the ``.tar.gz``, or a folder that holds one of them.
        ages: First years of the second and later age groups: by default under 21, 21 to 25, 26 and over.
        least_of_user, least_of_item: Users with fewer different artists, and artists with fewer users, are
            left out, until nothing more falls out.
    """
    if not ages or list(ages) != sorted(set(ages)):
        raise BadInput("data.ages", f"{list(ages)} do not rise", "give numbers in ascending order")
    home = _home(Path(path))
    people, notes = _people(home, tuple(ages))
    heard = _Heard({name: place for place, name in enumerate(people.ids)})
    for piece in pieces(home, PLAYS):
        try:
            heard.add(_table(piece.source, EVENT))
        except BadInput as error:
            raise piece.placed(error) from error
    log, titles = heard.log(f"{home}/{PLAYS}"), Titles(PLAYS, heard.titles)
    least = (least_of_user, least_of_item)
    return listened("lastfm-360k", log, people, titles, least, [*notes, *left_out("row", heard.gone)])


def _home(path: Path) -> Path:
    """The folder that has the files, or the archive."""
    if path.name == PLAYS and path.is_file():
        return path.parent
    for folder in (path, path / "lastfm-360k", path / FOLDER):
        if (folder / PLAYS).is_file():
            return folder
    for file in (path, path / ARCHIVE, path / "lastfm-360k" / ARCHIVE):
        if file.is_file():
            return file
    raise BadInput(path, f"there is no {PLAYS} here, nor {ARCHIVE}", "name the folder that holds one of them")


def _people(home: Path, cuts: tuple[int, ...]) -> tuple[People, list[str]]:
    """The people whose gender and age are known, and sentences on all others."""
    text = b"".join(piece.source.data for piece in pieces(home, PROFILES))
    table = _table(Source(f"{home}/{PROFILES}", text), PERSON)
    sound_ids(table, "user")
    gender, years = declared(table, "gender", GENDERS), amounts(table, "age")
    told = (gender.codes != UNKNOWN) & ~np.isnan(years)
    believed = told & (years >= 0) & (years <= OLDEST)
    groups = Attribute(np.searchsorted(cuts, years, side="right").astype(np.int64), _names(cuts))
    attributes = {"gender": gender, "age": groups}
    everybody = people_of(table, "user", attributes, values={"age in years": years})
    if not believed.any():
        raise BadInput(table.source.where, "nobody has a gender and an age", "give the file as published")
    gone = {"without a gender or an age": ~told, f"of an age outside 0 to {OLDEST}": told & ~believed}
    return _some(everybody, believed), left_out("user", {why: int(some.sum()) for why, some in gone.items()})


def _some(people: People, rows: NDArray[np.bool_]) -> People:
    """The people of some rows; every row of the table is another person's."""
    if len(people.ids) != len(rows):
        raise BadInput(people.table.source.where, "a user has two rows", "give the file as published")
    return replace(
        people,
        ids=[people.ids[place] for place in rows.nonzero()[0]],
        attributes={name: Attribute(a.codes[rows], a.classes) for name, a in people.attributes.items()},
        values={name: column[rows] for name, column in people.values.items()},
    )


def _names(cuts: Sequence[int]) -> tuple[str, ...]:
    """Names of the groups that begin at each cut."""
    middle = (f"{start} to {end - 1}" for start, end in pairwise(cuts))
    return (f"under {cuts[0]}", *middle, f"{cuts[-1]} and over")


def _table(source: Source, columns: tuple[str, ...]) -> Table:
    source, layout = understand(clean(source), separator="\t", header=False, quoted=False)
    if len(layout.names) != len(columns):
        what = f"{len(layout.names)} fields where the published file has {len(columns)}"
        raise BadInput(source.where, what, "give the file as published", line=1)
    return read_table(source, replace(layout, names=columns), dict.fromkeys(columns, "token"))


@dataclass
class _Heard:
    """All plays, gathered from one table after another: numbers for the rows, each word once.

    Attributes:
        people: Number of each user who counts.
        artists: Number of each artist, by MusicBrainz id or name.
        titles: A name of each artist, the first that is seen.
        rows: ``(users, artists)`` of the rows that count, table by table.
        gone: How many rows did not count, by why.
    """

    people: dict[str, int]
    artists: dict[str, int] = field(default_factory=dict)
    titles: dict[str, str] = field(default_factory=dict)
    rows: list[tuple[NDArray[np.int32], NDArray[np.int32]]] = field(default_factory=list)
    gone: dict[str, int] = field(default_factory=dict)

    def add(self, table: Table) -> None:
        """Take the rows of users who count; what the others played is not even read."""
        codes, names = table.tokens["user"]
        user = np.array([self.people.get(name, -1) for name in names], dtype=np.int32)[codes]
        stay = self._without(
            user >= 0, np.ones(len(user), np.bool_), "of users left out or without a profile"
        )
        stay = self._without(_played(table, stay), stay, "without plays")
        artist, title = (table.tokens[column] for column in ("mbid", "artist"))
        named = np.array([bool(name.strip()) for name in artist.names])[artist.codes]
        called = np.array([bool(_neat(name)) for name in title.names])[title.codes]
        stay = self._without(named | called, stay, "without an artist")
        item = np.where(
            named, self._numbers(artist, stay & named), self._numbers(title, stay & ~named)
        ).astype(np.int32)
        self._entitle(artist, title, stay & named)
        self.rows.append((user[stay], item[stay]))

    def _without(self, good: NDArray[np.bool_], among: NDArray[np.bool_], why: str) -> NDArray[np.bool_]:
        """Rows that are good among some; the others are counted."""
        self.gone[why] = self.gone.get(why, 0) + int((among & ~good).sum())
        return among & good

    def _numbers(self, words: Tokens, rows: NDArray[np.bool_]) -> NDArray[np.int32]:
        """``[rows]`` the number of each row's artist, for some rows; 0 for the others."""
        number = np.zeros(len(words.names), dtype=np.int32)
        for code in np.unique(words.codes[rows]):
            number[code] = self.artists.setdefault(_neat(words.names[code]), len(self.artists))
        return number[words.codes]

    def _entitle(self, artist: Tokens, title: Tokens, rows: NDArray[np.bool_]) -> None:
        """Remember how artists with an id are called; the others are called by their name anyway."""
        places = rows.nonzero()[0]
        found, first = np.unique(artist.codes[places], return_index=True)
        for code, place in zip(found, places[first], strict=True):
            self.titles.setdefault(_neat(artist.names[code]), _neat(title.names[title.codes[place]]))

    def log(self, where: str) -> Log:
        """All rows in their order."""
        source, layout = understand(Source(where, b"a\tb\n"), separator="\t", header=False, quoted=False)
        user, item = (np.concatenate([pair[side] for pair in self.rows]) for side in (0, 1))
        if not len(user):
            raise BadInput(
                where, "nobody of whom gender and age are known played anything", "give both files"
            )
        self.titles.update({name: name for name in self.artists if name not in self.titles})
        tokens = {"user": Tokens(user, list(self.people)), "item": Tokens(item, list(self.artists))}
        return Log(Table(source, layout, tokens, {}, len(user)), "user", "item")


def _played(table: Table, among: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """``[rows]`` true where there are any plays; other text than a number is refused in rows that count."""
    codes, words = table.tokens["plays"]
    whole = np.array([word.isascii() and word.isdecimal() for word in words])
    table.refuse(among & ~whole[codes], "plays", 'plays is "{value}"', "it must be a whole number")
    return np.array([word.strip("0") != "" for word in words])[codes]


def _neat(name: str) -> str:
    """A name without control characters and blanks around it."""
    return CONTROL.sub(" ", name).strip()
