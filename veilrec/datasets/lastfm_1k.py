"""Last.fm-1K, a cut of it: which artists 268 users played; gender and age.

Celma's Last.fm-1K (2010) as studies of fairness prepare it: users whose gender and age are known and who
played at least 20 artists, as two tables with headers, ``interactions.tsv`` (plain or gzipped; ``user_id``,
``artist_id``, ``split``) and ``users.tsv`` (``user_id``, ``gender``, ``age_group``). It is not the published
archive, and has neither plays nor times nor names of artists. It stands in for LastFM-360K in FedAU².

Which of the two age groups is which was inferred by whoever made the tables: ``le24`` may be ``gt24``.
"""

from __future__ import annotations

from pathlib import Path

from veilrec.base.limits.bounds import Least, bounded
from veilrec.datasets.common.lastfm import listened
from veilrec.datasets.common.published import with_header
from veilrec.datasets.reading.archives import read
from veilrec.datasets.reading.assemble import Log, sound_ids
from veilrec.datasets.reading.people import declared, people_of
from veilrec.datasets.reading.table import Kind
from veilrec.errors import BadInput
from veilrec.interactions import Interactions

__all__ = ["lastfm_1k"]

FILES, USERS = ("interactions.tsv.gz", "interactions.tsv"), "users.tsv"
GENDERS = {"F": "female", "M": "male"}
AGES = {"le24": "24 and under", "gt24": "over 24"}
PERSON: dict[str, Kind] = dict.fromkeys(("user_id", "gender", "age_group"), "token")
STANDS_IN = "a cut of Last.fm-1K that stands in for LastFM-360K"


@bounded("data")
def lastfm_1k(path: Path, *, least_of_user: Least = 20, least_of_item: Least = 10) -> Interactions:
    r"""Artists that 268 users of Last.fm played: a small stand-in for LastFM-360K.

    The files have 51,609 artists in 200,586 rows; the default core leaves all 268 users (155 men, 113 women),
    3,972 artists and 109,302 rows, near the 3,834 artists of FedAU²'s cut of LastFM-360K. With that cut's own
    51 and 23 there would be 254 users, 1,542 artists and 73,637 rows. There are no times: the order of rows
    stands for them, in which a user's artists of the prepared training, validation and test sets follow each
    other, so that an artist of the test set is held out.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "interactions.tsv").write_text("user_id\tartist_id\nann\tNico\nann\tCan\n")
    ...     _ = (Path(folder) / "users.tsv").write_text("user_id\tgender\tage_group\nann\tF\tle24\n")
    ...     log = lastfm_1k(Path(folder), least_of_user=1, least_of_item=1)
    >>> [log.item_ids[item] for item in log.item], log.classes["age"][log.attributes["age"]]
    (['Nico', 'Can'], '24 and under')

    Args:
        path: The folder ``lastfm-1k``, or one that holds it.
        least_of_user, least_of_item: Users with fewer different artists, and artists with fewer users, are
            left out, until nothing more falls out.
    """
    folder = _folder(Path(path))
    plays = next(folder / file for file in FILES if (folder / file).is_file())
    table = with_header(read(plays), "\t", {"user_id": "token", "artist_id": "token"})
    for column in ("user_id", "artist_id"):
        sound_ids(table, column)
    users = with_header(read(folder / USERS), "\t", PERSON)
    sound_ids(users, "user_id")
    told = {"gender": declared(users, "gender", GENDERS), "age": declared(users, "age_group", AGES)}
    people = people_of(users, "user_id", told)
    log = Log(table, "user_id", "artist_id")
    return listened("lastfm-1k", log, people, None, (least_of_user, least_of_item), [STANDS_IN])


def _folder(path: Path) -> Path:
    for folder in (path, path / "lastfm-1k"):
        if any((folder / file).is_file() for file in FILES):
            return folder
    raise BadInput(path, f"there is no {FILES[0]} here", "name the folder that holds it")
