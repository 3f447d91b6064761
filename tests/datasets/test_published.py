"""ModCloth and Last.fm-1K as published: small files in the same form."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.datasets.test_taobao import events, told
from veilrec.datasets.common.continents import CONTINENTS, continent_of
from veilrec.datasets.lastfm_1k_plays import PLAYS, PROFILES, lastfm_1k_plays
from veilrec.datasets.modcloth import modcloth
from veilrec.errors import BadInput

HEAD = "item_id,user_id,rating,timestamp,size,fit,user_attr,model_attr,category,brand,year,split"
REVIEWS = [
    "7443,Alex,4,2010-01-21 08:00:00+00:00,,,Small,Small,Dresses,,2012,0",
    '7443,"carolyn, a",3,2010-01-27 08:00:00+00:00,,,,Small,Dresses,,2012,0',
    "7443,,4,2010-01-29 08:00:00+00:00,,,Small,Small,Dresses,,2012,0",
    "11960,Alex,5,2010-01-20 08:00:00+00:00,,,,Small&Large,Dresses,,2012,0",
    "11960,Theresa,3,2010-07-01 07:00:00+00:00,,,Large,Small,Dresses,,2010,0",
    "11960,both,3,2010-07-01 07:00:00+00:00,,,Large,Small,Dresses,,2010,0",
    "7443,both,3,2010-07-02 07:00:00+00:00,,,Small,Small,Dresses,,2010,0",
]
PEOPLE = [
    "#id\tgender\tage\tcountry\tregistered",
    "user_000001\tm\t\tJapan\tAug 13, 2006",
    "user_000002\tf\t17\tPeru\tFeb 24, 2006",
    "user_000003\tm\t103\tUnited States\tOct 30, 2005",
    "user_000004\t\t56\tAntarctica\tApr 26, 2006",
    "user_000005\tf\t34\t\tJun 29, 2006",
]
HEARD = [
    "user_000001\t2009-05-04T23:08:57Z\tmb-1\tDeep Dish\t\tFuck Me Im Famous",
    "user_000001\t2009-05-04T13:54:10Z\tmb-1\tDeep Dish\t\tComposition 0919",
    "user_000001\t2009-05-01T00:00:00Z\t\tthe  nameless\t\tx",
    "user_000002\t2006-08-13T13:59:20Z\tmb-2\t坂本龍一\tt-1\tComposition",
    'user_000003\t2006-08-13T13:59:20Z\tmb-1\tDeep "Dish\tt-1\tComposition',
    "user_000004\t2006-08-13T13:59:20Z\tmb-2\t坂本龍一\tt-1\tComposition",
    "user_000005\t2006-08-13T13:59:20Z\t\t\tt-1\tComposition",
    "user_000005\t2006-08-13T13:59:21Z\tmb-2\t坂本龍一\tt-1\tComposition",
]


def reviewed(folder: Path, *rows: str) -> Path:
    (folder / "df_modcloth.csv").write_text("\n".join([HEAD, *rows]) + "\n", encoding="utf-8")
    return folder


def heard(folder: Path, rows: list[str] | None = None) -> Path:
    (folder / PLAYS).write_text("\n".join(HEARD if rows is None else rows) + "\n", encoding="utf-8")
    (folder / PROFILES).write_text("\n".join(PEOPLE) + "\n", encoding="utf-8")
    return folder


def test_reviews_in_the_order_of_their_times_and_the_shape_of_each_user(tmp_path: Path) -> None:
    log = modcloth(reviewed(tmp_path, *REVIEWS))
    assert events(log) == [
        ("Alex", "11960"),
        ("Alex", "7443"),
        ("Theresa", "11960"),
        ("both", "11960"),
        ("both", "7443"),
        ("carolyn, a", "7443"),
    ]
    assert told(log) == [("body shape", [0, 1, -1, -1])]  # one of both shapes, and one of whom none is known
    assert log.classes["body shape"] == ("small", "large")
    assert log.rating is not None
    assert log.rating.tolist() == [5, 4, 3, 3, 3, 3]
    assert log.report[:2] == (
        "1 row without a user: left out",
        "1 user of both body shapes: taken for unknown",
    )


def test_a_core_of_reviews_and_what_is_refused(tmp_path: Path) -> None:
    log = modcloth(reviewed(tmp_path, *REVIEWS), least_of_user=2, least_of_item=2)
    assert log.user_ids == ["Alex", "both"]
    with pytest.raises(BadInput, match=r'csv:2: user_attr is "Tall"'):
        modcloth(reviewed(tmp_path, REVIEWS[0].replace("Small", "Tall", 1)))
    (tmp_path / "df_modcloth.csv").write_text("item_id,user_id,rating,timestamp\n1,a,3,2010-01-01\n")
    with pytest.raises(BadInput, match='no column "user_attr"'):
        modcloth(tmp_path)


def test_artists_when_first_played_and_continents_of_countries(tmp_path: Path) -> None:
    log = lastfm_1k_plays(heard(tmp_path))
    assert events(log) == [
        ("user_000001", "the nameless"),
        ("user_000001", "mb-1"),
        ("user_000002", "mb-2"),
        ("user_000003", "mb-1"),
        ("user_000004", "mb-2"),
        ("user_000005", "mb-2"),
    ]
    assert log.texts == ["Deep Dish", "坂本龍一", "the nameless"]
    assert log.time is not None
    assert log.time[1] == 1241445250  # the earlier of the two plays
    names = {name: [*log.classes[name], "unknown"] for name in log.classes}
    assert {name: [names[name][code] for code in codes] for name, codes in told(log)} == {
        "gender": ["male", "female", "male", "unknown", "female"],
        "age": ["unknown", "under 18", "unknown", "56 and over", "25 to 34"],
        "location": ["Asia", "South America", "North America", "unknown", "unknown"],
    }
    assert log.report[:3] == (
        "1 user of an age outside 5 to 100: taken for unknown",
        "1 user of a country on no continent: taken for unknown",
        "1 row without an artist: left out",
    )


def test_a_time_that_is_none_is_refused_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=':2: the time is "yesterday"'):
        lastfm_1k_plays(heard(tmp_path, [HEARD[0], HEARD[1].replace("2009-05-04T13:54:10Z", "yesterday")]))
    with pytest.raises(BadInput, match="5 fields where the published file has 6"):
        lastfm_1k_plays(heard(tmp_path, ["a\tb\tc\td\te"]))


def test_every_continent_has_countries() -> None:
    assert len(CONTINENTS) == 6
    told = {"Morocco": 0, "Viet Nam": 1, "United Kingdom": 2, "Mexico": 3, "New Zealand": 4, "Chile": 5}
    assert {name: continent_of(name) for name in told} == told
    assert continent_of("Congo, the Democratic Republic of the") == 0
