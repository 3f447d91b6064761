"""MIND as published: each user's longest history, in order."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tests.datasets.test_movielens import REAL
from tests.datasets.test_taobao import events
from veilrec.datasets.mind import mind
from veilrec.errors import BadInput

WHEN = "11/12/2019 2:14:46 PM"
VISITS = [
    f"1\tU7\t{WHEN}\tN3 N8\tN9-1 N1-0",
    f"2\tU7\t{WHEN}\tN3 N8 N3 N5\tN9-0",  # the longest; the second click on N3 is none
    f"3\tU2\t{WHEN}\t\tN9-0",
    f"4\tU5\t{WHEN}\tN8 N5 N1 N2\tN9-0",
]
NEWS = ["N3\tsports\tgolf\tA title\tAn abstract\taddress\t[]\t[]", "N8\tnews\tlocal\tTwo\t\ta\t[]\t[]"]
needs_mind = pytest.mark.skipif(
    not (REAL / "mind-small-sample" / "behaviors.tsv.gz").is_file(),
    reason="no mind-small-sample in shared/data",
)


def published(folder: Path, *, packed: bool = False, news: bool = True) -> Path:
    for name, rows in {"behaviors.tsv": VISITS, "news.tsv": NEWS}.items():
        text = ("\n".join(rows) + "\n").encode()
        if name == "behaviors.tsv" or news:
            (folder / (f"{name}.gz" if packed else name)).write_bytes(gzip.compress(text) if packed else text)
    return folder


@pytest.mark.parametrize("packed", [False, True])
def test_the_longest_history_in_its_order(tmp_path: Path, packed: bool) -> None:
    log = mind(published(tmp_path, packed=packed), least_of_user=3)
    assert events(log) == [
        *(("U5", item) for item in ("N8", "N5", "N1", "N2")),
        *(("U7", item) for item in ("N3", "N8", "N5")),
    ]
    assert log.texts is not None
    assert dict(zip(log.item_ids, log.texts, strict=True))["N3"] == "A title"
    assert log.time is None
    assert "1 user with too few clicks: left out" in log.report
    assert [log.item_ids[item] for item in log.leave_one_out().test] == ["N2", "N5"]


def test_only_the_latest_clicks_stay(tmp_path: Path) -> None:
    log = mind(published(tmp_path, news=False), longest=2, least_of_user=3)
    assert events(log) == [("U5", "N1"), ("U5", "N2"), ("U7", "N8"), ("U7", "N5")]
    assert log.texts is None


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"there is no behaviors\.tsv here"):
        mind(tmp_path)
    with pytest.raises(BadInput, match="nobody clicked on 9 articles"):
        mind(published(tmp_path), least_of_user=9)
    (tmp_path / "behaviors.tsv").write_text("1\tU7\n")
    with pytest.raises(BadInput, match="2 fields where the published file has 5"):
        mind(tmp_path)


@needs_mind
@pytest.mark.slow
def test_the_cut_of_the_paper_and_the_whole() -> None:
    log = mind(REAL / "mind-small-sample")
    assert (log.n_users, log.n_items, len(log)) == (3_984, 10_420, 62_630)
    whole = mind(REAL / "mind-small-sample", longest=10_000)
    assert (whole.n_users, whole.n_items, len(whole)) == (3_984, 15_943, 135_331)
