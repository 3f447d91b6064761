"""Where datasets are looked for, and what is said where they are not there."""

from __future__ import annotations

import builtins
import hashlib
import sys
from pathlib import Path
from typing import Any

import pytest

from veilrec.datasets.common import places
from veilrec.datasets.imported import write
from veilrec.datasets.synthetic import synthetic
from veilrec.errors import BadInput


@pytest.fixture(autouse=True)
def no_other_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VEILREC_DATA_DIR", raising=False)
    monkeypatch.setenv("VEILREC_HOME", str(tmp_path / "home"))


def test_the_order_of_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert places.places() == [tmp_path / "home" / "data"]
    monkeypatch.setenv("VEILREC_DATA_DIR", str(tmp_path / "mine"))
    assert places.places(tmp_path / "told") == [
        tmp_path / "told",
        tmp_path / "mine",
        tmp_path / "home" / "data",
    ]
    for name in ("mine", "told"):
        (tmp_path / name / "ml-100k").mkdir(parents=True)
        assert places.find("ml_100k", tmp_path / "told") == tmp_path / name / "ml-100k"


def test_without_platformdirs_the_cache_is_the_usual_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VEILREC_HOME")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with_it = places.places()
    monkeypatch.setitem(sys.modules, "platformdirs", None)
    assert places.places() == [tmp_path / "veilrec"]
    if sys.platform == "linux":
        assert with_it == [tmp_path / "veilrec"]


@pytest.mark.parametrize("entry", ["ml-1m.zip", "ML_1M", "ml-1m"])
def test_folder_or_zip_whatever_its_case(tmp_path: Path, entry: str) -> None:
    if entry.endswith(".zip"):
        (tmp_path / entry).write_bytes(b"PK")
    else:
        (tmp_path / entry).mkdir()
    assert places.find("ml-1m", tmp_path) == tmp_path / entry


def test_the_place_itself_may_be_the_folder(tmp_path: Path) -> None:
    (tmp_path / "u.data").write_text("")
    assert places.find("ml-100k", tmp_path) == tmp_path
    with pytest.raises(BadInput):
        places.find("ml-1m", tmp_path)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("ml-100k", "veilrec data get ml-100k"),
        ("mine", "veilrec data list"),
        ("../x", "not found"),
        ("", "not found"),
    ],
)
def test_not_found_says_where_it_looked_and_what_to_do(tmp_path: Path, name: str, said: str) -> None:
    with pytest.raises(BadInput, match=said) as caught:
        places.find(name, tmp_path / "told")
    assert str(tmp_path / "told") in str(caught.value)
    assert str(tmp_path / "home") in str(caught.value)


def test_stored_datasets_by_name(tmp_path: Path) -> None:
    log = synthetic(users=20, items=30, least=3)
    write(log, tmp_path / "home" / "data" / "toy")
    write(log, tmp_path / "told" / "toy")
    write(log, tmp_path / "home" / "data" / "other")
    (tmp_path / "told" / "empty").mkdir()
    found = places.stored(tmp_path / "told")
    assert found == {"toy": tmp_path / "told" / "toy", "other": tmp_path / "home" / "data" / "other"}
    assert places.find("Toy", tmp_path / "told") == tmp_path / "told" / "toy"


class Server:
    """Stands for the network: gives some bytes, or fails."""

    def __init__(self, content: bytes | Exception) -> None:
        self.content, self.asked = content, 0

    def __call__(self, address: str, output: Any, pooch: object, **_: object) -> None:
        self.asked += 1
        if isinstance(self.content, Exception):
            raise self.content
        Path(output).write_bytes(self.content)


@pytest.fixture
def downloader(monkeypatch: pytest.MonkeyPatch) -> Any:
    pooch = pytest.importorskip("pooch")

    def install(content: bytes | Exception) -> Server:
        server = Server(content)
        monkeypatch.setattr(pooch, "HTTPDownloader", lambda **options: options["timeout"] and server)
        return server

    return install


def test_get_keeps_what_matches_its_checksum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, downloader: Any
) -> None:
    content = b"PK and so on"
    known = places.Published(
        "https://example.org/ml-1m.zip", "none", (1, 1, 1), hashlib.md5(content).hexdigest(), "x"
    )
    monkeypatch.setitem(places.PUBLISHED, "ml-1m", known)
    server = downloader(content)
    for _ in range(2):
        path = places.get("ML_1M", tmp_path)
        assert path.read_bytes() == content
    assert server.asked == 1
    assert places.find("ml-1m", tmp_path) == path


@pytest.mark.parametrize("content", [b"an error page", ConnectionError("no route"), TimeoutError("too slow")])
def test_get_says_what_to_do_by_hand(tmp_path: Path, downloader: Any, content: bytes | Exception) -> None:
    downloader(content)
    with pytest.raises(BadInput, match=r"by hand and put it into") as caught:
        places.get("ml-100k", tmp_path / "data")
    assert "files.grouplens.org" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_get_refuses_what_nobody_publishes(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="ml-100k, ml-1m"):
        places.get("netflix", tmp_path)


def test_get_without_pooch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = builtins.__import__

    def missing(name: str, *rest: Any, **named: Any) -> Any:
        if name == "pooch":
            raise ImportError(name)
        return found(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(BadInput, match="pip install pooch"):
        places.get("ml-100k", tmp_path)
