"""What is dropped on the way in is counted in plain words, and refused where a person wants it strict."""

from __future__ import annotations

from pathlib import Path

import pytest

from veilrec.datasets.delimited import csv
from veilrec.errors import BadInput
from veilrec.interactions import Interactions

CLEAN = "user,item,time\n" + "".join(f"{user},{item},{item}\n" for user in "ab" for item in range(1, 4))
PEOPLE = "user,sex\na,f\nb,m\n"
TITLES = "item,title\n1,One\n2,Two\n3,Three\n"

CASES = {
    "repeated pair": (
        {"log": CLEAN + "a,1,9\na,1,8\n"},
        "2 rows repeat an earlier (user, item) pair: dropped, the earliest stays",
        r'log\.csv:8: user "a" has this item in an earlier row',
    ),
    "person without events": (
        {"people": PEOPLE + "c,f\n"},
        "1 user of people.csv without events: left out",
        r'people\.csv:4: user "c" has no events',
    ),
    "user without a row": (
        {"people": "user,sex\na,f\nb,m\n".replace("b,m\n", "c,m\n")},
        "1 user without a row in people.csv: attributes unknown",
        r'people\.csv:3: user "c" has no events',
    ),
    "user without a value": (
        {"people": "user,sex,age\na,f,1\nb,m,\nc,f,2\n", "log": CLEAN + "c,1,1\nc,2,2\nc,3,3\n"},
        "1 user of people.csv without a value of age: unknown",
        "without a value of age",
    ),
    "item without a title": (
        {"titles": TITLES.replace("3,Three\n", "3,\n")},
        "1 item without a title in titles.csv: shown by id",
        "without a title",
    ),
    "one event": (
        {"log": CLEAN + "c,1,1\n", "people": None},
        "1 user with one event: trained on, never tested",
        "one event",
    ),
    "two events": (
        {"log": CLEAN + "c,1,1\nc,2,1\n", "people": None},
        "1 user with two events: tested, no validation item",
        "two events",
    ),
}


def load(folder: Path, changed: dict[str, str | None], *, strict: bool = False) -> Interactions:
    files: dict[str, str | None] = {"log": CLEAN, "people": PEOPLE, "titles": TITLES, **changed}
    for name, text in files.items():
        if text is not None:
            (folder / f"{name}.csv").write_text(text)
    about = {
        role: folder / f"{name}.csv"
        for role, name in (("attributes", "people"), ("titles", "titles"))
        if files[name]
    }
    return csv(folder / "log.csv", strict=strict, **about)  # type: ignore[arg-type]


def test_clean_data_has_nothing_to_report(tmp_path: Path) -> None:
    assert load(tmp_path, {}, strict=True).report == ()


@pytest.mark.parametrize(("changed", "sentence", "error"), CASES.values(), ids=CASES)
def test_every_loss_is_said_or_refused(
    tmp_path: Path, changed: dict[str, str | None], sentence: str, error: str
) -> None:
    assert sentence in load(tmp_path, changed).report
    with pytest.raises(BadInput, match=error):
        load(tmp_path, changed, strict=True)


def test_the_earliest_of_a_repeated_pair_stays(tmp_path: Path) -> None:
    log = load(tmp_path, {"log": CLEAN + "a,1,9\na,1,0\n"})
    assert log.time is not None
    assert int(log.time[(log.user == 0) & (log.item == 0)]) == 0


def test_unknown_attributes_are_minus_one(tmp_path: Path) -> None:
    log = load(tmp_path, {"people": "user,sex\na,f\nx,m\n"})
    assert log.attributes["sex"].tolist() == [0, -1]
