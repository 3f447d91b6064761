"""Tensors on disk that are read when they are asked for, and no more of them than that."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from veilrec.base.tensors import Lazy, Reader, beneath, rows_of, write

VALUES = {
    "a/x": torch.arange(12).reshape(6, 2),
    "a/b/y": torch.arange(3.0),
    "z": torch.zeros(0, 4),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write(tmp_path / "file", VALUES)
    return tmp_path / "file"


def test_it_is_the_file_as_a_mapping(path: Path) -> None:
    lazy = Lazy(path)
    assert list(lazy) == list(VALUES)
    assert all(torch.equal(lazy[name], value) for name, value in VALUES.items())
    with pytest.raises(KeyError):
        lazy["y"]


@pytest.mark.parametrize("lazily", [True, False])
def test_what_is_beneath_a_prefix_and_some_rows_of_it(path: Path, lazily: bool) -> None:
    inner = beneath(beneath(Lazy(path) if lazily else VALUES, "a/"), "b/")
    assert list(inner) == ["y"]
    assert rows_of(inner, "y", 1, 3).tolist() == [1.0, 2.0]
    assert rows_of(Lazy(path) if lazily else VALUES, "z", 0, 0).shape == (0, 4)


def test_nothing_is_read_that_nobody_asks_for(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    really = Reader.get
    monkeypatch.setattr(
        Reader, "get", lambda self, name, *rows: asked.append(name) or really(self, name, *rows)
    )
    under = beneath(Lazy(path), "a/")
    assert (len(under), "x" in under, asked) == (2, True, [])
    rows_of(under, "x", 0, 1)
    assert asked == ["a/x"]
