"""``veilrec data``: list, show, get and import, as a person or a program calls them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import typer

from tests.cli.commands import call, tree
from veilrec.datasets.delimited import csv
from veilrec.datasets.imported import imported

LOG = "who,film,stars,day\n" + "".join(
    f"{user},f{(user * 7 + item) % 9},{1 + item % 5},2020-01-{item + 1:02d}\n"
    for user in range(8)
    for item in range(5)
)
PEOPLE = "who,sex,age\n" + "".join(f"{user},{'fm'[user % 2]},{20 + 5 * user}\n" for user in range(8))
COLUMNS = ("--user", "who", "--item", "film", "--rating", "stars", "--time", "day")


@pytest.fixture(autouse=True)
def no_other_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VEILREC_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("VEILREC_HOME", str(tmp_path / "home"))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "people.csv").write_text(PEOPLE)
    path = tmp_path / "in" / "My Log.csv"
    path.write_text(LOG)
    return path


def test_import_shows_its_reading_and_stores(
    tmp_path: Path, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    people = log.with_name("people.csv")
    code, out, err = call(
        capsys, "data", "import", log, *COLUMNS, "--attributes", people, "--borders", "age=35,45", "--yes"
    )
    assert code == 0
    assert "user = who" in err
    assert "item = film" in err
    assert "8 users, 9 items, 40 events" in out
    assert "35 to 45" in out
    assert 'data.name = "my-log"' in out
    stored = imported(tmp_path / "data" / "my-log")
    direct = csv(log, user="who", item="film", rating="stars", time="day")
    assert torch.equal(stored.item, direct.item)
    assert stored.classes["age"] == ("under 35", "35 to 45", "over 45")

    code, out, _ = call(capsys, "data", "list")
    assert code == 0
    assert all(name in out for name in ("synthetic", "ml-100k", "ml-1m", "my-log"))
    code, out, _ = call(capsys, "data", "show", "MyLog")
    assert code == 0
    assert "40 events" in out
    assert "2020-01-01" in out


def test_import_numbers_as_they_are(tmp_path: Path, log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = ("--attributes", log.with_name("people.csv"), "--continuous", "age", "--yes")
    code, out, _ = call(capsys, "data", "import", log, *COLUMNS, *told)
    assert code == 0
    assert "continuous" in out
    assert imported(tmp_path / "data" / "my-log").values["age"].tolist() == [20.0 + 5 * n for n in range(8)]
    code, _, err = call(capsys, "data", "import", log, *COLUMNS, *told, "--attribute", "age", "--replace")
    assert code == 2
    assert "choose one of the two" in err


def test_json_for_machines(tmp_path: Path, log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(capsys, "data", "import", log, *COLUMNS, "--name", "toy", "--json")
    about = json.loads(out)
    assert (code, err) == (0, "")
    assert about["stored"] == str(tmp_path / "data" / "toy")
    assert about["reading"]["columns"] == {"user": "who", "item": "film", "rating": "stars", "time": "day"}
    shown = json.loads(call(capsys, "data", "show", "toy", "--json").out)
    assert shown == {key: value for key, value in about.items() if key not in ("reading", "stored")}
    listed = {row["name"]: row for row in json.loads(call(capsys, "data", "list", "--json").out)}
    assert (listed["toy"]["users"], listed["toy"]["found"], listed["ml-1m"]["found"]) == (8, True, False)


def test_dry_run_stores_nothing(tmp_path: Path, log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = tree(tmp_path)
    code, out, err = call(capsys, "data", "import", log, *COLUMNS, "--dry-run")
    assert code == 0
    assert "40 events" in out
    assert "Nothing was stored" in err
    assert tree(tmp_path) == before


def test_a_person_is_asked(
    tmp_path: Path, log: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    answers = iter([False, True])
    monkeypatch.setattr(typer, "confirm", lambda *_, **__: next(answers))
    assert "Nothing was stored" in call(capsys, "data", "import", log, *COLUMNS).err
    assert not (tmp_path / "data").exists()
    assert call(capsys, "data", "import", log, *COLUMNS).code == 0
    assert (tmp_path / "data" / "my-log").is_dir()


def test_import_of_atomic_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "toy"
    folder.mkdir()
    (folder / "toy.inter").write_text("user_id:token\titem_id:token\n1\ta\n2\tb\n")
    (folder / "toy.user").write_text("user_id:token\tgender:token\n1\tF\n2\tM\n")
    for path in (folder, folder / "toy.inter"):
        assert call(capsys, "data", "import", path, "--replace", "--yes").code == 0
        assert list(imported(tmp_path / "data" / "toy").attributes) == ["gender"]


def test_replace_only_when_told(tmp_path: Path, log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("data", "import", log, *COLUMNS, "--name", "toy")
    assert call(capsys, *arguments).code == 0
    before = tree(tmp_path)
    refused = call(capsys, *arguments)
    assert (refused.code, len(refused.err.splitlines())) == (2, 1)
    assert "pass --replace" in refused.err
    assert tree(tmp_path) == before
    assert call(capsys, *arguments, "--replace", "--rating", "-").code == 0
    assert imported(tmp_path / "data" / "toy").rating is None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), r"My Log.csv:1: no column is known to hold the users; name it with --user"),
        ((*COLUMNS, "--user", "whom"), 'My Log.csv:1: there is no column "whom"; did you mean "who"?'),
        ((*COLUMNS, "--rating", "film"), 'column "film" cannot be both'),
        ((*COLUMNS, "--yes", "--dry-run"), "--yes: contradicts --dry-run"),
        ((*COLUMNS, "--name", "../x"), '--name: "../x" is no name'),
        ((*COLUMNS, "--name", "ML_100K"), '--name: "ML_100K" is a dataset of veilrec'),
        ((*COLUMNS, "--borders", "age"), '--borders: "age" is not NAME=NUMBERS'),
        ((*COLUMNS, "--attributes", "gone.csv"), "gone.csv: no such file"),
        ((*COLUMNS, "--sep", ";"), 'the separator may be ","'),
        ((*COLUMNS, "--encoding", "klingon"), '--encoding: no encoding is called "klingon"'),
        ((*COLUMNS, "--time-format", "%Y"), 'My Log.csv:2: day is "2020-01-01"'),
        ((*COLUMNS, "--colour", "red"), "No such option"),
        ((*COLUMNS, "--no-header", "--user", "1"), 'My Log.csv:1: there is no column "film"'),
    ],
)
def test_bad_arguments(
    tmp_path: Path, log: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    before = tree(tmp_path)
    code, out, err = call(capsys, "data", "import", log, *arguments)
    last = err.splitlines()[-1]
    assert code == 2
    assert last.startswith("veilrec: error: ")
    assert said in last
    assert "; " in last
    assert out == ""
    assert tree(tmp_path) == before


def test_a_read_only_place(tmp_path: Path, log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("in the way")
    code, _, err = call(capsys, "data", "import", log, *COLUMNS, "--data-dir", tmp_path / "file")
    assert code == 2
    assert "cannot be written" in err


def test_a_damaged_dataset_is_listed_as_that(
    tmp_path: Path, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call(capsys, "data", "import", log, *COLUMNS, "--name", "toy")
    card = tmp_path / "data" / "toy" / "dataset.json"
    card.write_text(card.read_text().replace('"users": 8', '"users": 9'))
    rows = {row["name"]: row for row in json.loads(call(capsys, "data", "list", "--json").out)}
    assert "damaged" in rows["toy"]["terms"]
    assert call(capsys, "data", "show", "toy").code == 4


def test_show_the_embedded_world(capsys: pytest.CaptureFixture[str]) -> None:
    about = json.loads(call(capsys, "data", "show", "synthetic", "--json").out)
    assert {name: len(classes) for name, classes in about["attributes"].items()} == {
        "gender": 2,
        "age": 3,
        "region": 7,
    }
    assert about["first_rows"][0]["user"] == "u0001"
    assert (about["values"]["age in years"]["known"], about["values"]["age in years"]["least"]) == (300, 18)
    listed = json.loads(call(capsys, "data", "list", "--json").out)[0]
    assert all(listed[name] == about[name] for name in ("users", "items", "events"))


def test_show_and_get_what_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = call(capsys, "data", "show", "ml-1m")
    assert missing.code == 2
    assert "veilrec data get ml-1m" in missing.err
    assert "did you mean" in call(capsys, "data", "show", "synthetical").err
    assert call(capsys, "data", "get", "netflix").code == 2
    assert not (tmp_path / "data").exists()


def test_help_needs_neither_torch_nor_pandas() -> None:
    program = (
        "import sys; from veilrec.cli import main; main(['data', 'import', '--help']); "
        "sys.exit(bool({'torch', 'pandas', 'numpy'} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, timeout=60)
