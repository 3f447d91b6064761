"""Rent the Runway: who rented which garment, 2010 to 2018; body type and age.

Misra, Wan and McAuley, "Decomposing Fit Semantics for Product Size Recommendation in Metric Spaces", RecSys
2018, as a table with a header, ``interactions.csv``, plain or gzipped. Of the public data with attributes of
users it is nearest in size and sparsity to PARD's cut of Taobao, and stands in for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from veilrec.base.limits.bounds import Age, Least, Seed, bounded
from veilrec.datasets.common.published import with_header
from veilrec.datasets.reading.archives import Source, read
from veilrec.datasets.reading.assemble import Log, assemble, sound_ids
from veilrec.datasets.reading.cores import among, cut, enough, left_out
from veilrec.datasets.reading.people import (
    UNKNOWN,
    Attribute,
    DescribedUsers,
    amounts,
    binned,
    declared,
    people_of,
)
from veilrec.datasets.reading.table import Kind, TextTable
from veilrec.datasets.reading.times import times_of
from veilrec.interactions import Interactions

__all__ = ["renttherunway"]

FILES = ("interactions.csv.gz", "interactions.csv")
SHAPES = ("apple", "athletic", "full bust", "hourglass", "pear", "petite", "straight & narrow")
YOUNGEST, OLDEST = 15, 90  # years that are believed: the file has 0 and 117 as well
KINDS: dict[str, Kind] = dict.fromkeys(("user_id", "item_id", "review_date", "body_type", "age"), "token")


@bounded("data")
def renttherunway(
    path: Path,
    *,
    ages: Sequence[Age] = (30, 40),
    least_of_user: Least = 5,
    least_of_item: Least = 5,
    split_seed: Seed = 0,
) -> Interactions:
    r"""Garments rented by people whose body type is known.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "interactions.csv"
    ...     _ = path.write_text("user_id,item_id,review_date,body_type,age\nann,dress,2016-04-20,pear,28\n")
    ...     log = renttherunway(path, least_of_user=1, least_of_item=1)
    >>> log.item_ids, {name: log.classes[name][label] for name, label in log.attributes.items()}
    (['dress'], {'body type': 'pear', 'age': 'under 30'})

    Args:
        path: The folder ``renttherunway``, or the file.
        ages: Borders of the age groups: by default under 30, 30 to 40, over 40. An age below 15 or above 90
            is not believed.
        least_of_user, least_of_item: Users with fewer different items, and items with fewer users, are left
            out, until nothing more falls out.
        split_seed: Decides the order of events on the same day, and so what is held out.
    """
    table = _table(_file(Path(path)))
    log = Log(table, "user_id", "item_id", time=times_of(table, "review_date"))
    people = _people(table, ages)
    known = people.attributes["body type"].codes[table.tokens["user_id"].codes] != UNKNOWN
    log = cut(log, known)
    stay = enough(log, least_of_user, least_of_item, "rented")
    counts = {"of users without a body type": ~known, "of users or items with too few others": ~stay}
    gone = left_out("row", {why: int(missing.sum()) for why, missing in counts.items()})
    log = cut(log, stay)
    return assemble("renttherunway", log, among(people, log), absent=gone, split_seed=split_seed)


def _file(path: Path) -> Source:
    for file in FILES:
        if (path / file).is_file():
            return read(path / file)
    return read(path)


def _table(source: Source) -> TextTable:
    table = with_header(source, ",", KINDS, quoted=True)
    for column in ("user_id", "item_id"):
        sound_ids(table, column)
    return table


def _people(table: TextTable, ages: Sequence[int]) -> DescribedUsers:
    shape = declared(table, "body_type", {name: name for name in SHAPES})
    years = amounts(table, "age")
    believed = (years >= YOUNGEST) & (years <= OLDEST)  # False where it is unknown
    group = binned(table, "age", ages)
    age = Attribute(np.where(believed, group.codes, UNKNOWN), group.classes)
    return people_of(table, "user_id", {"body type": shape, "age": age})
