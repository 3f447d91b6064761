"""Anyone's files: models as other libraries save them, and texts written as somebody says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from veilrec.base import tensors
from veilrec.datasets.reading.layout import FileFormat
from veilrec.errors import BadInput
from veilrec.lab.anyone.files import VectorFiles
from veilrec.lab.match_ids import Audience

USERS = 40
IDS = [f"u{k:02}" for k in range(USERS)]
VALUES = np.sin(np.arange(USERS * 3, dtype=np.float32)).reshape(USERS, 3)
AGES = [20 + k for k in range(USERS)]
PEOPLE = "\n".join(f"{name}|{age}|{'MF'[k % 2]}" for k, (name, age) in enumerate(zip(IDS, AGES, strict=True)))


@pytest.fixture
def users(tmp_path: Path) -> Path:
    """MovieLens' way: no header, and bars."""
    path = tmp_path / "u.user"
    path.write_text(PEOPLE)
    return path


def read(vectors: Path, users: Path, **more: object) -> Audience:
    return VectorFiles(attributes=["3"], **more).read(vectors, users)  # type: ignore[arg-type]


def test_a_model_of_implicit_is_read_as_it_was_saved(tmp_path: Path, users: Path) -> None:
    np.savez(
        tmp_path / "als.npz",
        user_factors=VALUES,
        item_factors=np.ones((7, 3), np.float32),
        factors=3,
        dtype="float32",
    )
    found = read(tmp_path / "als.npz", users, by_position=True)
    assert np.array_equal(found.vectors, VALUES)
    again = read(tmp_path / "als.npz", users, by_position=True, tensor="user_factors")
    assert np.array_equal(again.vectors, VALUES)


def test_a_model_of_hugging_face_is_read_in_its_own_precision(tmp_path: Path, users: Path) -> None:
    import safetensors.torch

    model = {
        "user_embedding.weight": torch.from_numpy(VALUES).bfloat16(),
        "item_embedding.weight": torch.zeros(7, 3, dtype=torch.bfloat16),
        "layers.0.weight": torch.zeros(3, 3, dtype=torch.float16),
    }
    safetensors.torch.save_file(model, tmp_path / "model.safetensors", metadata={"format": "pt"})
    found = read(tmp_path / "model.safetensors", users, by_position=True)
    assert np.array_equal(found.vectors, model["user_embedding.weight"].float().numpy())


@pytest.mark.parametrize("name", ["user_id", None])
def test_the_index_of_a_frame_is_its_ids(name: str | None, tmp_path: Path, users: Path) -> None:
    """pandas writes it behind all other columns, and calls one without a name by a name of its own (B5)."""
    frame = pd.DataFrame(VALUES, columns=["f0", "f1", "f2"], index=pd.Index(IDS, name=name))
    frame.iloc[::-1].to_parquet(tmp_path / "v.parquet")
    found = read(tmp_path / "v.parquet", users)
    assert found.ids == IDS
    assert np.array_equal(found.vectors, VALUES)
    assert found.columns == ("f0", "f1", "f2")


def test_numbers_of_rows_that_a_filter_left_are_nobody_s_ids(tmp_path: Path, users: Path) -> None:
    frame = pd.DataFrame(VALUES, columns=["f0", "f1", "f2"]).assign(name=IDS).drop(3)
    frame.to_parquet(tmp_path / "v.parquet")
    found = read(tmp_path / "v.parquet", users, vectors_id="name")
    assert found.ids == [one for one in IDS if one != "u03"]
    assert found.columns == ("f0", "f1", "f2")


def test_a_file_without_names_is_taken_by_numbers_and_ages_are_cut(tmp_path: Path, users: Path) -> None:
    np.save(tmp_path / "v.npy", VALUES)
    found = read(tmp_path / "v.npy", users, by_position=True, borders={"2": (30, 50)})
    assert set(found.classes) == {"2", "3"}
    assert found.classes["2"] == ("under 30", "30 to 50", "over 50")
    assert np.bincount(found.labels["2"]).tolist() == [10, 21, 9]


def test_columns_get_names_where_a_file_has_none(tmp_path: Path, users: Path) -> None:
    np.save(tmp_path / "v.npy", VALUES)
    written = FileFormat(names=("id", "age", "sex"))
    files = VectorFiles(attributes=["sex"], borders={"age": (30,)}, by_position=True, written=written)
    found = files.read(tmp_path / "v.npy", users)
    assert found.ids == IDS
    assert set(found.classes) == {"sex", "age"}
    for names, header, said in (
        (("id", "age"), None, r"--columns: 2 names for the 3 columns of .*u\.user; name each"),
        (("id", "id", "sex"), None, r'--columns:1: two columns are called "id"'),
        (("id", "age", "sex"), True, "--columns: contradicts --header; leave one out"),
    ):
        with pytest.raises(BadInput, match=said):
            VectorFiles(written=FileFormat(names=names, header=header)).described(users)


def test_a_text_is_read_as_somebody_says(tmp_path: Path) -> None:
    """A header that looks like a row, letters of another encoding, and a separator nobody guesses."""
    np.save(tmp_path / "v.npy", VALUES)
    rows = "\n".join(f"{name}~{'MÜ'[k % 2]}" for k, name in enumerate(IDS))
    (tmp_path / "users.txt").write_bytes(f"Straße~sex\n{rows}\n".encode("latin-1"))
    files = VectorFiles(
        attributes=["sex"],
        by_position=True,
        written=FileFormat(separator="~", header=True, encoding="latin-1"),
    )
    found = files.read(tmp_path / "v.npy", tmp_path / "users.txt")
    assert found.classes["sex"] == ("M", "Ü")
    with pytest.raises(BadInput, match=r"users\.txt:1: .*is not UTF-8"):
        VectorFiles(by_position=True).read(tmp_path / "v.npy", tmp_path / "users.txt")


def test_a_name_in_a_file_without_a_header_gets_the_way_out(tmp_path: Path, users: Path) -> None:
    np.save(tmp_path / "v.npy", VALUES)
    said = r'u\.user:1: there is no column "gender": read as a file without a header; name columns by number'
    with pytest.raises(BadInput, match=said):
        VectorFiles(attributes=["gender"], by_position=True).read(tmp_path / "v.npy", users)


def test_parquet_is_not_told_how_it_is_written(tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", VALUES)
    pd.DataFrame({"id": IDS, "age": AGES}).to_parquet(tmp_path / "u.parquet")
    with pytest.raises(BadInput, match=r"u\.parquet: is Parquet, which says itself how it is written"):
        VectorFiles(written=FileFormat(header=True)).read(tmp_path / "v.npy", tmp_path / "u.parquet")


def test_a_tensor_is_chosen_where_several_are_of_users(tmp_path: Path, users: Path) -> None:
    both = {"user_a": torch.from_numpy(VALUES), "user_b": torch.from_numpy(2 * VALUES)}
    tensors.write(tmp_path / "v.safetensors", both)
    with pytest.raises(BadInput, match="2 matrices: user_a, user_b; choose one with --tensor NAME"):
        read(tmp_path / "v.safetensors", users, by_position=True)
    found = read(tmp_path / "v.safetensors", users, by_position=True, tensor="user_b")
    assert np.array_equal(found.vectors, 2 * VALUES)
