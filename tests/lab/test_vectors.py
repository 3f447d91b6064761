"""Anyone's vectors and attributes: what is read and joined, and the one line for every file that is wrong."""

from __future__ import annotations

import gzip
import io
import os
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from veilrec.base import tensors
from veilrec.errors import BadInput
from veilrec.lab.attributes import read_attributes
from veilrec.lab.ids import read_ids
from veilrec.lab.match_ids import Audience, join, with_ids
from veilrec.lab.vectors import read_vectors

USERS = 30
IDS = [f"u{k:02}" for k in range(USERS)]
VALUES = np.arange(USERS * 3, dtype=np.float32).reshape(USERS, 3) / 7 - 2
SEXES = ["f" if k % 3 else "m" for k in range(USERS)]
AGES = [20 + 1.5 * k for k in range(USERS)]


def csv_of(
    ids: Sequence[str] = IDS, values: Any = VALUES, header: str = "user,a,b,c", separator: str = ","
) -> str:
    rows = [separator.join([name, *(f"{v:.7g}" for v in row)]) for name, row in zip(ids, values, strict=True)]
    return "\n".join(([header.replace(",", separator)] if header else []) + rows) + "\n"


def people_of(ids: Sequence[str] = IDS, header: str = "user,sex,age") -> str:
    rows = [f"{name},{sex},{age}" for name, sex, age in zip(ids, SEXES, AGES, strict=True)]
    return "\n".join([header, *rows]) + "\n"


def put(folder: Path, name: str, content: str | bytes) -> Path:
    (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return folder / name


def saved(folder: Path, array: Any, name: str = "v.npy") -> Path:
    np.save(folder / name, array, allow_pickle=True)
    return folder / name


def parquet(folder: Path, columns: dict[str, Any], name: str = "v.parquet") -> Path:
    pd.DataFrame(columns).to_parquet(folder / name)
    return folder / name


def columns_of(ids: Any = IDS) -> dict[str, Any]:
    return {"user": ids, **{name: VALUES[:, k] for k, name in enumerate("abc")}}


def joined(folder: Path, vectors: Path, people: str = "", **options: Any) -> Audience:
    """Both files as the command reads them."""
    given_ids = options.pop("ids_file", None)
    column, tensor, rest = options.pop("ids", None), options.pop("tensor", None), options
    place = rest.pop("people_file", None) or put(folder, "users.csv", people or people_of())
    chosen = {key: rest.pop(key) for key in ("attributes", "continuous") if key in rest}
    described = read_attributes(place, ids=rest.pop("people_id", None), **chosen)
    found = read_vectors(vectors, ids=column, tensor=tensor)
    if given_ids is not None:
        found = with_ids(found, read_ids(given_ids), given_ids)
    return join(found, described, **rest)


# ---- what is read


FORMATS: dict[str, Callable[[Path], Path]] = {
    "csv": lambda folder: put(folder, "v.csv", csv_of()),
    "tsv": lambda folder: put(folder, "v.tsv", csv_of(separator="\t")),
    "csv without a header": lambda folder: put(folder, "v.csv", csv_of(header="")),
    "csv with counted columns": lambda folder: put(folder, "v.csv", csv_of(header=",0,1,2")),
    "csv with bom and crlf": lambda folder: put(folder, "v.csv", "\ufeff" + csv_of().replace("\n", "\r\n")),
    "gzip": lambda folder: put(folder, "v.csv.gz", gzip.compress(csv_of().encode())),
    "quoted": lambda folder: put(folder, "v.csv", csv_of([f'"{name}"' for name in IDS])),
    "parquet": lambda folder: parquet(folder, columns_of()),
    "parquet of lists": lambda folder: parquet(folder, {"user": IDS, "vector": list(VALUES)}),
    "parquet with ids last": lambda folder: parquet(
        folder, {**{n: VALUES[:, k] for k, n in enumerate("abc")}, "user_id": IDS}
    ),
}


@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_gives_the_same_vectors(kind: str, tmp_path: Path) -> None:
    found = read_vectors(FORMATS[kind](tmp_path))
    assert found.ids == IDS
    assert found.values.dtype == np.float32
    assert np.allclose(found.values, VALUES, atol=1e-6)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", ">f8", "i1", "u2", "i8"])
def test_npy_of_any_number(dtype: str, tmp_path: Path) -> None:
    array = (VALUES * 3).round().astype(dtype) if dtype[-2] in "iu" else VALUES.astype(dtype)
    found = read_vectors(saved(tmp_path, np.asfortranarray(np.clip(array, 0, 100))))
    assert found.ids is None
    assert np.array_equal(found.values, np.clip(array, 0, 100).astype(np.float32))


def test_safetensors_of_one_and_of_several_tensors(tmp_path: Path) -> None:
    path = tmp_path / "v.safetensors"
    tensors.write(path, {"user": torch.from_numpy(VALUES)})
    assert np.array_equal(read_vectors(path).values, VALUES)
    tensors.write(
        path, {"user": torch.from_numpy(VALUES).double(), "item": torch.zeros(4, 2), "n": torch.tensor(3)}
    )
    assert np.array_equal(read_vectors(path, tensor="user").values, VALUES)


def test_rows_may_come_in_any_order(tmp_path: Path) -> None:
    straight = joined(tmp_path, put(tmp_path, "v.csv", csv_of()), continuous=["age"])
    mixed = csv_of(IDS[::-1], VALUES[::-1])
    lines = people_of().splitlines()
    people = "\n".join([lines[0], *sorted(lines[1:], key=lambda line: line[::-1])]) + "\n"
    other = joined(tmp_path, put(tmp_path, "v.csv", mixed), people, continuous=["age"])
    assert straight.ids == other.ids == IDS
    assert np.array_equal(straight.vectors, other.vectors)
    assert np.array_equal(straight.labels["sex"], other.labels["sex"])
    assert straight.values["age"].tolist() == other.values["age"].tolist() == AGES
    assert straight.classes == {"sex": ("f", "m")}
    assert [straight.classes["sex"][code] for code in straight.labels["sex"]] == SEXES


def test_ids_are_compared_as_written(tmp_path: Path) -> None:
    """``007`` and ``7`` are two people, also where both stand in both files."""
    ids = [*IDS[:-2], "007", "7"]
    found = joined(tmp_path, put(tmp_path, "v.csv", csv_of(ids)), people_of(ids))
    place = {name: row for row, name in enumerate(ids)}
    for row, name in enumerate(found.ids):
        assert np.allclose(found.vectors[row], VALUES[place[name]], atol=1e-6)


def test_whole_numbers_of_parquet_match_text(tmp_path: Path) -> None:
    ids = np.arange(USERS) + 2**53  # beyond what a float tells apart
    found = joined(tmp_path, parquet(tmp_path, columns_of(ids)), people_of([str(k) for k in ids]))
    assert found.ids == [str(k) for k in ids]


def test_losses_on_both_sides_are_counted(tmp_path: Path) -> None:
    people = "\n".join(people_of().splitlines()[:-4]) + "\nstranger,m,20\n"
    found = joined(tmp_path, put(tmp_path, "v.csv", csv_of()), people)
    assert found.ids == IDS[:-4]
    assert "4 of 30 vectors in v.csv have no row in users.csv: left out" in found.notes
    assert "1 of 27 users in users.csv have no vector: left out" in found.notes


def test_missing_labels_are_unknown(tmp_path: Path) -> None:
    people = people_of().replace("u00,m,20.0", "u00,NA,").replace("u01,f,21.5", "u01,,n/a")
    found = joined(tmp_path, put(tmp_path, "v.csv", csv_of()), people, continuous=["age"])
    assert found.labels["sex"][:3].tolist() == [-1, -1, 0]
    assert np.isnan(found.values["age"][:2]).all()
    assert found.values["age"][2] == 23


def test_rare_classes_and_impossible_columns_are_left_out_and_said(tmp_path: Path) -> None:
    people = people_of().replace("u00,m", "u00,x").replace("user,sex,age", "user,sex,name")
    found = joined(tmp_path, put(tmp_path, "v.csv", csv_of()), people)
    assert set(found.labels) == {"sex"}
    assert found.labels["sex"][0] == -1
    assert 'class "x" of sex has 1 users: left out' in found.notes
    assert any(note.startswith("name has 30 different values: not taken") for note in found.notes)
    assert any("--continuous name" in note for note in found.notes)


def test_a_text_file_of_words_has_a_header(tmp_path: Path) -> None:
    people = "\n".join(["who,kind", *(f"{name},{sex}" for name, sex in zip(IDS, SEXES, strict=True))])
    assert set(read_attributes(put(tmp_path, "a.csv", people)).labels) == {"kind"}
    bare = "\n".join(f"{name},{sex}" for name, sex in zip(IDS, SEXES, strict=True))
    assert read_attributes(put(tmp_path, "b.csv", bare)).ids == IDS, "its first row is a user, not a header"


def test_parquet_attributes_equal_those_of_text(tmp_path: Path) -> None:
    sexes: list[str | None] = [None, *SEXES[1:]]
    place = parquet(
        tmp_path, {"user": IDS, "sex": sexes, "age": AGES, "kind": [k % 2 == 0 for k in range(USERS)]}
    )
    found = read_attributes(place, continuous=["age"])
    assert found.ids == IDS
    assert found.labels["sex"].codes[0] == -1
    assert found.labels["kind"].classes == ("false", "true")
    assert found.values["age"].tolist() == AGES


def test_by_position_needs_the_word(tmp_path: Path) -> None:
    found = joined(tmp_path, saved(tmp_path, VALUES), by_position=True)
    assert found.ids == IDS
    assert np.array_equal(found.vectors, VALUES)
    ids = put(tmp_path, "ids.txt", "\n".join(IDS[::-1]) + "\n")
    other = joined(tmp_path, saved(tmp_path, VALUES), ids_file=ids)
    assert np.array_equal(other.vectors, VALUES[::-1])
    numbered = joined(
        tmp_path,
        saved(tmp_path, VALUES),
        people_of([str(k + 5) for k in range(USERS)]),
        ids_file=saved(tmp_path, np.arange(USERS) + 5, "ids.npy"),
    )
    assert len(numbered.ids) == USERS


def test_a_drawn_audience_does_not_depend_on_the_others(tmp_path: Path) -> None:
    vectors = put(tmp_path, "v.csv", csv_of())
    some = joined(tmp_path, vectors, most=25)
    assert len(some.ids) == 25
    assert some.ids == sorted(some.ids)
    assert "25 of 30 users were drawn by their ids: --users 0 takes all" in some.notes
    fewer = joined(tmp_path, vectors, most=22)
    assert set(fewer.ids) < set(some.ids)


# ---- what is refused


Case = tuple[Callable[[Path], Any], str]


def vectors_case(content: str | bytes, said: str, name: str = "v.csv", **options: Any) -> Case:
    return lambda folder: joined(folder, put(folder, name, content), **options), said


def people_case(content: str | bytes, said: str, **options: Any) -> Case:
    def attempt(folder: Path) -> Any:
        people = put(folder, "users.csv", content)
        return joined(folder, put(folder, "v.csv", csv_of()), people_file=people, **options)

    return attempt, said


def npy_case(array: Any, said: str, **options: Any) -> Case:
    return lambda folder: joined(folder, saved(folder, array), **{"by_position": True, **options}), said


def parquet_case(columns: dict[str, Any], said: str, **options: Any) -> Case:
    return lambda folder: joined(folder, parquet(folder, columns), **options), said


def tensors_case(content: dict[str, torch.Tensor], said: str, **options: Any) -> Case:
    def attempt(folder: Path) -> Any:
        tensors.write(folder / "v.safetensors", content)
        return joined(folder, folder / "v.safetensors", **options)

    return attempt, said


def replaced(line: int, new: str, text: str | None = None) -> str:
    lines = (csv_of() if text is None else text).splitlines()
    lines[line - 1] = new
    return "\n".join(lines) + "\n"


def zipped(name: str) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr(name, b"x")
    return stream.getvalue()


def npz_of(**arrays: Any) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


def bytes_of(array: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


MATRIX = torch.from_numpy(VALUES)
SPOILT = VALUES.copy()
SPOILT[4, 1] = np.nan
BAD: dict[str, Case] = {
    # text
    "empty": vectors_case("", r"v\.csv: the file is empty"),
    "header only": vectors_case("user,a,b\n", r"v\.csv:1: a header and no rows"),
    "binary": vectors_case(bytes(range(1, 256)), r"v\.csv:\d+: byte"),
    "utf-16": vectors_case(csv_of().encode("utf-16"), r"v\.csv:1: the file is UTF-16"),
    "json": vectors_case('{"user": [1, 2]}\n', r"v\.csv:1: looks like JSON"),
    "a word among numbers": vectors_case(replaced(5, "u03,1,x,3"), r'v\.csv:5: b is "x", not a number'),
    "nothing among numbers": vectors_case(replaced(5, "u03,1,,3"), r"v\.csv:5: b is empty"),
    "nan": vectors_case(replaced(5, "u03,1,nan,3"), r'v\.csv:5: b is "nan", not a number'),
    "infinity": vectors_case(replaced(5, "u03,1,-inf,3"), r'v\.csv:5: b is "-inf"'),
    "beyond a double": vectors_case(replaced(5, "u03,1,1e999,3"), r'v\.csv:5: b is "1e999"'),
    "beyond a float": vectors_case(
        replaced(5, "u03,1,1e300,3"), r"v\.csv: row 4, column 2 is inf, or too large"
    ),
    "underscores": vectors_case(replaced(5, "u03,1,1_0,3"), r'v\.csv:5: b is "1_0"'),
    "hexadecimal": vectors_case(replaced(5, "u03,1,0x10,3"), r'v\.csv:5: b is "0x10"'),
    "decimal comma": vectors_case(
        csv_of(separator=";").replace("u03;", "u03;1,5;2;3#").split("#")[0] + "\n",
        r'v\.csv:5: a is "1,5", not a number',
    ),
    "a field too many": vectors_case(
        replaced(5, "u03,1,2,3,4"), r"v\.csv:5: 5 fields where the header has 4"
    ),
    "a field too few": vectors_case(replaced(5, "u03,1,2"), r"v\.csv:5: 3 fields where the header has 4"),
    "two columns of a name": vectors_case(
        csv_of(header="user,a,b,a"), r'v\.csv:1: two columns are called "a"'
    ),
    "one column": vectors_case("user\nu1\nu2\n", r"v\.csv:1: no separator found"),
    "an id twice": vectors_case(replaced(5, "u00,1,2,3"), r'v\.csv:5: id "u00" is in an earlier row as well'),
    "an empty id": vectors_case(replaced(5, ",1,2,3"), r"v\.csv:5: user is empty"),
    "blanks around an id": vectors_case(
        replaced(5, "u03 ,1,2,3"), r'v\.csv:5: user is "u03 ": blanks around an id'
    ),
    "an id beyond the columns": vectors_case(
        csv_of(), r'v\.csv:1: there is no column "usr"; did you mean', ids="usr"
    ),
    "decimals for ids": vectors_case(
        csv_of([f"{k}.0" for k in range(USERS)]), r'v\.csv: ids look like decimal numbers \("0\.0"\)'
    ),
    "no ids at all": vectors_case(
        csv_of([f"{v:.3f}" for v in AGES], header=""), r"ids look like decimal numbers"
    ),
    "the answer in the vectors": vectors_case(
        csv_of(header="user,a,Age,c"),
        r'v\.csv: column "Age" is an attribute: the attack would read the answer',
        continuous=["age"],
    ),
    "row numbers in the vectors": vectors_case(
        "\n".join([",user,a", *(f"{k},{name},{k / 7:.4f}" for k, name in enumerate(IDS))]),
        r'v\.csv: column "1" has another whole number for every user',
    ),
    # ids that do not fit
    "other people": vectors_case(
        csv_of([f"p{k}" for k in range(USERS)]), r'v\.csv: no ids in common.*"p0".*"u00"'
    ),
    "leading zeros": (
        lambda folder: joined(
            folder,
            put(folder, "v.csv", csv_of([f"{k + 100:05}" for k in range(USERS)])),
            people_of([str(k + 100) for k in range(USERS)]),
        ),
        r"no ids in common.*30 would match but for leading zeros",
    ),
    "upper case": vectors_case(
        csv_of([n.upper() for n in IDS]), r"30 would match but for upper and lower case"
    ),
    "one file counts from 0": (
        lambda folder: joined(
            folder,
            put(folder, "v.csv", csv_of([str(k) for k in range(USERS)])),
            people_of([str(k + 1) for k in range(USERS)]),
        ),
        r"v\.csv: ids run from 0 to 29, those of users\.csv from 1 to 30",
    ),
    "too few in common": vectors_case(
        csv_of([*IDS[:19], *(f"p{k}" for k in range(11))]), r"19 ids in common.*at least 20 are needed"
    ),
    # npy
    "npy without ids": npy_case(VALUES, r"v\.npy: has no ids.*--ids FILE.*--by-position", by_position=False),
    "npy of other length": npy_case(VALUES[:-1], r"--by-position: v\.npy has 29 rows and users\.csv 30"),
    "npy of objects": npy_case(np.array([[None, 1]] * USERS), r"v\.npy: an array of Python objects"),
    "npy of text": npy_case(np.array([["a", "b"]] * USERS), r"v\.npy: holds <U1, not numbers"),
    "npy of truths": npy_case(VALUES > 0, r"v\.npy: holds bool, not numbers"),
    "npy of complex": npy_case(VALUES * 1j, r"v\.npy: holds complex"),
    "npy of records": npy_case(np.zeros(USERS, dtype=[("a", "f4")]), r"v\.npy: holds \[\('a'"),
    "one number a user": npy_case(VALUES[:, 0], r"v\.npy: has shape \[30\]"),
    "three dimensions": npy_case(VALUES[None], r"v\.npy: has shape \[1, 30, 3\]"),
    "no users": npy_case(VALUES[:0], r"v\.npy: has shape \[0, 3\]"),
    "no width": npy_case(VALUES[:, :0], r"v\.npy: has shape \[30, 0\]"),
    "npy with nan": npy_case(SPOILT, r"v\.npy: row 5, column 2 is nan"),
    "npy beyond a float": npy_case(
        VALUES.astype("f8") * 1e300, r"v\.npy: row 1, column 1 is -inf, or too large"
    ),
    "ids inside npy": npy_case(
        np.column_stack([np.arange(USERS)[::-1], VALUES]), r"v\.npy: column 1 has another whole number"
    ),
    "truncated npy": vectors_case(
        bytes_of(VALUES)[:200], r"v\.npy: cannot be read", "v.npy", by_position=True
    ),
    "npy that lies about its size": vectors_case(
        bytes_of(VALUES).replace(b"(30, 3), }" + 9 * b" ", b"(30000000000, 3), }"),
        r"v\.npy: cannot be read",
        "v.npy",
    ),
    "npy with a torn header": vectors_case(
        bytes_of(VALUES).replace(b"(30, 3), }", b"(30, 3,   "), r"v\.npy: cannot be read", "v.npy"
    ),
    "npz of text": vectors_case(zipped("arr_0.npy"), r"v\.npz/arr_0: ", "v.npz"),
    "npz of a pickle": vectors_case(zipped("arr_0.pkl"), r"v\.pt: a pickle, which is never opened", "v.pt"),
    "npz with no users": vectors_case(
        npz_of(a=VALUES, b=VALUES), r"v\.npz: 2 matrices: a, b; choose one with --tensor NAME", "v.npz"
    ),
    "npz without such an array": vectors_case(
        npz_of(a=VALUES), r'--tensor: v\.npz has no tensor "b"', "v.npz", tensor="b"
    ),
    "npz of objects": vectors_case(
        npz_of(users=np.array([{}], dtype=object)), r"v\.npz/users: an array of Python objects", "v.npz"
    ),
    "pickle": vectors_case(b"\x80\x04\x95evil", r"v\.pkl: a pickle, which is never opened", "v.pkl"),
    "a column of ids for npy": npy_case(VALUES, r"v\.npy: has no column of ids", ids="user"),
    "a tensor of csv": vectors_case(csv_of(), r"--tensor: v\.csv has no tensors", tensor="user"),
    # files of ids
    "ids for a file that has some": (
        lambda folder: joined(
            folder, put(folder, "v.csv", csv_of()), ids_file=put(folder, "ids.txt", "\n".join(IDS))
        ),
        r"--ids: v\.csv has ids of its own",
    ),
    "a header in the ids": (
        lambda folder: joined(
            folder, saved(folder, VALUES), ids_file=put(folder, "ids.txt", "\n".join(["user", *IDS]))
        ),
        r"ids\.txt: 31 ids for 30 vectors; is its first line a header\?",
    ),
    "an id twice in the ids": (
        lambda folder: read_ids(put(folder, "ids.txt", "a\nb\na\n")),
        r'ids\.txt:3: "a" is in line 1 as well',
    ),
    "a blank line in the ids": (lambda folder: read_ids(put(folder, "ids.txt", "a\n\nb\n")), r"ids\.txt:2: "),
    "ids as fractions": (
        lambda folder: read_ids(saved(folder, VALUES[:, 0], "i.npy")),
        r"i\.npy: an array of float32",
    ),
    "position although there are ids": vectors_case(
        csv_of(), r"--by-position: v\.csv has ids", by_position=True
    ),
    # parquet
    "parquet of words": parquet_case({**columns_of(), "d": IDS}, r'v\.parquet:1: d is "u00", not a number'),
    "parquet with fractions for ids": parquet_case(
        columns_of(np.arange(USERS) / 2), r'v\.parquet: column "user" holds numbers with a point'
    ),
    "parquet with an id twice": parquet_case(
        columns_of(["u01", *IDS[1:]]), r'v\.parquet:2: id "u01" is in an'
    ),
    "parquet with an empty id": parquet_case(columns_of([None, *IDS[1:]]), r"v\.parquet:1: user is empty"),
    "parquet with a hole": parquet_case(
        {**columns_of(), "b": [None, *VALUES[1:, 1]]}, r"v\.parquet:1: b is empty"
    ),
    "parquet of ragged lists": parquet_case(
        {"user": IDS, "v": [[1.0, 2.0]] * 29 + [[1.0]]},
        r"v\.parquet:30: a list of 1 where the first row has 2",
    ),
    "parquet with a missing list": parquet_case(
        {"user": IDS, "v": [[1.0, 2.0]] * 29 + [None]}, r"v\.parquet:30: a list of 0"
    ),
    "parquet of ids alone": parquet_case({"user": IDS}, r"v\.parquet: no column beside the ids"),
    "damaged parquet": vectors_case(
        b"PAR1 and then nothing PAR1", r"v\.parquet: cannot be read as", "v.parquet"
    ),
    # safetensors
    "several matrices": tensors_case(
        {"a": MATRIX, "b": MATRIX}, r"v\.safetensors: 2 matrices: a, b; choose one with --tensor"
    ),
    "no matrix": tensors_case({"a": MATRIX[:, 0]}, r"v\.safetensors: 0 matrices: none"),
    "no such tensor": tensors_case(
        {"user": MATRIX}, r'--tensor: v\.safetensors has no tensor "usr"', tensor="usr"
    ),
    "a tensor of truths": tensors_case({"a": MATRIX > 0}, r"v\.safetensors: holds torch\.bool"),
    "damaged safetensors": vectors_case(
        b"\xff" * 64, r"v\.safetensors: not a safetensors file", "v.safetensors"
    ),
    # attributes
    "attributes: empty": people_case("", r"users\.csv: the file is empty"),
    "attributes: an id twice": people_case(
        replaced(4, "u00,m,3", people_of()), r'users\.csv:4: id "u00" is in an earlier row'
    ),
    "attributes: no such column": people_case(
        people_of(), r'users\.csv:1: there is no column "gender"; choose one of', attributes=["gender"]
    ),
    "attributes: no such ids": people_case(
        people_of(), r'users\.csv:1: there is no column "uid"', people_id="uid"
    ),
    "attributes: the ids": people_case(
        people_of(), r'--attribute: "user" is the column of ids', attributes=["user"]
    ),
    "attributes: both": people_case(
        people_of(), r'--continuous: "age" is an attribute', attributes=["age"], continuous=["age"]
    ),
    "attributes: a word for an amount": people_case(
        replaced(4, "u02,m,old", people_of()), r'users\.csv:4: age is "old"', continuous=["age"]
    ),
    "attributes: infinite": people_case(
        replaced(4, "u02,m,inf", people_of()), r'users\.csv:4: age is "inf"', continuous=["age"]
    ),
    "attributes: words as amounts": people_case(people_of(), r'users\.csv:2: sex is "m"', continuous=["sex"]),
    "attributes: decimals for ids": people_case(
        people_of([f"{k}.0" for k in range(USERS)]), r"users\.csv: ids look like decimal numbers"
    ),
    "attributes: one value": people_case(
        people_of().replace(",m,", ",f,"), r'attribute "sex" has 1 different values', attributes=["sex"]
    ),
    "attributes: one class of enough users": people_case(
        "user,sex\n" + "".join(f"{name},{'m' if k < 2 else 'f'}\n" for k, name in enumerate(IDS)),
        r"users\.csv: sex is known of 28 joined users, with 1 different values",
        attributes=["sex"],
    ),
    "attributes: almost all unknown": people_case(
        "user,sex\n" + "".join(f"{name},{'fm'[k % 2] if k < 12 else ''}\n" for k, name in enumerate(IDS)),
        r"users\.csv: sex is known of 12 joined users",
        attributes=["sex"],
    ),
    "attributes: nothing to attack": people_case(
        "user,name\n" + "".join(f"{name},{name}\n" for name in IDS),
        r"users\.csv: no column can be an attribute",
    ),
    "attributes: npy": (
        lambda folder: joined(
            folder, put(folder, "v.csv", csv_of()), people_file=saved(folder, VALUES, "u.npy")
        ),
        r"u\.npy: has no names of columns",
    ),
    # places
    "no such file": (lambda folder: joined(folder, folder / "v.csv"), r"v\.csv: no such file"),
    "a folder": (lambda folder: joined(folder, folder), r"is a folder where a file should be"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files_get_one_line(name: str, tmp_path: Path) -> None:
    attempt, said = BAD[name]
    with pytest.raises(BadInput, match=said) as caught:
        attempt(tmp_path)
    assert "\n" not in str(caught.value)
    assert ";" in str(caught.value), "it must also say what to do"


@pytest.mark.parametrize("count", [51, 200])
def test_many_classes_are_refused_where_asked_for(count: int, tmp_path: Path) -> None:
    ids = [f"u{k}" for k in range(5 * count)]
    people = "user,job\n" + "".join(f"{name},{k % count}\n" for k, name in enumerate(ids))
    with pytest.raises(BadInput, match=rf'"job" has {count} different values; 2 to 50.*--continuous job'):
        read_attributes(put(tmp_path, "users.csv", people), attributes=["job"])
    found = read_attributes(put(tmp_path, "users.csv", people))
    assert not found.labels
    assert "--continuous job" in found.notes[0]


def test_a_pipe_is_never_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "v.csv")
    with pytest.raises(BadInput, match="not a plain file"):
        read_vectors(tmp_path / "v.csv")


def test_without_pyarrow_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = parquet(tmp_path, columns_of())
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(BadInput, match=r"not installed; pip install 'veilrec\[parquet\]'"):
        read_vectors(path)


def test_columns_without_names_are_not_the_attributes(tmp_path: Path) -> None:
    people = "\n".join(f"{name},{sex},{age}" for name, sex, age in zip(IDS, SEXES, AGES, strict=True))
    found = joined(tmp_path, put(tmp_path, "v.csv", csv_of(header="")), people, attributes=["2"])
    assert found.classes == {"2": ("f", "m")}


def test_names_of_columns_are_kept(tmp_path: Path) -> None:
    assert joined(tmp_path, put(tmp_path, "v.csv", csv_of())).columns == ("a", "b", "c")
    assert joined(tmp_path, saved(tmp_path, VALUES), by_position=True).columns == ()


ODD = st.text(st.characters(blacklist_categories=("Cs", "Cc", "Zs", "Zl", "Zp")), min_size=1, max_size=8)


@given(
    st.lists(ODD.filter(lambda name: name == name.strip()), min_size=20, max_size=40, unique=True),
    st.randoms(),
)
def test_any_ids_join_with_their_own_rows(ids: list[str], random: Any) -> None:
    import csv
    import tempfile

    values = {name: float(row) + 0.5 for row, name in enumerate(ids)}
    shuffled = random.sample(ids, len(ids))
    with tempfile.TemporaryDirectory() as folder:
        for name, order, head in (
            ("v.csv", ids, ("user", "a", "b")),
            ("u.csv", shuffled, ("user", "age", "n")),
        ):
            with (Path(folder) / name).open("w", newline="", encoding="utf-8") as file:
                writer = csv.writer(file, quoting=csv.QUOTE_ALL)
                writer.writerows([head, *((entry, values[entry], values[entry] / 3) for entry in order)])
        described = read_attributes(Path(folder) / "u.csv", attributes=[], continuous=["age"])
        found = join(read_vectors(Path(folder) / "v.csv"), described)
    assert sorted(found.ids) == sorted(ids)
    assert (
        found.values["age"].tolist() == [values[name] for name in found.ids] == found.vectors[:, 0].tolist()
    )
