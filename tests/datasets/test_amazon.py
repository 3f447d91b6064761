"""Amazon reviews in their three forms: small files as published, and what a cut of others decides."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tests.datasets.test_movielens import REAL
from tests.datasets.test_taobao import events
from veilrec.datasets.amazon import amazon
from veilrec.errors import BadInput

DAY = 1385856000
needs_phones = pytest.mark.skipif(
    not (REAL / "amazon-cellphones" / "train.txt.gz").is_file(), reason="no amazon-cellphones in shared/data"
)


def parts(folder: Path, *, packed: bool = False, names: bool = True, **changed: str) -> Path:
    """A cut of two users: user 0 has two events on one day at the end, and the files say which is last."""
    texts = {
        "train": f"0\t5\t{DAY}\n0\t2\t{DAY}\n1\t2\t{DAY}\n",
        "valid": f"0\t9\t{DAY + 9}\n1\t5\t{DAY}\n",
        "test": f"0\t1\t{DAY + 9}\n1\t9\t{DAY}\n",
    } | changed
    for name, text in texts.items():
        file = folder / (f"{name}.txt.gz" if packed else f"{name}.txt")
        file.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    if names:
        (folder / "imap.json").write_text(json.dumps({"B05": 5, "B02": 2, "B09": 9, "B01": 1}))
    return folder


@pytest.mark.parametrize("packed", [False, True])
def test_a_cut_keeps_the_order_of_its_files(tmp_path: Path, packed: bool) -> None:
    log = amazon(parts(tmp_path, packed=packed), least_of_user=1)
    assert events(log) == [
        *(("0", item) for item in ("B05", "B02", "B09", "B01")),
        *(("1", item) for item in ("B02", "B05", "B09")),
    ]
    assert log.time is not None
    assert log.time.tolist() == [DAY, DAY, DAY + 9, DAY + 9, DAY, DAY, DAY]
    split = log.leave_one_out()
    assert [log.item_ids[item] for item in split.test] == ["B01", "B09"]
    assert [log.item_ids[item] for item in split.validation] == ["B09", "B05"]
    assert any("keep the order of the files" in said for said in log.report)


def test_ties_by_hash_do_not_depend_on_the_order_of_rows(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    first = amazon(parts(one), least_of_user=1, ties="hash")
    turned = {"train": f"1\t2\t{DAY}\n0\t2\t{DAY}\n0\t5\t{DAY}\n"}
    other = amazon(parts(two, **turned), least_of_user=1, ties="hash")
    assert events(first) == events(other)
    assert (
        "2 of 2 users have their last two events at the same time: a keyed hash says which is held out"
        in (first.report)
    )


def test_numbers_stand_for_ids_where_nothing_names_them(tmp_path: Path) -> None:
    assert amazon(parts(tmp_path, names=False), least_of_user=1).item_ids == ["1", "2", "5", "9"]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("test", f"0\t1\t{DAY}\n", "test.txt has 0 rows of user 1"),
        ("valid", f"0\t1\t{DAY}\n1\t5\t{DAY}\n1\t9\t{DAY}\n", "valid.txt has 2 rows of user 1"),
        ("train", "0\t5\n", "2 fields where the published file has 3"),
        ("train", "0\t5\tnoon\n", 'time is "noon", not a number'),
    ],
)
def test_a_cut_that_is_none_is_refused(tmp_path: Path, name: str, text: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        amazon(parts(tmp_path, **{name: text}), least_of_user=1)


def test_a_missing_part_and_a_wrong_list_of_ids_are_refused(tmp_path: Path) -> None:
    (parts(tmp_path) / "imap.json").write_text('{"B05": 5}')
    with pytest.raises(BadInput, match="does not give an id for each item"):
        amazon(tmp_path, least_of_user=1)
    (tmp_path / "valid.txt").unlink()
    with pytest.raises(BadInput, match=r"there is no valid\.txt here"):
        amazon(tmp_path, least_of_user=1)


REVIEWS = [
    {"reviewerID": "A2", "asin": "B1", "unixReviewTime": DAY, "reviewerName": "Ann Secret", "overall": 5.0},
    {"reviewerID": "A1", "asin": "B1", "unixReviewTime": DAY + 5, "reviewText": "fine"},
    {"reviewerID": "A1", "asin": "B2", "unixReviewTime": DAY},
]


def test_reviews_and_ratings_give_the_same_log(tmp_path: Path) -> None:
    lines = "".join(json.dumps(review) + "\n" for review in REVIEWS)
    rows = "".join(f"{r['reviewerID']},{r['asin']},5.0,{r['unixReviewTime']}\n" for r in REVIEWS)
    later = "user_id,parent_asin,rating,timestamp\n" + rows
    logs = []
    for name, text in {"reviews.json": lines, "ratings.csv": rows, "later.csv": later}.items():
        folder = tmp_path / name.replace(".", "-")
        folder.mkdir()
        (folder / name).write_text(text)
        logs.append(amazon(folder, least_of_user=1))
    assert all(events(log) == [("A1", "B2"), ("A1", "B1"), ("A2", "B1")] for log in logs)
    assert "Ann Secret" not in repr(logs)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"reviewerID": "A1"}\n', "1: not a review"),
        ('{"reviewerID": "A1", "asin": "B1", "unixReviewTime": 1385856000}\nnothing\n', "2: not a review"),
        ('{"reviewerID": "A\\t1", "asin": "B1", "unixReviewTime": 1385856000}\n', "1: an id holds a tab"),
        ('{"reviewerID": "A1", "asin": "B1", "unixReviewTime": -7}\n', "before 1970"),
    ],
)
def test_what_is_no_review_is_refused_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "reviews.json").write_text(text)
    with pytest.raises(BadInput, match=said):
        amazon(tmp_path / "reviews.json", least_of_user=1)


def test_a_folder_with_two_files_is_a_question(tmp_path: Path) -> None:
    for name in ("a.json", "b.csv"):
        (tmp_path / name).write_text("x")
    with pytest.raises(BadInput, match=r"there are: a\.json, b\.csv"):
        amazon(tmp_path)


def test_users_with_too_few_events_go(tmp_path: Path) -> None:
    log = amazon(parts(tmp_path), least_of_user=4)
    assert log.user_ids == ["0"]
    assert "3 rows of users or items with too few others: left out" in log.report


@needs_phones
@pytest.mark.slow
def test_the_cell_phones_of_the_papers() -> None:
    log = amazon(REAL / "amazon-cellphones")
    assert (log.n_users, log.n_items, len(log)) == (27_879, 10_429, 194_439)
    smaller = amazon(REAL / "amazon-cellphones", least_of_user=6, least_of_item=5)
    assert (smaller.n_users, smaller.n_items, len(smaller)) == (11_597, 6_024, 98_686)
    hashed = amazon(REAL / "amazon-cellphones", ties="hash")
    assert any(said.startswith("12,221 of 27,879 users") for said in hashed.report)
