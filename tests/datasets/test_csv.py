"""Any text with columns: what is guessed, and odd but legal files."""

from __future__ import annotations

import gzip
import itertools
import os
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from veilrec.datasets.delimited import csv
from veilrec.datasets.recbole import recbole
from veilrec.errors import BadInput, VeilrecError
from veilrec.interactions import Interactions

ROWS = (("bo", "x9", 3, 978300761), ("al", "x10", 5, 978300760), ("al", "x9", 1, 978300759))
HEADER = ("user_id", "item_id", "rating", "timestamp")


def written(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def lines(separator: str = ",", header: tuple[str, ...] = HEADER, end: str = "\n") -> str:
    rows = [header, *ROWS] if header else [*ROWS]
    return "".join(separator.join(map(str, row)) + end for row in rows)


def events(log: Interactions) -> list[tuple[str, str]]:
    return [
        (log.user_ids[u], log.item_ids[i]) for u, i in zip(log.user.tolist(), log.item.tolist(), strict=True)
    ]


EXPECTED = [("al", "x9"), ("al", "x10"), ("bo", "x9")]


@pytest.mark.parametrize(
    "text",
    [
        lines(","),
        lines("\t"),
        lines(";"),
        lines("|"),
        lines("::"),
        lines(" "),
        lines(",", ()),
        lines("\t", ()),
        lines("::", ()),
        lines(end="\r\n"),
        lines(end="\r"),
        lines().rstrip("\n"),
        "\n\n" + lines() + "\n  \n\n",
        lines().replace("\nal", "\n\nal"),
        lines(", "),
        lines().encode("utf-8-sig"),
        lines(header=("reviewerID", "ASIN", "Overall", "unixReviewTime")),
        lines(header=("Movie Id", "user", "score", "ts")).replace("Movie Id,user", "user,Movie Id"),
        lines(header=("userId:token", "itemId:token", "rating:float", "timestamp:float")),
        lines().replace("bo,", '"bo",').replace("x10", '"x10"'),
        gzip.compress(lines().encode()),
    ],
    ids=itertools.count(),
)
def test_odd_but_legal(tmp_path: Path, text: str | bytes) -> None:
    log = csv(written(tmp_path / "log.csv", text))
    assert events(log) == EXPECTED
    assert log.rating is not None
    assert log.rating.tolist() == [1.0, 5.0, 3.0]
    assert log.time is not None
    assert log.time.tolist() == [978300759, 978300760, 978300761]


def test_missing_optional_columns(tmp_path: Path) -> None:
    log = csv(written(tmp_path / "log.tsv", "user\titem\nb\t1\na\t2\n"))
    assert (log.rating, log.time, log.texts, dict(log.attributes)) == (None, None, None, {})
    assert "no times" in log.report[0]


def test_one_user_and_one_item(tmp_path: Path) -> None:
    log = csv(written(tmp_path / "log.csv", "user,item\n1,2\n"))
    assert (log.n_users, log.n_items, len(log)) == (1, 1, 1)
    assert log.leave_one_out().test.tolist() == [-1]


def test_three_columns_without_a_header(tmp_path: Path) -> None:
    rated = csv(written(tmp_path / "a.csv", "1,2,5\n3,4,1\n"))
    timed = csv(written(tmp_path / "b.csv", "1,2,978300760\n3,4,978300761\n"))
    assert (rated.time, timed.rating) == (None, None)


def test_ids_stay_as_written(tmp_path: Path) -> None:
    log = csv(written(tmp_path / "log.csv", 'user,item\n007,"x, y"\n7,"say ""hi"""\n1.0,Ω\nTrue,nan\n'))
    assert log.user_ids == ["007", "1.0", "7", "True"]
    assert set(log.item_ids) == {"x, y", 'say "hi"', "Ω", "nan"}


def test_quoted_line_ends_count_as_lines(tmp_path: Path) -> None:
    path = written(tmp_path / "log.csv", 'user,item,note,rating\n1,2,"a\nb",3\n1,3,c,bad\n')
    with pytest.raises(VeilrecError, match=r'log\.csv:4: rating is "bad"'):
        csv(path)


def test_numbers_sort_as_numbers(tmp_path: Path) -> None:
    assert csv(written(tmp_path / "log.csv", "user,item\n10,2\n9,10\n100,9\n")).user_ids == ["9", "10", "100"]


@pytest.mark.parametrize(
    ("times", "form", "seconds"),
    [
        (("2020-01-02", "2020-01-01"), None, (1577923200, 1577836800)),
        (("2020-01-01T01:00:00+01:00", "2020-01-01 00:00:01"), None, (1577836800, 1577836801)),
        (("02.01.2020", "01.01.2020"), "%d.%m.%Y", (1577923200, 1577836800)),
        (("1577836800000", "1577836800001"), None, (1577836800000, 1577836800001)),
        (("1577836800123456789", "1577836800123456788"), None, (1577836800123456789, 1577836800123456788)),
        (("881250949.0", "881250950"), None, (881250949, 881250950)),
        (("0", "1"), None, (0, 1)),
    ],
)
def test_times(tmp_path: Path, times: tuple[str, str], form: str | None, seconds: tuple[int, int]) -> None:
    path = written(tmp_path / "log.csv", f"user,item,time\na,1,{times[0]}\nb,1,{times[1]}\n")
    log = csv(path, time_format=form)
    assert log.time is not None
    assert tuple(log.time.tolist()) == seconds


def test_columns_as_told(tmp_path: Path) -> None:
    path = written(tmp_path / "log.csv", "a,b,user,c\n1,2,3,4\n5,6,7,8\n")
    log = csv(path, user="1", item="B", rating="c", time="-")
    assert (log.user_ids, log.item_ids) == (["1", "5"], ["2", "6"])
    assert log.rating is not None


def test_attributes_and_titles(tmp_path: Path) -> None:
    path = written(tmp_path / "log.csv", lines())
    people = written(tmp_path / "users.csv", "id;sex;age;zip\nbo;m;40;1\nal;;20;2\nzoe;f;70;3\n")
    titles = written(
        tmp_path / "items.tsv", "item_id\tyear\tname\nx9\t1999\tNine\nx10\t2000\tTen\nx11\t0\tMore\n"
    )
    log = csv(path, attributes=people, titles=titles, attribute=["sex", "age"], borders={"age": (35, 45)})
    assert log.attributes["sex"].tolist() == [-1, 1]
    assert (log.classes["sex"], log.classes["age"]) == (("f", "m"), ("under 35", "35 to 45", "over 45"))
    assert log.attributes["age"].tolist() == [0, 1]
    assert log.texts == ["Ten", "Nine"]


def test_numbers_may_be_taken_as_they_are(tmp_path: Path) -> None:
    path = written(tmp_path / "log.csv", lines())
    people = written(tmp_path / "users.csv", "id;sex;age\nbo;m;40.5\nal;f;NA\nzoe;f;70\n")
    log = csv(path, attributes=people, continuous=["Age"])
    assert (list(log.attributes), list(log.values)) == (["sex"], ["age"])
    assert log.values["age"].dtype == torch.float64
    assert log.values["age"].nan_to_num(-1).tolist() == [-1.0, 40.5]
    assert "1 user of users.csv without a value of age: unknown" in log.report
    inside = written(tmp_path / "wide.csv", "user,item,height\n1,a,1.8\n1,b,1.8\n2,a,\n3,a,1e0\n")
    assert csv(inside, continuous=["height"]).values["height"].nan_to_num(-1).tolist() == [1.8, -1.0, 1.0]


@pytest.mark.parametrize(
    ("rows", "options", "said"),
    [
        ("bo,40\nal,old\n", {}, r'users\.csv:3: age is "old"; it must be a number'),
        ("bo,40\nal,inf\n", {}, r'age is "inf"'),
        ("bo,40\nal,1_0\n", {}, r'age is "1_0"'),
        ("bo,40\nal,20\nbo,41\n", {}, "two different values of age"),
        ("bo,40\nal,20\n", {"borders": {"age": (30,)}}, "have classes as well; choose one"),
        ("bo,40\nal,20\n", {"attribute": ["age"]}, "have classes as well; choose one"),
    ],
)
def test_numbers_that_will_not_do(tmp_path: Path, rows: str, options: dict[str, Any], said: str) -> None:
    path = written(tmp_path / "log.csv", lines())
    people = written(tmp_path / "users.csv", f"user,age\n{rows}")
    with pytest.raises(BadInput, match=said):
        csv(path, attributes=people, continuous=["age"], **options)


def test_columns_that_are_no_attributes_are_said(tmp_path: Path) -> None:
    people = "user,sex,name,same\n" + "".join(f"{n},{'fm'[n % 2]},name {n},x\n" for n in range(40))
    log = csv(
        written(tmp_path / "log.csv", "user,item\n" + "".join(f"{n},1\n" for n in range(40))),
        attributes=written(tmp_path / "users.csv", people),
    )
    assert list(log.attributes) == ["sex"]
    assert 'column "name" has 40 different values: not taken as an attribute' in log.report
    assert 'column "same" has 1 different values: not taken as an attribute' in log.report


def test_attributes_inside_the_log(tmp_path: Path) -> None:
    path = written(tmp_path / "log.csv", "user,item,shape\n1,a,pear\n1,b,pear\n2,a,apple\n3,a,\n")
    log = csv(path, attribute=["shape"])
    assert log.classes["shape"] == ("apple", "pear")
    assert log.attributes["shape"].tolist() == [1, 0, -1]


def test_other_encodings_when_told(tmp_path: Path) -> None:
    for encoding in ("latin-1", "utf-16"):
        path = written(tmp_path / "log.csv", "user,item\né,1\n".encode(encoding))
        assert csv(path, encoding=encoding).user_ids == ["é"]


def test_a_log_alone_in_a_zip_and_one_of_many(tmp_path: Path) -> None:
    path = tmp_path / "log.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data/ratings.csv", lines())
        archive.writestr("data/README", "words")
    assert events(csv(path)) == EXPECTED
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("data/movies.csv", "item,title\n")
    assert events(csv(path / "data" / "ratings.csv")) == EXPECTED


def test_atomic_files(tmp_path: Path) -> None:
    types = ("user_id:token", "item_id:token", "rating:float", "timestamp:float")
    written(tmp_path / "toy.inter", lines("\t", types))
    assert events(recbole(tmp_path)) == EXPECTED  # without .user and .item
    written(tmp_path / "toy.user", "user_id:token\tage:token\tgender:token\nbo\t24\tM\nal\t53\tF\n")
    written(tmp_path / "toy.item", 'item_id:token\tmovie_title:token_seq\nx9\tThe "Nine"\nx10\tTen\n')
    log = recbole(tmp_path / "toy.inter", borders={"age": (30,)})
    assert log.texts == ["Ten", 'The "Nine"']
    assert log.classes == {"age": ("under 30", "30 and over"), "gender": ("F", "M")}
    archive = tmp_path / "toy.zip"
    with zipfile.ZipFile(archive, "w") as made:
        for kind in ("inter", "user", "item"):
            made.write(tmp_path / f"toy.{kind}", f"toy/toy.{kind}")
    assert recbole(archive).texts == log.texts
    written(
        tmp_path / "toy.user", "user_id:token\tage:float\tsize:float\tsex:token\nbo\t24\t1\tM\nal\t53\t2\tF\n"
    )
    floats = recbole(tmp_path)
    assert {name: value.tolist() for name, value in floats.values.items()} == {
        "age": [53, 24],
        "size": [2, 1],
    }
    assert list(floats.attributes) == ["sex"]
    assert list(recbole(tmp_path, borders={"age": (30,)}).values) == ["size"]
    assert list(recbole(tmp_path, continuous=["age"]).values) == ["age"]
    assert not recbole(tmp_path, attribute=["sex"]).values
    written(tmp_path / "toy.item", "item_id:token\tclass:token_seq\nx9\ta\n")
    assert recbole(tmp_path).texts is None


rows = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from("wxyz"), st.integers(1, 5), st.integers(0, 2)),
    min_size=1,
    max_size=25,
)


@given(rows=rows, data=st.data())
def test_any_order_of_rows_gives_the_same_log(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str, int, int]], data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("rows")
    logs = []
    for order in (rows, data.draw(st.permutations(rows))):
        text = "user,item,rating,time\n" + "".join(",".join(map(str, row)) + "\n" for row in order)
        logs.append(csv(written(folder / "log.csv", text)))
    one, two = logs
    assert all(torch.equal(getattr(one, n), getattr(two, n)) for n in ("user", "item", "rating", "time"))
    assert (one.user_ids, one.item_ids, one.report) == (two.user_ids, two.item_ids, two.report)


@given(text=st.binary(max_size=60), place=st.integers(0, 90))
def test_whatever_is_in_a_file_it_loads_or_is_refused(
    tmp_path_factory: pytest.TempPathFactory, text: bytes, place: int
) -> None:
    whole = lines().encode()
    path = written(tmp_path_factory.mktemp("any") / "log.csv", whole[:place] + text + whole[place:])
    fault = ""
    try:
        assert len(csv(path, attributes=path, titles=path)) > 0
    except VeilrecError as error:
        fault = str(error)
    assert not fault or fault.startswith(f"{path}:")


REAL = Path(os.environ.get("VEILREC_TEST_DATA") or Path(__file__).parents[2].parent / "shared" / "data")
RUNWAY, LASTFM = REAL / "renttherunway" / "interactions.csv.gz", REAL / "lastfm-1k" / "interactions.tsv.gz"


@pytest.mark.slow
@pytest.mark.skipif(not RUNWAY.is_file(), reason="no renttherunway in shared/data")
def test_rent_the_runway() -> None:
    with pytest.raises(BadInput, match=r"interactions\.csv\.gz:10614: rating is empty"):
        csv(RUNWAY)
    log = csv(RUNWAY, rating="-", attribute=["body_type"])
    assert (log.n_users, log.n_items, len(log)) == (105_571, 5_850, 192_278)
    known = log.attributes["body_type"]
    assert known[known >= 0].bincount().tolist() == [2_810, 23_862, 8_039, 29_773, 11_913, 12_229, 7_498]
    assert log.report[1] == "266 rows repeat an earlier (user, item) pair: dropped, the earliest stays"


@pytest.mark.slow
@pytest.mark.skipif(not LASTFM.is_file(), reason="no lastfm-1k in shared/data")
def test_lastfm() -> None:
    log = csv(LASTFM, attributes=LASTFM.with_name("users.tsv"))
    assert (log.n_users, log.n_items, len(log)) == (268, 51_609, 200_586)
    assert log.attributes["gender"].bincount().tolist() == [113, 155]
    assert log.classes == {"gender": ("F", "M"), "age_group": ("gt24", "le24")}


def test_a_quote_may_be_escaped_as_mysql_does(tmp_path: Path) -> None:
    """As Book-Crossing is published; without the word for it, the error has the way out (B4)."""
    text = '"user";"isbn"\n"al";"\\"0210000010"\n"bo";"9\\\\;9"\n"bo";"x9"\n'
    path = written(tmp_path / "log.csv", text)
    assert events(csv(path, escape="\\")) == [("al", '"0210000010'), ("bo", "9\\;9"), ("bo", "x9")]
    with pytest.raises(BadInput, match=r"log\.csv:2: cannot be cut .*pass --escape '\\'"):
        csv(path)
    with pytest.raises(BadInput, match="--escape: 'no' cannot escape a quote; give one letter"):
        csv(path, escape="no")
