"""Taobao's display advertising as published, and its stand-in: small files in the same form, cut as asked."""

from __future__ import annotations

import gzip
import zipfile
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.datasets.test_movielens import REAL
from veilrec.datasets.reading.cores import core
from veilrec.datasets.renttherunway import renttherunway
from veilrec.datasets.taobao import taobao
from veilrec.errors import BadInput
from veilrec.interactions import Interactions

LOG_HEAD = "user,time_stamp,adgroup_id,pid,nonclk,clk"
ADS_HEAD = "adgroup_id,cate_id,campaign_id,customer,brand,price"
USERS_HEAD = (  # with the blank at its end that the published file has
    "userid,cms_segid,cms_group_id,final_gender_code,age_level,pvalue_level,shopping_level,occupation,"
    "new_user_class_level "
)
START = 1_494_000_000
needs_runway = pytest.mark.skipif(
    not (REAL / "renttherunway" / "interactions.csv.gz").is_file(), reason="no renttherunway in shared/data"
)


def impression(user: int, ad: int, later: int = 0, clicked: int = 1) -> str:
    return f"{user},{START + later},{ad},430548_1007,{1 - clicked},{clicked}"


def published(folder: Path, log: list[str], users: list[str] | None = None) -> Path:
    """The three files in their published form; three users click on two advertisements each."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "raw_sample.csv").write_text("\n".join([LOG_HEAD, *log]) + "\n")
    ads = ["10,7,1,1,NULL,9.9", "20,7,1,1,95471,170.0", "30,8,2,2,NULL,3.0"]
    (folder / "ad_feature.csv").write_text("\n".join([ADS_HEAD, *ads]) + "\n")
    told = ["1,0,5,2,0,,3,0,3", "2,0,5,1,6,1,3,0,", "9,0,1,2,3,,3,0,2"] if users is None else users
    (folder / "user_profile.csv").write_text("\n".join([USERS_HEAD, *told]) + "\n")
    return folder


CLICKS = [impression(user, ad, later=ad - user) for user, ad in product((3, 1, 2), (20, 10))]
REST = [impression(1, 30), impression(2, 30, clicked=0), impression(4, 10)]  # too few, no click, too few


def events(log: Interactions) -> list[tuple[str, str]]:
    pairs = zip(log.user.tolist(), log.item.tolist(), strict=True)
    return [(log.user_ids[user], log.item_ids[item]) for user, item in pairs]


def test_clicks_of_those_who_have_enough_of_them_stay(tmp_path: Path) -> None:
    log = taobao(published(tmp_path / "taobao", [*REST, *CLICKS]), least_of_user=2, least_of_item=3)
    assert (log.user_ids, log.item_ids, log.name) == (["1", "2", "3"], ["10", "20"], "taobao")
    assert events(log) == [(user, ad) for user, ad in product("123", ("10", "20"))]  # in the order of time
    assert log.time is not None
    assert log.time[:2].tolist() == [START + 9, START + 19]
    assert {name: [log.classes[name][c] if c >= 0 else None for c in codes] for name, codes in told(log)} == {
        "gender": ["female", "male", None],
        "age": ["level 0", "level 6", None],
    }
    assert len(log.classes["age"]) == 7
    assert log.report == (
        "2 clicks of users or items with too few others: left out",
        "1 user without a row in user_profile.csv: attributes unknown",
        "3 users with two events: tested, no validation item",
    )


def told(log: Interactions) -> list[tuple[str, list[int]]]:
    return [(name, codes.tolist()) for name, codes in log.attributes.items()]


def test_nobody_is_left_out_where_nothing_is_asked(tmp_path: Path) -> None:
    folder = published(tmp_path, [*REST, *CLICKS, impression(4, 10, later=5)])
    log = taobao(folder, least_of_user=0, least_of_item=0)
    assert (log.user_ids, log.item_ids, len(log)) == (["1", "2", "3", "4"], ["10", "20", "30"], 8)
    assert any("repeat an earlier (user, item) pair" in note for note in log.report)


def test_items_may_be_categories(tmp_path: Path) -> None:
    folder = published(tmp_path, [*REST, *CLICKS])
    log = taobao(folder, items="category", least_of_user=0, least_of_item=0)
    assert events(log) == [("1", "8"), ("1", "7"), ("2", "7"), ("3", "7"), ("4", "7")]
    again = [*CLICKS, impression(1, 99)]
    with pytest.raises(BadInput, match=r"ad_feature\.csv: advertisement 99 has no row"):
        taobao(published(tmp_path, again), items="category")


def test_the_papers_cut_by_default(tmp_path: Path) -> None:
    many = [impression(user, ad) for user, ad in product(range(1, 6), range(100, 110))]
    log = taobao(published(tmp_path, [*many, impression(1, 10), impression(6, 100)]))
    assert (log.n_users, log.n_items, len(log)) == (5, 10, 50)
    with pytest.raises(BadInput, match=r"data\.least_of_user: no 10 items of a user"):
        taobao(published(tmp_path, many[1:]))


def test_folder_zip_and_parent_are_the_same(tmp_path: Path) -> None:
    folder = published(tmp_path / "a" / "taobao", CLICKS)
    with zipfile.ZipFile(tmp_path / "taobao.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(folder.iterdir()):
            archive.write(file, f"taobao/{file.name}")
    paths = (folder, folder.parent, folder / "raw_sample.csv", tmp_path / "taobao.zip", tmp_path)
    logs = [taobao(path, least_of_user=1, least_of_item=1) for path in paths]
    assert all(events(log) == events(logs[0]) and told(log) == told(logs[0]) for log in logs)


def test_without_profiles_attributes_are_off(tmp_path: Path) -> None:
    folder = published(tmp_path, CLICKS)
    (folder / "user_profile.csv").unlink()
    log = taobao(folder, least_of_user=1, least_of_item=1)
    assert not log.attributes
    assert log.report[0] == "there is no user_profile.csv: attributes are switched off"


BROKEN: dict[str, tuple[Callable[[Path], Path], str]] = {
    "no column": (
        lambda folder: headless(folder, "clk", "click"),
        r'raw_sample\.csv:1: no column "clk" among user, time_stamp',
    ),
    "neither 0 nor 1": (
        lambda folder: published(folder, [*CLICKS, impression(1, 30, clicked=2)]),
        r'raw_sample\.csv:8: clk is "2"',
    ),
    "empty id": (
        lambda folder: published(folder, [impression(5, 10, clicked=0), f",{START},10,x,1,0"]),
        r"raw_sample\.csv:3: user is empty",
    ),
    "no clicks": (lambda folder: published(folder, [impression(1, 10, clicked=0)]), "nothing was clicked on"),
    "age level": (
        lambda folder: published(folder, CLICKS, ["1,0,5,2,7,,3,0,3"]),
        r'user_profile\.csv:2: age_level is "7"',
    ),
    "two genders": (
        lambda folder: published(folder, CLICKS, ["1,0,5,2,0,,3,0,3", "1,0,5,1,0,,3,0,3"]),
        r'user_profile\.csv:3: user "1" has two different values of gender',
    ),
}


def headless(folder: Path, old: str, new: str) -> Path:
    path = published(folder, CLICKS) / "raw_sample.csv"
    path.write_text(path.read_text().replace(f",{old}\n", f",{new}\n", 1))
    return folder


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_wrong_is_said_with_its_line(tmp_path: Path, case: str) -> None:
    write, said = BROKEN[case]
    with pytest.raises(BadInput, match=said):
        taobao(write(tmp_path), least_of_user=1, least_of_item=1)


# ---- cores

PAIRS = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=60)


@given(PAIRS, st.integers(0, 4), st.integers(0, 4))
def test_a_core_is_the_largest_log_in_which_all_have_enough(
    pairs: list[tuple[int, int]], of_user: int, of_item: int
) -> None:
    user, item = (np.array([pair[k] for pair in pairs], dtype=np.int32) for k in (0, 1))
    stay = core(user, item, of_user, of_item)
    left = {pair for pair, kept in zip(pairs, stay.tolist(), strict=True) if kept}
    assert left == slowly(set(pairs), of_user, of_item)


def slowly(pairs: set[tuple[int, int]], of_user: int, of_item: int) -> set[tuple[int, int]]:
    """One pair at a time, in whatever order: a core does not hang on it."""
    for user, item in sorted(pairs):
        if sum(u == user for u, _ in pairs) < of_user or sum(i == item for _, i in pairs) < of_item:
            return slowly(pairs - {(user, item)}, of_user, of_item)
    return pairs


def test_one_pass_is_not_enough() -> None:
    user = np.array([0, 0, 1, 1, 2], dtype=np.int32)
    item = np.array([0, 1, 1, 2, 2], dtype=np.int32)
    assert not core(user, item, 2, 2).any()  # user 2 goes, then item 2, then user 1, …


# ---- the stand-in

RUNWAY = "user_id,item_id,rating,review_date,fit,body_type,age"


def rented(folder: Path, rows: list[str]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "interactions.csv.gz").write_bytes(gzip.compress("\n".join([RUNWAY, *rows]).encode()))
    return folder


def test_the_stand_in_has_users_whose_body_type_is_known(tmp_path: Path) -> None:
    rows = [
        "5,70,10.0,2016-04-20,fit,pear,28.0",
        "5,71,8.0,2015-04-20,small,pear,28.0",
        "6,70,10.0,2016-04-21,fit,straight & narrow,116.0",
        "6,71,10.0,2016-04-21,fit,straight & narrow,116.0",
        "7,70,10.0,2016-04-21,fit,,41.0",
        "8,72,,2016-04-21,fit,apple,41.0",
    ]
    log = renttherunway(rented(tmp_path / "renttherunway", rows), least_of_user=2, least_of_item=2)
    assert (log.user_ids, log.item_ids) == (["5", "6"], ["70", "71"])
    assert events(log)[:2] == [("5", "71"), ("5", "70")]  # by date
    assert [log.classes["body type"][c] for c in log.attributes["body type"]] == ["pear", "straight & narrow"]
    assert log.attributes["age"].tolist() == [0, -1]  # 116 is not believed
    assert log.report[:2] == (
        "1 row of users without a body type: left out",
        "1 row of users or items with too few others: left out",
    )
    with pytest.raises(BadInput, match=r"data\.least_of_user"):
        renttherunway(tmp_path / "renttherunway", least_of_user=3)


@pytest.mark.slow
@needs_runway
def test_the_stand_in_has_the_size_of_its_core() -> None:
    log = renttherunway(REAL / "renttherunway")
    assert (log.n_users, log.n_items, len(log)) == (4_552, 3_001, 39_373)
    assert len(log.classes["body type"]) == 7
