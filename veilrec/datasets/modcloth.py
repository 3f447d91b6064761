"""ModCloth: who reviewed which garment, 2010 to 2019; body shape, as the sizes that people wear tell it.

Wan, Ni, Misra and McAuley, "Addressing Marketing Bias in Product Recommendations", WSDM 2020, as published: a
table with a header, ``df_modcloth.csv``, plain or gzipped. That is the cut that Aegis has: 44,784 users,
1,020 garments, 99,893 ratings, and two body shapes.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from veilrec.base.limits.bounds import Least, Seed, bounded
from veilrec.datasets.common.published import with_header
from veilrec.datasets.reading.archives import Source, read
from veilrec.datasets.reading.assemble import Log, assemble, counted
from veilrec.datasets.reading.cores import among, cut, enough, left_out
from veilrec.datasets.reading.people import UNKNOWN, Attribute, DescribedUsers, declared, people_of
from veilrec.datasets.reading.table import Kind, TextTable
from veilrec.datasets.reading.times import times_of
from veilrec.interactions import Interactions

__all__ = ["modcloth"]

FILES = ("df_modcloth.csv.gz", "df_modcloth.csv")
SHAPES = {"Small": "small", "Large": "large"}
KINDS: dict[str, Kind] = dict.fromkeys(("user_id", "item_id", "timestamp", "user_attr"), "token")
KINDS["rating"] = "number"


@bounded("data")
def modcloth(
    path: Path, *, least_of_user: Least = 1, least_of_item: Least = 1, split_seed: Seed = 0
) -> Interactions:
    r"""Garments that people reviewed, and whether these people wear small or large sizes.

    People of whom no size is known stay, without a body shape.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "df_modcloth.csv"
    ...     head = "item_id,user_id,rating,timestamp,size,fit,user_attr,model_attr,category,brand,year,split"
    ...     row = "7443,Alex,4,2010-01-21 08:00:00+00:00,,,Small,Small,Dresses,,2012,0"
    ...     _ = path.write_text(f"{head}\n{row}\n")
    ...     log = modcloth(path)
    >>> log.item_ids, log.rating, log.classes["body shape"][log.attributes["body shape"]]
    (['7443'], tensor([4.]), 'small')

    Args:
        path: The folder ``modcloth``, or the file.
        least_of_user, least_of_item: Users with fewer different items, and items with fewer users, are left
            out, until nothing more falls out.
        split_seed: Decides the order of events at the same time, and so what is held out.
    """
    table = with_header(_file(Path(path)), ",", KINDS, quoted=True)
    times = times_of(table, "timestamp")
    log = Log(table, "user_id", "item_id", table.numbers["rating"].astype(np.float32), times)
    told, said = _people(table)
    named = np.array([bool(name.strip()) for name in table.tokens["user_id"].names])
    known = named[table.tokens["user_id"].codes]
    log = cut(log, known)
    stay = enough(log, least_of_user, least_of_item, "reviewed")
    counts = {
        "without a user": int((~known).sum()),
        "of users or items with too few others": int((~stay).sum()),
    }
    log = cut(log, stay)
    absent = [*left_out("row", counts), *said]
    return assemble("modcloth", log, among(told, log), absent=absent, split_seed=split_seed)


def _people(table: TextTable) -> tuple[DescribedUsers, list[str]]:
    """The shape of each user; one who has both is told of neither."""
    shape, (codes, names) = declared(table, "user_attr", SHAPES), table.tokens["user_id"]
    worn = np.zeros((len(names), len(SHAPES)), dtype=bool)
    worn[codes[shape.codes != UNKNOWN], shape.codes[shape.codes != UNKNOWN]] = True
    both, first = worn.all(1), worn.argmax(1)
    each = np.where(worn.sum(1) == 1, first, UNKNOWN)
    said = (
        [f"{counted(int(both.sum()), 'user')} of both body shapes: taken for unknown"] if both.any() else []
    )
    return people_of(table, "user_id", {"body shape": Attribute(each[codes], shape.classes)}), said


def _file(path: Path) -> Source:
    for file in FILES:
        if (path / file).is_file():
            return read(path / file)
    return read(path)
