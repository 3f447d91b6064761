"""LastFM-360K: which artists 359,347 users of Last.fm played most, and how often; gender and age.

Celma, "Music Recommendation and Discovery in the Long Tail", Springer 2010, as published: the files
``usersha1-artmbid-artname-plays.tsv`` and ``usersha1-profile.tsv``, or the ``tar.gz`` that has both.
FedAU² keeps users whose gender and age are known (0 to 100 years), cuts until users have 51 and artists 23,
and balances by gender (``data.balance``): 6,116 users, 3,834 artists and 339,032 events. It does not say what
it takes for an artist, so that these numbers cannot be promised.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from veilrec.base.limits.bounds import Age, Least, bounded
from veilrec.datasets.common.lastfm import listened
from veilrec.datasets.common.published import beginning, without_header
from veilrec.datasets.reading.archives import Source
from veilrec.datasets.reading.assemble import Log, Titles, sound_ids
from veilrec.datasets.reading.cores import left_out
from veilrec.datasets.reading.layout import Layout
from veilrec.datasets.reading.people import UNKNOWN, Attribute, DescribedUsers, amounts, declared, people_of
from veilrec.datasets.reading.streams import streamed, whole
from veilrec.datasets.reading.table import TextTable, Tokens
from veilrec.errors import BadInput
from veilrec.interactions import Interactions

__all__ = ["lastfm_360k"]

PLAYS, PROFILES = "usersha1-artmbid-artname-plays.tsv", "usersha1-profile.tsv"
FOLDER, ARCHIVE = "lastfm-dataset-360K", "lastfm-dataset-360K.tar.gz"
PERSON = ("user", "gender", "age", "country", "signup")
GENDERS = {"f": "female", "m": "male"}
OLDEST = 100  # years that are believed, from 0 on
STRANGER, SILENT = "of users left out or without a profile", "without plays"
NAMELESS = "without an artist"
CONTROL = re.compile(r"[\x00-\x20]+")


@bounded("data")
def lastfm_360k(
    path: Path, *, ages: Sequence[Age] = (21, 26), least_of_user: Least = 51, least_of_item: Least = 23
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
    log, titles, gone = _heard(home, people)
    least = (least_of_user, least_of_item)
    return listened("lastfm-360k", log, people, titles, least, [*notes, *left_out("row", gone)])


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


def _people(home: Path, cuts: tuple[int, ...]) -> tuple[DescribedUsers, list[str]]:
    """The people whose gender and age are known, and sentences on all others."""
    table = without_header(whole(home, PROFILES), "\t", PERSON, dict.fromkeys(PERSON[:3], "token"))
    if len(sound_ids(table, "user").names) < table.length:
        raise BadInput(table.source.where, "a user has two rows", "give the file as published")
    gender, years = declared(table, "gender", GENDERS), amounts(table, "age")
    told = (gender.codes != UNKNOWN) & ~np.isnan(years)
    believed = told & (years >= 0) & (years <= OLDEST)
    groups = Attribute(np.searchsorted(cuts, years, side="right").astype(np.int64), beginning(cuts))
    attributes = {"gender": gender, "age": groups}
    everybody = people_of(table, "user", attributes, values={"age in years": years})
    if not believed.any():
        raise BadInput(table.source.where, "nobody has a gender and an age", "give the file as published")
    gone = {"without a gender or an age": ~told, f"of an age outside 0 to {OLDEST}": told & ~believed}
    return everybody.some(believed), left_out("user", {why: int(some.sum()) for why, some in gone.items()})


def _heard(home: Path, people: DescribedUsers) -> tuple[Log, Titles, dict[str, int]]:
    """The rows of users who count, a name of each artist, and how many rows do not count, by why.

    What others played is not even looked at.
    """
    number = {name: place for place, name in enumerate(people.ids)}
    artists: dict[str, int] = {}
    titles: dict[str, str] = {}
    users, items = array("i"), array("i")
    gone = dict.fromkeys((STRANGER, SILENT, NAMELESS), 0)
    for line, (user, mbid, artist, plays) in streamed(home, PLAYS, 4):
        if user not in number:
            gone[STRANGER] += 1
        elif not (plays.isascii() and plays.isdecimal()):
            what = f'plays is "{plays[:60]}"'
            raise BadInput(f"{home}/{PLAYS}", what, "it must be a whole number", line=line)
        elif not plays.strip("0"):
            gone[SILENT] += 1
        elif not (name := _neat(mbid) or _neat(artist)):
            gone[NAMELESS] += 1
        else:
            titles.setdefault(name, _neat(artist))
            users.append(number[user])
            items.append(artists.setdefault(name, len(artists)))
    if not users:
        what = "nobody of whom gender and age are known played anything"
        raise BadInput(f"{home}/{PLAYS}", what, "give both files")
    layout = Layout("\t", "\t", ("user", "item"), header=False, quoted=False)
    tokens = {
        "user": Tokens(np.asarray(users), list(number)),
        "item": Tokens(np.asarray(items), list(artists)),
    }
    table = TextTable(Source(f"{home}/{PLAYS}", b""), layout, tokens, {}, len(users))
    return Log(table, "user", "item"), Titles(PLAYS, titles), gone


def _neat(name: str) -> str:
    """A name without control characters and blanks around it."""
    return CONTROL.sub(" ", name).strip()
