"""MovieLens as published: golden counts on the real files, and small files in the same form."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pytest
import torch

from veilrec.datasets.ml_1m import ml_1m
from veilrec.datasets.ml_100k import ml_100k
from veilrec.errors import BadInput
from veilrec.interactions import Interactions

REAL = Path(os.environ.get("VEILREC_TEST_DATA") or Path(__file__).parents[2].parent / "shared" / "data")
GENRES = "|".join("0" * 19)

needs_100k = pytest.mark.skipif(
    not (REAL / "ml-100k" / "u.data").is_file(), reason="no ml-100k in shared/data"
)
needs_1m = pytest.mark.skipif(
    not (REAL / "ml-1m" / "ml-1m.zip").is_file(), reason="no ml-1m.zip in shared/data"
)


def small_100k(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "u.data").write_text("2\t20\t4\t881250950\n1\t10\t5\t881250949\n1\t20\t3\t881250949\n")
    (folder / "u.user").write_text("1|34|F|artist|00000\n2|45|M|none|V3N4P\n")
    films = f"10|Été (1995)|01-Jan-1995||http://x|{GENRES}\n20|A, B|||http://x|{GENRES}\n30|C|||x|{GENRES}\n"
    (folder / "u.item").write_bytes(films.encode("latin-1"))
    return folder


def small_1m(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "ratings.dat").write_text("1::10::5::978300760\n2::20::4::978300761\n")
    (folder / "users.dat").write_text("1::F::1::10::48067\n2::M::45::0::70072\n")
    (folder / "movies.dat").write_bytes("10::Été: le film (1995)::Drama\n20::B::X|Y\n".encode("latin-1"))
    return folder


def zipped(folder: Path, target: Path) -> Path:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(folder.iterdir()):
            archive.write(file, f"{folder.name}/{file.name}")
    return target


def same(one: Interactions, two: Interactions) -> bool:
    columns = all(torch.equal(getattr(one, n), getattr(two, n)) for n in ("user", "item", "rating", "time"))
    return columns and (one.user_ids, one.item_ids, one.texts) == (two.user_ids, two.item_ids, two.texts)


def test_small_100k(tmp_path: Path) -> None:
    log = ml_100k(small_100k(tmp_path / "ml-100k"))
    assert (log.user_ids, log.item_ids) == (["1", "2"], ["10", "20"])
    assert log.texts == ["Été (1995)", "A, B"]
    assert {name: [log.classes[name][c] for c in codes] for name, codes in log.attributes.items()} == {
        "gender": ["female", "male"],
        "age": ["under 35", "35 to 45"],
        "occupation": ["artist", "none"],
    }
    assert {name: value.tolist() for name, value in log.values.items()} == {"age in years": [34.0, 45.0]}
    assert log.report == (
        "1 user with one event: trained on, never tested",
        "1 user with two events: tested, no validation item",
    )


def test_small_1m(tmp_path: Path) -> None:
    folder = small_1m(tmp_path / "ml-1m")
    log = ml_1m(folder)
    assert log.texts == ["Été: le film (1995)", "B"]
    assert [log.classes["age"][c] for c in log.attributes["age"]] == ["under 18", "45 to 49"]
    assert [log.classes["occupation"][c] for c in log.attributes["occupation"]] == [
        "K-12 student",
        "other or not said",
    ]
    three = ml_1m(folder, ages=(35, 45))
    assert three.classes["age"] == ("under 35", "35 to 44", "45 and over")
    assert three.attributes["age"].tolist() == [0, 2]
    assert not three.values  # bands are no years


def test_folder_zip_file_and_parent_are_the_same(tmp_path: Path) -> None:
    folder = small_100k(tmp_path / "a" / "ml-100k")
    log = ml_100k(folder)
    archive = zipped(folder, tmp_path / "ml-100k.zip")
    for path in (folder.parent, folder / "u.data", archive, tmp_path):
        assert same(log, ml_100k(path))


def test_optional_files_may_be_missing(tmp_path: Path) -> None:
    folder = small_1m(tmp_path / "ml-1m")
    (folder / "users.dat").unlink()
    (folder / "movies.dat").unlink()
    log = ml_1m(folder)
    assert (dict(log.attributes), log.texts) == ({}, None)
    assert log.report[:2] == (
        "there is no users.dat: attributes are switched off",
        "there is no movies.dat: titles are switched off",
    )
    with pytest.raises(BadInput, match=r"users\.dat"):
        ml_1m(folder, strict=True)


@pytest.mark.parametrize("ages", [(), (45, 35), (35, 35), (30,)])
def test_bands_cannot_be_cut_elsewhere(tmp_path: Path, ages: tuple[int, ...]) -> None:
    with pytest.raises(BadInput, match=r"data\.ages"):
        ml_1m(small_1m(tmp_path / "ml-1m"), ages=ages)


@needs_100k
def test_100k_has_the_published_counts() -> None:
    log = ml_100k(REAL / "ml-100k")
    assert (log.n_users, log.n_items, len(log), int(log.counts.min())) == (943, 1_682, 100_000, 20)
    assert log.attributes["gender"].bincount().tolist() == [273, 670]
    assert log.attributes["age"].bincount().tolist() == [544, 209, 190]
    years = log.values["age in years"]
    assert (years.dtype, float(years.min()), float(years.max())) == (torch.float64, 7.0, 73.0)
    assert torch.equal(1 + (years > 45).long() - (years < 35).long(), log.attributes["age"])
    assert len(log.classes["occupation"]) == 21
    assert log.attributes["occupation"].bincount()[log.classes["occupation"].index("student")] == 196
    assert log.texts is not None
    assert log.texts[0] == "Toy Story (1995)"
    assert all(log.texts)
    assert log.report == ()
    assert same(log, ml_100k(REAL))


@pytest.mark.slow
@needs_100k
def test_shuffled_rows_of_100k_give_the_same_tensors(tmp_path: Path) -> None:
    lines = (REAL / "ml-100k" / "u.data").read_text().splitlines(keepends=True)
    order = torch.randperm(len(lines), generator=torch.Generator().manual_seed(3)).tolist()
    (tmp_path / "u.data").write_text("".join(lines[place] for place in order))
    plain = ml_100k(tmp_path)
    assert same_columns(plain, ml_100k(REAL / "ml-100k"))


def same_columns(one: Interactions, two: Interactions) -> bool:
    return all(torch.equal(getattr(one, n), getattr(two, n)) for n in ("user", "item", "rating", "time"))


@pytest.mark.slow
@needs_1m
def test_1m_has_the_published_counts() -> None:
    log = ml_1m(REAL / "ml-1m" / "ml-1m.zip")
    assert (log.n_users, log.n_items, len(log), int(log.counts.min())) == (6_040, 3_706, 1_000_209, 20)
    assert log.attributes["gender"].bincount().tolist() == [1_709, 4_331]
    assert log.attributes["age"].bincount().tolist() == [222, 1_103, 2_096, 1_193, 550, 496, 380]
    assert log.attributes["occupation"].bincount().shape == (21,)
    assert log.item_ids[-1] == "3952"
    assert log.report == ()
