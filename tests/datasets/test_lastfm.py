"""LastFM-360K as published, and its stand-in: small files in the same form."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.commands import call
from tests.datasets.test_movielens import REAL
from tests.datasets.test_taobao import events, told
from veilrec.datasets.common import places
from veilrec.datasets.lastfm_1k import lastfm_1k
from veilrec.datasets.lastfm_360k import lastfm_360k
from veilrec.datasets.reading import streams
from veilrec.datasets.reading.streams import streamed
from veilrec.errors import BadInput
from veilrec.interactions import Interactions
from veilrec.recipe import Recipe

PLAYS, PROFILES = "usersha1-artmbid-artname-plays.tsv", "usersha1-profile.tsv"
needs_1k = pytest.mark.skipif(
    not (REAL / "lastfm-1k" / "interactions.tsv.gz").is_file(), reason="no lastfm-1k in shared/data"
)
ROWS = [  # users aa, bb, cc and dd count; the others lack a gender, an age, or a profile
    "bb\tm-1\tdie Ärzte\t2137",
    "bb\t\tthe nameless \t717",
    'bb\tm-2\tquote"d\t9',
    "aa\tm-2\tanother name\t12",
    "aa\tm-1\tdie Ärzte\t11",
    "aa\tm-3\trare\t10",
    "cc\t\tthe nameless\t5",
    "cc\tm-1\tdie Ärzte\t4",
    "cc\tm-1\tdie Ärzte\t3",
    "dd\tm-2\t\t1",
    "dd\tm-1\tx\t0",
    "dd\t\t\t8",
    "ee\tm-1\tdie Ärzte\t7",
    "ff\tm-1\tdie Ärzte\t7",
    "gg\tm-1\tdie Ärzte\t7",
    "sep 20, 2008\tm-1\tf\tno number at all",
]
PEOPLE = [
    "aa\tm\t20\tMexico\tApr 28, 2008",
    "bb\tf\t21\tCôte d'Ivoire\tJan 1, 2005",
    "cc\tm\t26\t\t",
    "dd\tf\t25\tGermany\tFeb 1, 2007",
    "ee\t\t30\tGermany\tFeb 1, 2007",
    "ff\tf\t\tGermany\tFeb 1, 2007",
    "gg\tm\t113\tGermany\tFeb 1, 2007",
]


@pytest.fixture(autouse=True)
def no_other_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VEILREC_DATA_DIR", raising=False)
    monkeypatch.setenv("VEILREC_HOME", str(tmp_path / "home"))


def published(folder: Path, rows: list[str] | None = None, users: list[str] | None = None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / PLAYS).write_text("\n".join(ROWS if rows is None else rows) + "\n", encoding="utf-8")
    (folder / PROFILES).write_text("\n".join(PEOPLE if users is None else users) + "\n", encoding="utf-8")
    return folder


def packed(folder: Path, target: Path, names: tuple[str, ...] = (PLAYS, PROFILES)) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(target, "w:gz") as archive:
        for name in names:
            archive.add(folder / name, f"lastfm-dataset-360K/{name}")
    return target


def loose(path: Path) -> Interactions:
    return lastfm_360k(path, least_of_user=1, least_of_item=1)


def same(one: Interactions, two: Interactions) -> bool:
    alike = (one.user_ids, one.item_ids, one.texts, one.report) == (
        two.user_ids,
        two.item_ids,
        two.texts,
        two.report,
    )
    return alike and events(one) == events(two) and told(one) == told(two)


def test_rows_of_known_users_in_their_order(tmp_path: Path) -> None:
    log = loose(published(tmp_path))
    assert (log.user_ids, log.item_ids) == (["aa", "bb", "cc", "dd"], ["m-1", "m-2", "m-3", "the nameless"])
    assert log.texts == ["die Ärzte", 'quote"d', "rare", "the nameless"]  # the name that came first
    assert events(log) == [
        *(("aa", item) for item in ("m-2", "m-1", "m-3")),
        *(("bb", item) for item in ("m-1", "the nameless", "m-2")),
        *(("cc", item) for item in ("the nameless", "m-1")),
        ("dd", "m-2"),
    ]
    assert log.leave_one_out().test.tolist() == [2, 1, 0, -1]  # the last rows
    assert {name: [log.classes[name][c] for c in codes] for name, codes in told(log)} == {
        "gender": ["male", "female", "male", "female"],
        "age": ["under 21", "21 to 25", "26 and over", "21 to 25"],
    }
    assert log.values["age in years"].tolist() == [20.0, 21.0, 26.0, 25.0]
    assert log.time is None
    assert log.report == (
        "2 users without a gender or an age: left out",
        "1 user of an age outside 0 to 100: left out",
        "4 rows of users left out or without a profile: left out",
        "1 row without plays: left out",
        "1 row without an artist: left out",
        "no times: a user's events are in the order of their rows, and the last one is held out",
        "1 rows repeat an earlier (user, item) pair: dropped, the earliest stays",
        "1 user with one event: trained on, never tested",
        "1 user with two events: tested, no validation item",
    )


def test_users_and_artists_with_too_few_others_go(tmp_path: Path) -> None:
    log = lastfm_360k(published(tmp_path), least_of_user=2, least_of_item=2)
    assert (log.user_ids, log.item_ids) == (["aa", "bb", "cc"], ["m-1", "m-2", "the nameless"])
    assert "2 rows of users or items with too few others: left out" in log.report
    with pytest.raises(BadInput, match=r"data\.least_of_user: no 51 items of a user are played by 23 users"):
        lastfm_360k(tmp_path)


def test_the_papers_cut_by_default(tmp_path: Path) -> None:
    names = [f"u{number:02d}" for number in range(24)]
    rows = [f"{name}\tm-{item}\tx\t1" for name in names for item in range(51)]
    users = [f"{name}\t{'fm'[number % 2]}\t{number}\t\t" for number, name in enumerate(names)]
    fewer = published(tmp_path / "a", [*rows[:-1], f"{names[0]}\tm-99\tx\t1"], users)
    log = lastfm_360k(fewer)  # the last user has 50, so that 23 are left
    assert (log.n_users, log.n_items, len(log)) == (23, 51, 23 * 51)
    assert log.attributes["age"].bincount().tolist() == [21, 2]


def test_folder_file_archive_and_parent_are_the_same(tmp_path: Path) -> None:
    folder = published(tmp_path / "a" / "lastfm-dataset-360K")
    for target in (tmp_path / "b" / "lastfm-dataset-360K.tar.gz", tmp_path / "c.tar.gz"):
        packed(folder, target)
    whole = loose(folder)
    paths = (folder.parent, folder / PLAYS, tmp_path / "b", tmp_path / "b" / "lastfm-dataset-360K.tar.gz")
    for path in (*paths, tmp_path / "c.tar.gz"):
        assert same(loose(path), whole)


def test_age_groups_begin_where_told(tmp_path: Path) -> None:
    folder = published(tmp_path)
    log = lastfm_360k(folder, ages=(25,), least_of_user=1, least_of_item=1)
    assert log.classes["age"] == ("under 25", "25 and over")
    assert log.attributes["age"].tolist() == [0, 0, 1, 1]
    for ages in ((), (26, 21), (21, 21)):
        with pytest.raises(BadInput, match=r"data\.ages"):
            lastfm_360k(folder, ages=ages)


def long_line(folder: Path) -> Path:
    return published(folder, [*ROWS, "aa\tm-1\t" + "x" * (1 << 20) + "\t1"])


BROKEN: dict[str, tuple[Callable[[Path], Path], str]] = {
    "fields": (
        lambda folder: published(folder, [*ROWS, "aa\tm-9\t3"]),
        rf"{PLAYS}:17: 3 fields where the published file has 4",
    ),
    "plays": (
        lambda folder: published(folder, [*ROWS[:3], "aa\tm-9\tx\tmany", *ROWS[3:]]),
        rf'{PLAYS}:4: plays is "many"; it must be a whole number',
    ),
    "not text": (lambda folder: bytes_after(folder, b"aa\tm-1\t\xff\xfe\t1\n"), rf"{PLAYS}:17: byte 0xff"),
    "a long line": (long_line, rf"{PLAYS}:17: 3 fields where"),
    "gender": (
        lambda folder: published(folder, users=["aa\tx\t20\t\t"]),
        rf'{PROFILES}:1: gender is "x"; it must be one of f, m',
    ),
    "age": (
        lambda folder: published(folder, users=[*PEOPLE, "hh\tf\told\t\t"]),
        rf'{PROFILES}:8: age is "old"; it must be a number',
    ),
    "a person twice": (
        lambda folder: published(folder, users=[*PEOPLE, PEOPLE[0]]),
        rf"{PROFILES}: a user has two rows",
    ),
    "nobody told": (
        lambda folder: published(folder, users=["aa\t\t20\t\t"]),
        rf"{PROFILES}: nobody has a gender and an age",
    ),
    "others' profiles": (
        lambda folder: published(folder, users=["zz\tf\t20\t\t"]),
        rf"{PLAYS}: nobody of whom gender and age are known played anything",
    ),
    "no profiles": (lambda folder: without(published(folder), PROFILES), rf"{PROFILES}: no such file"),
    "nothing": (lambda folder: without(published(folder), PLAYS), rf"there is no {PLAYS} here"),
    "no tar.gz": (lambda folder: written(folder / "x.tar.gz", b"text"), r"x\.tar\.gz: no tar\.gz, or a dam"),
    "half a tar.gz": (lambda folder: halved(folder), r"half\.tar\.gz: no tar\.gz, or a damaged one"),
    "a tar.gz of one": (
        lambda folder: packed(published(folder), folder / "one.tar.gz", (PLAYS,)),
        rf"one\.tar\.gz: the archive has no file called {PROFILES}",
    ),
    "a link in a tar.gz": (lambda folder: linked(folder), rf"the archive has no file called {PROFILES}"),
}


def bytes_after(folder: Path, more: bytes) -> Path:
    path = published(folder) / PLAYS
    path.write_bytes(path.read_bytes() + more)
    return folder


def without(folder: Path, name: str) -> Path:
    (folder / name).unlink()
    return folder


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def halved(folder: Path) -> Path:
    whole = packed(published(folder), folder / "whole.tar.gz").read_bytes()
    return written(folder / "half.tar.gz", whole[: len(whole) // 2])


def linked(folder: Path) -> Path:
    path = folder / "linked.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        link = tarfile.TarInfo(PROFILES)
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    return path


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_wrong_is_said_with_its_line(tmp_path: Path, case: str) -> None:
    write, said = BROKEN[case]
    path = write(tmp_path)
    with pytest.raises(BadInput, match=said):
        loose(path)


def test_what_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = published(tmp_path)
    archive = packed(folder, tmp_path / "a.tar.gz")
    size = (folder / PLAYS).stat().st_size
    monkeypatch.setattr(streams, "LIMIT", size - 1)
    with pytest.raises(BadInput, match=rf"{PLAYS}: more than {size - 1:,} bytes"):
        list(streamed(folder, PLAYS, 4))
    with pytest.raises(BadInput, match=r"a\.tar\.gz: unpacks to more than"):
        list(streamed(archive, PROFILES, 5))


@pytest.mark.parametrize("entry", ["lastfm-360k", "LastFM_360K", "lastfm-dataset-360K"])
def test_it_is_found_by_name(tmp_path: Path, entry: str) -> None:
    published(tmp_path / entry)
    values = {"name": "lastfm-360k", "least_of_user": 1, "least_of_item": 1, "balance": "gender"}
    log = Recipe.of({"data": values}, data_dir=tmp_path).data()
    assert log.attributes["gender"].bincount().tolist() == [2, 2]


def test_the_archive_is_found_by_name(tmp_path: Path) -> None:
    archive = packed(published(tmp_path / "x"), tmp_path / "y" / "lastfm-dataset-360K.tar.gz")
    assert places.find("lastfm-360k", tmp_path / "y") == archive
    with pytest.raises(BadInput, match=r"lastfm-360k: not found in .*get it from https://zenodo\.org"):
        places.find("lastfm-360k", tmp_path / "x")
    with pytest.raises(BadInput, match=r"LastFM-360K: is not fetched by veilrec; get it from https://zenodo"):
        places.get("LastFM-360K", tmp_path)


WEIGH = """
import sys
from pathlib import Path
from veilrec.datasets.lastfm_360k import lastfm_360k

log = lastfm_360k(Path(sys.argv[1]), least_of_user=1, least_of_item=1)
print(len(log), [line for line in open("/proc/self/status") if line.startswith("VmHWM")][0].split()[1])
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")
def test_memory_does_not_grow_with_rows_that_do_not_count(tmp_path: Path) -> None:
    """Twice the rows of one user who counts, among 300 and 3,000 times 1,000 rows of one who does not."""
    few, many = (peak_of(published(tmp_path / str(blocks)), blocks) for blocks in (300, 3_000))
    assert many - few < 60_000  # kB; the text alone has 270,000 more


def peak_of(folder: Path, blocks: int) -> int:
    """The most memory of a process that loads so many blocks of rows, in kB."""
    own = [f"aa\t{'m' * 40}{n}\tx\t1\n" for n in range(500)]
    with (folder / PLAYS).open("w") as file:
        file.writelines(own)
        for _ in range(blocks):
            file.writelines(f"ff\t{'m' * 40}{n}\t{'artist' * 8}\t{n + 1}\n" for n in range(1_000))
        file.writelines(own)
    command = [sys.executable, "-c", WEIGH, str(folder)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True).stdout
    found, peak = (int(word) for word in said.split())
    assert found == 500
    return peak


# ---- the stand-in


def small_1k(folder: Path, zipped: bool = True) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    rows = [("3", "70"), ("8", "70"), ("3", "9"), ("9", "70"), ("3", "71"), ("8", "9"), ("8", "5")]
    text = "user_id\tartist_id\tsplit\n" + "".join(f"{user}\t{artist}\ttrain\n" for user, artist in rows)
    name, data = (
        ("interactions.tsv.gz", gzip.compress(text.encode())) if zipped else ("interactions.tsv", b"")
    )
    (folder / name).write_bytes(data or text.encode())
    (folder / "users.tsv").write_text("user_id\tgender\tage_group\n8\tF\tgt24\n3\tM\tle24\n9\tF\tle24\n")
    return folder


@pytest.mark.parametrize("zipped", [True, False])
def test_the_stand_in_is_in_the_order_of_its_rows(tmp_path: Path, zipped: bool) -> None:
    folder = small_1k(tmp_path / "lastfm-1k", zipped)
    log = lastfm_1k(tmp_path, least_of_user=2, least_of_item=2)
    assert events(log) == [("3", "70"), ("3", "9"), ("8", "70"), ("8", "9")]
    assert {name: [log.classes[name][c] for c in codes] for name, codes in told(log)} == {
        "gender": ["male", "female"],
        "age": ["24 and under", "over 24"],
    }
    assert log.report == (
        "a cut of Last.fm-1K that stands in for LastFM-360K",
        "3 rows of users or items with too few others: left out",
        "no times: a user's events are in the order of their rows, and the last one is held out",
        "2 users with two events: tested, no validation item",
    )
    assert same(log, lastfm_1k(folder, least_of_user=2, least_of_item=2))
    with pytest.raises(BadInput, match=r"data\.least_of_user"):
        lastfm_1k(folder)


def test_the_stand_in_says_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"there is no interactions\.tsv\.gz here"):
        lastfm_1k(tmp_path)
    folder = small_1k(tmp_path)
    (folder / "users.tsv").write_text("user_id\tsex\n3\tM\n")
    with pytest.raises(BadInput, match=r'users\.tsv:1: no column "gender" among user_id, sex'):
        lastfm_1k(folder)
    (folder / "users.tsv").write_text("user_id\tgender\tage_group\n3\tM\tyoung\n")
    with pytest.raises(BadInput, match=r'users\.tsv:2: age_group is "young"; it must be one of le24, gt24'):
        lastfm_1k(folder)


def test_both_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small_1k(tmp_path / "lastfm-1k")
    listed = json.loads(call(capsys, "data", "list", "--data-dir", tmp_path, "--json").out)
    rows = {row["name"]: row for row in listed}
    assert (rows["lastfm-1k"]["users"], rows["lastfm-1k"]["found"]) == (268, True)
    assert "stand-in for LastFM-360K" in rows["lastfm-1k"]["terms"]
    assert (rows["lastfm-360k"]["users"], rows["lastfm-360k"]["found"]) == (None, False)
    assert "zenodo.org/records/6090214" in rows["lastfm-360k"]["where"]
    code, out, _ = call(capsys, "data", "list", "--data-dir", tmp_path)
    assert (code, "lastfm-360k" in out) == (0, True)


@pytest.mark.slow
@needs_1k
def test_the_stand_in_has_the_size_of_its_core(capsys: pytest.CaptureFixture[str]) -> None:
    log = lastfm_1k(REAL / "lastfm-1k")
    assert (log.n_users, log.n_items, len(log)) == (268, 3_972, 109_302)
    assert log.attributes["gender"].bincount().tolist() == [113, 155]
    assert log.attributes["age"].bincount().tolist() == [155, 113]
    papers = lastfm_1k(REAL / "lastfm-1k", least_of_user=51, least_of_item=23)
    assert (papers.n_users, papers.n_items, len(papers)) == (254, 1_542, 73_637)
    whole = lastfm_1k(REAL / "lastfm-1k", least_of_user=0, least_of_item=0)
    assert (whole.n_users, whole.n_items, len(whole)) == (268, 51_609, 200_586)
    assert places.PUBLISHED["lastfm-1k"].sizes == (log.n_users, log.n_items, len(log))
    code, out, _ = call(capsys, "data", "show", "lastfm-1k", "--data-dir", REAL)
    assert (code, "stands in for LastFM-360K" in out) == (0, True)


@pytest.mark.slow
@needs_1k
def test_an_artist_of_the_prepared_test_set_is_held_out() -> None:
    with gzip.open(REAL / "lastfm-1k" / "interactions.tsv.gz", "rt") as file:
        rows = [line.rstrip("\n").split("\t") for line in file]
    tested = {(user, artist) for user, artist, part in rows if part == "test"}
    log = lastfm_1k(REAL / "lastfm-1k")
    held = log.leave_one_out().test.tolist()
    pairs = [(log.user_ids[user], log.item_ids[item]) for user, item in enumerate(held)]
    assert set(pairs) <= tested
