"""A corpus of broken files and archives: one line with file and line (or member), and nothing written."""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import stat
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from veilrec.datasets.delimited import csv
from veilrec.datasets.imported import imported
from veilrec.datasets.ml_1m import ml_1m
from veilrec.datasets.ml_100k import ml_100k
from veilrec.datasets.recbole import recbole
from veilrec.errors import BadInput
from veilrec.interactions import Interactions

HEAD = "user,item,rating,time\n"
GOOD = HEAD + "1,10,5,978300760\n2,11,4,978300761\n"
LOG = "1\t10\t5\t881250949\n2\t11\t3\t881250950\n"
GENRES = "|".join("0" * 19)
Load = Callable[[], Interactions]
Prepare = Callable[[Path], Load]  # writes the files of a case, and gives what is to fail


def text_case(content: str | bytes, said: str, **options: object) -> tuple[Prepare, str]:
    """A log in ``log.csv`` and what the error must match, from the name of the file on."""

    def prepare(folder: Path) -> Load:
        data = content if isinstance(content, bytes) else content.encode()
        (folder / "log.csv").write_bytes(data)
        return lambda: csv(folder / "log.csv", **options)  # type: ignore[arg-type]

    return prepare, said


def people_case(content: str, said: str, **options: object) -> tuple[Prepare, str]:
    def prepare(folder: Path) -> Load:
        (folder / "log.csv").write_text(GOOD)
        (folder / "users.csv").write_text(content)
        return lambda: csv(folder / "log.csv", attributes=folder / "users.csv", **options)  # type: ignore[arg-type]

    return prepare, said


def titles_case(content: str, said: str) -> tuple[Prepare, str]:
    def prepare(folder: Path) -> Load:
        (folder / "log.csv").write_text(GOOD)
        (folder / "items.csv").write_text(content)
        return lambda: csv(folder / "log.csv", titles=folder / "items.csv")

    return prepare, said


TEXTS = {
    "empty": text_case("", r"log\.csv: the file is empty"),
    "blank": text_case("\n \n\n", r"log\.csv: the file is empty"),
    "header only": text_case(HEAD, r"log\.csv:1: a header and no rows"),
    "binary": text_case(bytes(range(256)), r"log\.csv:\d+: byte"),
    "utf-16": text_case(GOOD.encode("utf-16"), r"log\.csv:1: the file is UTF-16"),
    "utf-16 unmarked": text_case(GOOD.encode("utf-16-le"), r"log\.csv:1: a NUL byte"),
    "not utf-8": text_case(GOOD.encode() + b"3,\xe9,1,978300760\n", r"log\.csv:4: byte 0xe9 is not UTF-8"),
    "not ascii": text_case(
        GOOD.encode() + b"3,\xe9,1,978300760\n", r"log\.csv:4: not ascii", encoding="ascii"
    ),
    "unknown encoding": text_case(GOOD, r'--encoding: no encoding is called "utf-9"', encoding="utf-9"),
    "codec that is no encoding": text_case(GOOD, r"--encoding: no encoding", encoding="hex"),
    "nul": text_case(GOOD + "3,1\0,4,978300762\n", r"log\.csv:4: a NUL byte"),
    "json": text_case('{"user": 1}\n', r"log\.csv:1: looks like JSON"),
    "carriage return": text_case(GOOD + "3,1\r2,4,978300762\n", r"log\.csv:4: a carriage return"),
    "long field": text_case(
        GOOD + "3," + "x" * (1 << 21), r"log\.csv:4: cannot be cut into fields: field larger"
    ),
    "long line": text_case(GOOD + "3," * (1 << 22), r"log\.csv:4: a line of more than 4,194,304 bytes"),
    "long row": text_case(
        GOOD + '"\n",' * (1 << 21), r"log\.csv:4: cannot be cut into fields: a row of more than"
    ),
    "one column": text_case("user\n1\n2\n", r"log\.csv:1: no separator found"),
    "wrong separator": text_case(GOOD, r'log\.csv:1: one column only.*may be ","', separator=";"),
    "absurd separator": text_case(GOOD, r"--sep: 'a' cannot separate", separator="a"),
    "missing column": text_case("user,rating\n1,2\n", r"log\.csv:1: no column is known to hold the items"),
    "missing named column": text_case(
        GOOD, r'log\.csv:1: there is no column "usr"; did you mean "user"', user="usr"
    ),
    "one column twice": text_case(GOOD, r'log\.csv: column "user" cannot be both', user="user", item="user"),
    "many columns, no header": text_case("1,2,3,4,5\n1,2,3,4,5\n", r"log\.csv:1: no column is known"),
    "duplicate column": text_case("user,item,item\n1,2,3\n", r'log\.csv:1: two columns are called "item"'),
    "extra field": text_case(GOOD + "3,1,2,978300760,9\n", r"log\.csv:4: 5 fields where the header has 4"),
    "missing field": text_case(GOOD + "3,1,2\n", r"log\.csv:4: 3 fields where the header has 4"),
    "missing field, no header": text_case("1,2\n3\n", r"log\.csv:2: 1 fields where the first row has 2"),
    "missing field, quoted": text_case('user,item\n"1",2\n3\n', r"log\.csv:3: 1 fields"),
    "missing field in first row": text_case(HEAD + "1,2\n", r"log\.csv:2: 2 fields"),
    "open quote": text_case('user,item\n1,2\n3,"4\n5,6\n', r"log\.csv:3: cannot be cut into fields"),
    "stray quote": text_case('user,item\n1,2\n3,"4"5\n', r"log\.csv:3: cannot be cut into fields"),
    "rating nan": text_case(GOOD + "3,1,NaN,978300760\n", r'log\.csv:4: rating is "NaN"'),
    "rating infinite": text_case(GOOD + "3,1,inf,978300760\n", r'log\.csv:4: rating is "inf"'),
    "rating overflows": text_case(GOOD + "3,1,1e999,978300760\n", r'log\.csv:4: rating is "1e999"'),
    "rating empty": text_case(GOOD + "3,1,,978300760\n", r"log\.csv:4: rating is empty"),
    "rating in words": text_case(GOOD + "3,1,five,978300760\n", r'log\.csv:4: rating is "five"'),
    "rating with underscore": text_case(GOOD + "3,1,1_0,978300760\n", r'log\.csv:4: rating is "1_0"'),
    "rating in other digits": text_case(GOOD + "3,1,٣,978300760\n", r'log\.csv:4: rating is "٣"'),
    "time negative": text_case(GOOD + "3,1,5,-1\n", r'log\.csv:4: time is "-1": before 1970'),
    "time not whole": text_case(GOOD + "3,1,5,978300760.5\n", r'log\.csv:4: time is "978300760\.5"'),
    "time in the year 9999": text_case(GOOD + "3,1,5,253402300799\n", r"log\.csv:4: time is .* later than"),
    "all times in the year 9999": text_case("1,2,3,253402300799\n", r"log\.csv:1: time is|log\.csv:1: 4 is"),
    "time beyond all numbers": text_case(GOOD + "3,1,5,1e300\n", r"log\.csv:4: time is .* later than"),
    "time empty": text_case(GOOD + "3,1,5,\n", r"log\.csv:4: time is empty"),
    "time in words": text_case(GOOD + "3,1,5,noon\n", r'log\.csv:4: time is "noon"'),
    "date impossible": text_case(
        "user,item,date\n1,2,2020-01-31\n1,3,2020-02-31\n", r'log\.csv:3: date is "2020-02-31"'
    ),
    "date before 1970": text_case("user,item,date\n1,2,2020-01-31\n1,3,1969-02-01\n", r"log\.csv:3: date is"),
    "date in another form": text_case(
        "user,item,date\n1,2,31/1/2020\n", r"log\.csv:2: date is .*--time-format"
    ),
    "id empty": text_case(GOOD + ",1,5,978300760\n", r"log\.csv:4: user is empty"),
    "id blank": text_case("user\titem\n1\t2\n1\t \n", r"log\.csv:3: item is empty"),
    "id with blanks around": text_case(
        "user\titem\n1\t2\n3 \t2\n", r'log\.csv:3: user is "3 ": blanks around'
    ),
    "id with control characters": text_case("user\titem\n1\t2\n3\x07\t2\n", r"log\.csv:3: user is .*control"),
    "attribute not there": text_case(GOOD, r'log\.csv:1: there is no column "sex"', attribute=["sex"]),
    "attribute with one value": text_case(
        GOOD.replace(",4,", ",5,"), r'"rating" has 1 values', attribute=["rating"]
    ),
    "people disagree": people_case(
        "user,sex\n1,f\n2,m\n1,m\n", r'users\.csv:4: user "1" has two different values of sex'
    ),
    "people without an id": people_case("user,sex\n1,f\n,m\n", r"users\.csv:3: user is empty"),
    "people empty": people_case("", r"users\.csv: the file is empty"),
    "people ragged": people_case("user,sex\n1,f\n2\n", r"users\.csv:3: 1 fields"),
    "age in words": people_case(
        "user,age\n1,30\n2,old\n", r'users\.csv:3: age is "old"', borders={"age": (35,)}
    ),
    "borders fall": people_case(
        "user,age\n1,30\n2,40\n", r"age: the borders \[45, 35\] do not rise", borders={"age": (45, 35)}
    ),
    "titles disagree": titles_case(
        "item,title\n10,A\n11,B\n10,C\n", r'items\.csv:4: item "10" has two different titles'
    ),
    "titles ragged": titles_case("item,title\n10,A\n11\n", r"items\.csv:3: 1 fields"),
}


def release(said: str, **changed: str | bytes) -> tuple[Prepare, str]:
    """A small ml-100k in which one file is changed."""

    def prepare(folder: Path) -> Load:
        files: dict[str, str | bytes] = {
            "data": LOG,
            "user": "1|30|M|writer|0\n2|40|F|artist|0\n",
            "item": f"10|A|||x|{GENRES}\n11|B|||x|{GENRES}\n",
        }
        for kind, content in {**files, **changed}.items():
            (folder / f"u.{kind}").write_bytes(content if isinstance(content, bytes) else content.encode())
        return lambda: ml_100k(folder)

    return prepare, said


RELEASES = {
    "rating too high": release(r"u\.data:2: rating is \"6\"", data=LOG.replace("\t3\t", "\t6\t")),
    "rating in between": release(r"u\.data:2: rating is \"3\.5\"", data=LOG.replace("\t3\t", "\t3.5\t")),
    "columns missing": release(r"u\.data:1: 3 fields where the published", data="1\t2\t3\n"),
    "data not text": release(r"u\.data:3: byte 0xff", data=LOG.encode() + b"\xff\t1\t1\t1\n"),
    "gender unknown": release(r"u\.user:2: gender is \"X\"", user="1|30|M|writer|0\n2|40|X|artist|0\n"),
    "occupation unknown": release(
        r"u\.user:1: occupation is \"king\"", user="1|30|M|king|0\n2|40|F|artist|0\n"
    ),
    "age impossible": release(r"u\.user:1: age is \"999\"", user="1|999|M|writer|0\n"),
    "two rows": release(r"u\.user:2: user \"1\" has two", user="1|30|M|writer|0\n1|40|M|writer|0\n"),
    "item columns": release(r"u\.item:1: 3 fields where the published file has 24", item="10|A|x\n"),
}


def archive_case(
    fill: Callable[[Path], None], said: str, load: Callable[..., Interactions] = ml_1m
) -> tuple[Prepare, str]:
    def prepare(folder: Path) -> Load:
        fill(folder / "ml-1m.zip")
        return lambda: load(folder / "ml-1m.zip")

    return prepare, said


def members(*entries: tuple[str | zipfile.ZipInfo, bytes]) -> Callable[[Path], None]:
    def fill(path: Path) -> None:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("ml-1m/ratings.dat", b"1::10::5::978300760\n" * 20)
            for name, content in entries:
                archive.writestr(name, content)

    return fill


def special(name: str, mode: int) -> zipfile.ZipInfo:
    member = zipfile.ZipInfo(name)
    member.create_system, member.external_attr = 3, mode << 16
    return member


def damaged(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def fill(path: Path) -> None:
        members()(path)
        path.write_bytes(change(path.read_bytes()))

    return fill


def flip(data: bytes) -> bytes:
    place = data.index(b"ratings.dat") + len(b"ratings.dat") + 5
    return data[:place] + bytes([data[place] ^ 0xFF]) + data[place + 1 :]


def twice(path: Path) -> None:
    members(("ml-1m/users.dax", b"x"))(path)
    path.write_bytes(path.read_bytes().replace(b"ml-1m/users.dax", b"ml-1m/ratings.d"))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("ml-1m/RATINGS.D", b"y")


def crowded(path: Path) -> None:
    members()(path)
    data = bytearray(path.read_bytes())
    struct.pack_into("<H", data, data.rindex(b"PK\x05\x06") + 10, 60_000)
    path.write_bytes(bytes(data))


ZIPS = {
    "not a zip": archive_case(lambda path: path.write_text("ratings") and None, r"ml-1m\.zip: not a zip"),
    "empty": archive_case(lambda path: path.write_bytes(b"") and None, r"ml-1m\.zip: not a zip"),
    "truncated": archive_case(damaged(lambda data: data[: len(data) // 2]), r"ml-1m\.zip: not a zip"),
    "start cut off": archive_case(damaged(lambda data: data[20:]), r"ml-1m\.zip"),
    "bad crc": archive_case(damaged(flip), r"ml-1m/ratings\.dat: the member cannot be unpacked"),
    "member missing": archive_case(
        lambda path: zipfile.ZipFile(path, "w").close(), r"ml-1m\.zip: the archive has no file"
    ),
    "member in two folders": archive_case(
        members(("other/ratings.dat", b"")), r"has 2 files called ratings\.dat"
    ),
    "climbs out": archive_case(members(("../x", b"")), r"\.\./x: the member's path leads out"),
    "climbs out later": archive_case(members(("a/../../x", b"")), r"leads out"),
    "climbs out in Windows": archive_case(members(("a\\..\\x", b"")), r"leads out"),
    "absolute": archive_case(members(("/etc/x", b"")), r"/etc/x: the member's path leads out"),
    "drive letter": archive_case(members(("C:/x", b"")), r"C:/x: the member's path leads out"),
    "symlink": archive_case(
        members((special("link", stat.S_IFLNK | 0o777), b"/etc/passwd")), r"link: the member is a link"
    ),
    "device": archive_case(
        members((special("null", stat.S_IFCHR | 0o666), b"")), r"null: the member is a link or a device"
    ),
    "fifo": archive_case(
        members((special("pipe", stat.S_IFIFO | 0o666), b"")), r"pipe: the member is a link or a device"
    ),
    "nested": archive_case(members(("more.zip", b"PK")), r"more\.zip: the member is an archive inside"),
    "bomb": archive_case(members(("zeros.dat", bytes(40 << 20))), r"zeros\.dat: the member unpacks from"),
    "duplicate by case": archive_case(twice, r"RATINGS\.D: the archive holds ml-1m/ratings\.d as well"),
    "too many members": archive_case(crowded, r"ml-1m\.zip: the archive declares 60,000 members"),
    "control characters in a name": archive_case(members(("a\x07b", b"")), r"characters that no file name"),
    "bad line inside": archive_case(
        members(("ml-1m/users.dat", b"1::F::1::10::0\n2::F::2::10::0\n")), r"ml-1m/users\.dat:2: age is \"2\""
    ),
    "two logs": archive_case(
        members(("a.csv", b""), ("b.csv", b"")), r"ml-1m\.zip: the archive has 3 text files", csv
    ),
    "no atomic files": archive_case(members(), r"ml-1m\.zip: 0 \.inter files", recbole),
}


def fifo(folder: Path) -> Load:
    os.mkfifo(folder / "log.csv")
    return lambda: csv(folder / "log.csv")


def unreadable(folder: Path) -> Load:
    (folder / "log.csv").write_text(GOOD)
    (folder / "log.csv").chmod(0)
    if os.access(folder / "log.csv", os.R_OK):
        pytest.skip("this user may read everything")
    return lambda: csv(folder / "log.csv")


def folder_for_a_file(folder: Path) -> Load:
    (folder / "log.csv").mkdir()
    return lambda: csv(folder / "log.csv")


def hollow_folder(folder: Path) -> Load:
    (folder / "ml-100k").mkdir()
    return lambda: ml_100k(folder)


FILES: dict[str, tuple[Prepare, str]] = {
    "missing": (lambda folder: lambda: csv(folder / "log.csv"), r"log\.csv: no such file"),
    "missing release": (lambda folder: lambda: ml_1m(folder / "ml-1m"), r"ml-1m: no such file"),
    "folder": (folder_for_a_file, r"log\.csv: is a folder where a file should be"),
    "hollow folder": (hollow_folder, r"there is no u\.data here, nor ml-100k/"),
    "pipe": (fifo, r"log\.csv: is not a plain file"),
    "unreadable": (unreadable, r"log\.csv: permission denied"),
    "long path": (lambda folder: lambda: csv(folder / ("x" * 5000)), r"file name too long"),
    "long path to a release": (lambda folder: lambda: ml_1m(folder / ("x" * 5000)), r"file name too long"),
    "nul in the path": (lambda folder: lambda: csv(folder / "a\0b"), r"a\\0b: embedded null"),
    "attributes missing": (text_case(GOOD, "", attributes=Path("gone.csv"))[0], r"gone\.csv: no such file"),
    "truncated gzip": text_case(
        gzip.compress(GOOD.encode() * 99)[:-30], r"log\.csv: the gzip file is damaged"
    ),
    "gzip with a bad sum": text_case(
        gzip.compress(GOOD.encode())[:-8] + bytes(8), r"log\.csv: the gzip file is damaged"
    ),
    "gzip bomb": text_case(gzip.compress(bytes(64 << 20)), r"log\.csv: unpacks to more than"),
    "gzip in gzip": text_case(
        gzip.compress(gzip.compress(GOOD.encode())), r"log\.csv: a gzip archive where text"
    ),
    "bzip2": text_case(b"BZh91AY&SY", r"log\.csv: a bzip2 archive where text"),
    "tar": text_case(bytes(257) + b"ustar" + bytes(250), r"log\.csv: a tar archive where text"),
    "no stored dataset": (lambda folder: lambda: imported(folder), r"dataset\.json: no such file"),
}

CASES = {
    f"{kind}: {name}": case
    for kind, cases in {"text": TEXTS, "ml-100k": RELEASES, "zip": ZIPS, "file": FILES}.items()
    for name, case in cases.items()
}


def tree(folder: Path) -> dict[str, str]:
    """Every path below a folder, with a hash of what is in it."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        for path in sorted(folder.rglob("*"))
        if os.access(path, os.R_OK)
    }


def test_the_corpus_is_large() -> None:
    assert len(CASES) >= 45


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_broken_input_is_one_line_with_its_place(tmp_path: Path, case: tuple[Prepare, str]) -> None:
    prepare, said = case
    load = prepare(tmp_path)
    before = tree(tmp_path)
    with pytest.raises(BadInput) as caught:
        load()
    message = str(caught.value)
    assert re.search(said, message), message
    assert len(message.splitlines()) == 1
    assert "; " in message, "an error says what to do"
    assert len(message) < 500
    assert tree(tmp_path) == before
