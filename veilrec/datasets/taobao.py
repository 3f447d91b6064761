"""Taobao display advertising: who clicked on which advertisement in eight days of May 2017; gender and age.

Published by Alibaba (Tianchi, dataset 56) as ``raw_sample.csv``, ``ad_feature.csv`` and ``user_profile.csv``.
Impressions without a click are no events. The clicks are cut down, until nothing more falls out, to users and
items with enough of them: PARD (Table II) keeps users with 10 and items with 5. It says neither whether its
items are advertisements or categories of them, nor whether it cut once or until nothing changed, so that its
3,198 users, 4,282 items and 48,002 events cannot be promised.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Literal

import numpy as np

from veilrec.base.limits.bounds import Least, Seed, bounded
from veilrec.datasets.common.published import with_header
from veilrec.datasets.reading.archives import Files, files
from veilrec.datasets.reading.assemble import Log, assemble, sound_ids
from veilrec.datasets.reading.cores import among, cut, enough, left_out
from veilrec.datasets.reading.people import DescribedUsers, declared, people_of
from veilrec.datasets.reading.table import Kind, Tokens
from veilrec.datasets.reading.times import times_of
from veilrec.errors import BadInput
from veilrec.interactions import Interactions

__all__ = ["taobao"]

LOG, ADS, USERS = "raw_sample.csv", "ad_feature.csv", "user_profile.csv"
GENDERS = {"2": "female", "1": "male"}
AGES = {str(level): f"level {level}" for level in range(7)}  # the years of a level were not published
PERSON: dict[str, Kind] = dict.fromkeys(("userid", "final_gender_code", "age_level"), "token")


@bounded("data")
def taobao(
    path: Path,
    *,
    items: Literal["ad", "category"] = "ad",
    least_of_user: Least = 10,
    least_of_item: Least = 5,
    split_seed: Seed = 0,
) -> Interactions:
    r"""Clicks of the Taobao display advertising data as published.

    Two impressions, of which one was clicked on:

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "raw_sample.csv"
    ...     _ = path.write_text("user,time_stamp,adgroup_id,clk\n7,1494032110,31,1\n7,1494032115,32,0\n")
    ...     log = taobao(Path(folder), least_of_user=1, least_of_item=1)
    >>> log.user_ids, log.item_ids, log.time
    (['7'], ['31'], tensor([1494032110]))

    Args:
        path: The folder ``taobao`` with the three files, its zip, or a folder that holds one of them.
        items: Whether an item is an advertisement, or the category of what is advertised.
        least_of_user, least_of_item: Users with fewer different items, and items with fewer users, are left
            out; 0 leaves out nobody.
        split_seed: Decides the order of clicks at the same time, and so what is held out.
    """
    found = files(Path(path), LOG, "taobao")
    log = _clicks(found)
    if items == "category":
        log = _by_category(log, found)
    stay = enough(log, least_of_user, least_of_item, "clicked on")
    absent = left_out("click", {"of users or items with too few others": int((~stay).sum())})
    log = cut(log, stay)
    people = None
    if USERS in {PurePosixPath(name).name for name in found.names}:
        people = among(_people(found), log)
    else:
        absent.append(f"there is no {USERS}: attributes are switched off")
    return assemble("taobao", log, people, absent=absent, split_seed=split_seed)


def _clicks(found: Files) -> Log:
    """The impressions that were clicked on; what is wrong with a row is said while rows have their lines."""
    kinds: dict[str, Kind] = {"user": "token", "adgroup_id": "token", "time_stamp": "number", "clk": "number"}
    table = with_header(found.read(LOG), ",", kinds)
    for column in ("user", "adgroup_id"):
        sound_ids(table, column)
    clicked = table.numbers["clk"]
    told = (clicked == 0) | (clicked == 1)
    table.refuse(~told, "clk", 'clk is "{value}"', "it must be 0 or 1")
    if not (clicked == 1).any():
        raise BadInput(table.source.where, "nothing was clicked on", "give the file as published")
    log = Log(table, "user", "adgroup_id", time=times_of(table, "time_stamp"))
    return cut(log, np.asarray(clicked == 1))


def _by_category(log: Log, found: Files) -> Log:
    """Put categories in the place of the advertisements that were clicked."""
    ads = with_header(found.read(ADS), ",", {"adgroup_id": "token", "cate_id": "token"})
    names, category = sound_ids(ads, "adgroup_id"), sound_ids(ads, "cate_id")
    of = dict(zip([names.names[code] for code in names.codes], category.codes.tolist(), strict=True))
    clicked = log.table.tokens[log.item]
    if absent := [name for name in clicked.names if name not in of]:
        what = f"advertisement {absent[0]} has no row in {ADS}"
        raise BadInput(ads.source.where, what, "give the files as published")
    place = np.array([of[name] for name in clicked.names], dtype=np.int32)
    tokens = {log.user: log.table.tokens[log.user], "cate_id": Tokens(place[clicked.codes], category.names)}
    return cut(
        replace(log, table=replace(log.table, tokens=tokens), item="cate_id"),
        np.ones(log.table.length, np.bool_),
    )


def _people(found: Files) -> DescribedUsers:
    table = with_header(found.read(USERS), ",", PERSON)
    sound_ids(table, "userid")
    told = {
        "gender": declared(table, "final_gender_code", GENDERS),
        "age": declared(table, "age_level", AGES),
    }
    return people_of(table, "userid", told)
