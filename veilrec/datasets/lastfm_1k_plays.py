"""Last.fm-1K as published: what 992 users of Last.fm played, and when; gender, age and continent.

Celma, "Music Recommendation and Discovery in the Long Tail", Springer 2010: the files
``userid-timestamp-artid-artname-traid-traname.tsv`` and ``userid-profile.tsv``, or the ``tar.gz`` that has
both. Aegis has its artists as items, 176,948 of them, and makes continents of countries.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import numpy as np

from veilrec.base.limits.bounds import Age, Least, bounded
from veilrec.datasets.common.continents import CONTINENTS, continent_of
from veilrec.datasets.common.published import beginning, with_header
from veilrec.datasets.reading.archives import Source
from veilrec.datasets.reading.assemble import Log, Titles, assemble, counted
from veilrec.datasets.reading.cores import among, cut, enough, left_out
from veilrec.datasets.reading.layout import Layout
from veilrec.datasets.reading.people import (
    MISSING,
    UNKNOWN,
    Attribute,
    DescribedUsers,
    amounts,
    declared,
    people_of,
)
from veilrec.datasets.reading.streams import streamed, whole
from veilrec.datasets.reading.table import Kind, TextTable, Tokens
from veilrec.errors import BadInput
from veilrec.interactions import Interactions

__all__ = ["lastfm_1k_plays"]

PLAYS, PROFILES = "userid-timestamp-artid-artname-traid-traname.tsv", "userid-profile.tsv"
FOLDER, ARCHIVE = "lastfm-dataset-1K", "lastfm-dataset-1K.tar.gz"
PERSON: dict[str, Kind] = dict.fromkeys(("#id", "gender", "age", "country"), "token")
GENDERS = {"f": "female", "m": "male"}
YOUNGEST, OLDEST = 5, 100  # years that are believed
AGES = (18, 25, 35, 45, 50, 56)  # the brackets of MovieLens-1M, as Aegis has them


@bounded("data")
def lastfm_1k_plays(
    path: Path, *, ages: Sequence[Age] = AGES, least_of_user: Least = 1, least_of_item: Least = 1
) -> Interactions:
    r"""Artists that users of Last.fm played, each when it was played first.

    An artist is known by its MusicBrainz id, or by its name where that is missing. People of whom an
    attribute is not known stay, without it.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     row = "user_1\t2009-05-04T23:08:57Z\tmb1\tNico\t\tThese Days\n"
    ...     _ = (Path(folder) / PLAYS).write_text(row)
    ...     head = "#id\tgender\tage\tcountry\tregistered\n"
    ...     _ = (Path(folder) / PROFILES).write_text(f"{head}user_1\tf\t24\tPeru\tFeb 1, 2007\n")
    ...     log = lastfm_1k_plays(Path(folder))
    >>> log.item_ids, log.time, {name: log.classes[name][k] for name, k in log.attributes.items()}
    (['mb1'], tensor([1241478537]), {'gender': 'female', 'age': '18 to 24', 'location': 'South America'})

    Args:
        path: The folder with the two files, the ``.tar.gz``, or a folder that holds one of them.
        ages: First years of the second and later age groups. An age below 5 or above 100 is not believed.
        least_of_user, least_of_item: Users with fewer different artists, and artists with fewer users, are
            left out, until nothing more falls out.
    """
    if not ages or list(ages) != sorted(set(ages)):
        raise BadInput("data.ages", f"{list(ages)} do not rise", "give numbers in ascending order")
    home = _home(Path(path))
    people, said = _people(home, tuple(ages))
    log, titles, nameless = _heard(home)
    stay = enough(log, least_of_user, least_of_item, "played")
    gone = {"of users or items with too few others": int((~stay).sum())}
    log = cut(log, stay)
    absent = [*said, *left_out("row", {"without an artist": nameless}), *left_out("artist of a user", gone)]
    return assemble("lastfm-1k-plays", log, among(people, log), titles, absent=absent)


def _home(path: Path) -> Path:
    """The folder that has the files, or the archive."""
    for folder in (path, path / FOLDER):
        if (folder / PLAYS).is_file():
            return folder
    for file in (path, path / ARCHIVE):
        if file.is_file():
            return file
    raise BadInput(path, f"there is no {PLAYS} here, nor {ARCHIVE}", "name the folder that holds one of them")


def _people(home: Path, cuts: tuple[int, ...]) -> tuple[DescribedUsers, list[str]]:
    """What is known about each user, and sentences on what was not believed."""
    table = with_header(whole(home, PROFILES), "\t", PERSON)
    years = amounts(table, "age")
    believed = (years >= YOUNGEST) & (years <= OLDEST)  # False where it is unknown
    group = np.where(believed, np.searchsorted(cuts, years, side="right"), UNKNOWN).astype(np.int64)
    location, nowhere = _continents(table)
    attributes = {
        "gender": declared(table, "gender", GENDERS),
        "age": Attribute(group, beginning(cuts)),
        "location": location,
    }
    odd = int((~np.isnan(years) & ~believed).sum())
    told = {f"of an age outside {YOUNGEST} to {OLDEST}": odd, "of a country on no continent": nowhere}
    said = [f"{counted(count, 'user')} {why}: taken for unknown" for why, count in told.items() if count]
    return people_of(table, "#id", attributes), said


def _continents(table: TextTable) -> tuple[Attribute, int]:
    """The continent of each row's country, and how many rows have a country on none."""
    codes, names = table.tokens["country"]
    found = [continent_of(name) for name in names]
    place = np.array([UNKNOWN if one is None else one for one in found], dtype=np.int64)
    nowhere = [
        one is None and name.strip().casefold() not in MISSING for one, name in zip(found, names, strict=True)
    ]
    return Attribute(place[codes], CONTINENTS), int(np.array(nowhere)[codes].sum())


def _heard(home: Path) -> tuple[Log, Titles, int]:
    """Each artist that a user played, when first; names of artists; how many rows have none."""
    users, artists, titles = dict[str, int](), dict[str, int](), dict[str, str]()
    first: dict[tuple[int, int], int] = {}
    nameless = 0
    for line, (user, moment, mbid, artist, _, _) in streamed(home, PLAYS, 6):
        if not (name := mbid.strip() or " ".join(artist.split())):
            nameless += 1
            continue
        seconds = _seconds(moment, f"{home}/{PLAYS}", line)
        pair = users.setdefault(user, len(users)), artists.setdefault(name, len(artists))
        titles.setdefault(name, " ".join(artist.split()))
        first[pair] = min(first.get(pair, seconds), seconds)
    if not first:
        raise BadInput(f"{home}/{PLAYS}", "nobody played anything", "give the file as published")
    pairs = np.array(list(first), dtype=np.int32)
    tokens = {"user": Tokens(pairs[:, 0], list(users)), "item": Tokens(pairs[:, 1], list(artists))}
    layout = Layout("\t", "\t", ("user", "item"), header=False, quoted=False)
    table = TextTable(Source(f"{home}/{PLAYS}", b""), layout, tokens, {}, len(first))
    times = np.array(array("q", first.values()), dtype=np.int64)
    return Log(table, "user", "item", time=times), Titles(PLAYS, titles), nameless


def _seconds(moment: str, where: str, line: int) -> int:
    """Seconds since 1970 of ``2009-05-04T23:08:57Z``."""
    try:
        return int(datetime.fromisoformat(moment).timestamp())
    except ValueError as error:
        what = f'the time is "{moment[:40]}"'
        raise BadInput(where, what, "it must be as 2009-05-04T23:08:57Z", line=line) from error
