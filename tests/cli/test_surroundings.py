"""Commas in numbers, letters that a terminal lacks, a clock that jumps: a run ends with the same bytes."""

from __future__ import annotations

import ast
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.commands import call
from tests.corpus.stock import RECIPE
from tests.test_forbidden import FILES, PACKAGE, aliases, full_name
from veilrec.base.files import digest
from veilrec.cli.arguments import print_json

SAME = ("model.safetensors", "users.safetensors", "metrics.jsonl", "per_user.csv", "transcript.safetensors")
CLOCK = r"time\.(time|time_ns|localtime|gmtime|ctime|strftime)|datetime\.(datetime|date)\.(now|utcnow|today)"
WORDS = r"from time import|import time as|\btime_ns|\btime\.time|(local|gm|c|strf)time|\bnow\(|utcnow|today"
READS_CLOCK = {
    "runs/integrity/checked.py",
    "runs/requests/telling.py",
}  # when a file changed; the date of a receipt
COMMANDS = (
    ("run", "réseau.toml", "--out", "läuft", "-q"),
    ("evaluate", "läuft", "-q"),
    ("recommend", "läuft", "--user", "u0001"),
    ("report", "läuft", "-o", "é.html"),
    ("verify", "läuft"),
    ("evaluate", "läuft", "--json", "-q"),
)
# All commands in one process; sets the locale first, as a program might in which veilrec is a library.
PROGRAM = """
import itertools, locale, sys
surroundings, *words = sys.argv[1:]
if surroundings == "commas":
    locale.setlocale(locale.LC_ALL, "")
    assert f"{1.5:n}" == "1,5"
from veilrec.cli import main
for then, command in itertools.groupby(words, "then".__eq__):
    if not then and (code := main(list(command))):
        sys.exit(code)
"""


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What a run leaves that nothing disturbs."""
    return left_by(tmp_path_factory.mktemp("plain"), [sys.executable])


def left_by(folder: Path, python: list[str], surroundings: str = "", **variables: str) -> dict[str, str]:
    """What commands leave in a folder whose name has letters that not everybody has."""
    place = folder / "ü 東京"
    place.mkdir()
    (place / "réseau.toml").write_text(RECIPE, encoding="utf-8")
    words = [word for command in COMMANDS for word in ("then", *command)]
    done = subprocess.run(
        [*python, "-c", PROGRAM, surroundings, *words],
        cwd=place,
        env={**os.environ, "OMP_NUM_THREADS": "1", **variables},
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b""), done.stderr
    assert b'"run": "l\xc3\xa4uft"' in done.stdout or b'"run": "l\\u00e4uft"' in done.stdout
    assert (place / "é.html").read_text(encoding="utf-8").rstrip().endswith("</html>")
    return {name: digest(place / "läuft" / name).sha256 for name in SAME}


@pytest.fixture(scope="module")
def locales(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Locales with decimal commas; one of them lacks most letters."""
    if shutil.which("localedef") is None:
        pytest.skip("needs localedef")
    folder = tmp_path_factory.mktemp("locales")
    for name, letters in (("de_DE", "UTF-8"), ("tr_TR", "UTF-8"), ("de_DE", "ISO-8859-1")):
        target = folder / (f"{name}.{letters}" if letters == "UTF-8" else name)
        made = ["localedef", "-c", "-i", name, "-f", letters, str(target)]
        subprocess.run(made, capture_output=True, timeout=60, check=False)
        if not target.is_dir():
            pytest.skip(f"localedef has no {name} in {letters}")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", ["de_DE.UTF-8", "tr_TR.UTF-8"])
def test_commas_in_numbers_change_nothing(
    name: str, locales: Path, plain: dict[str, str], tmp_path: Path
) -> None:
    variables = {"LC_ALL": name, "LOCPATH": str(locales)}
    assert left_by(tmp_path, [sys.executable], "commas", **variables) == plain


@pytest.mark.slow
@pytest.mark.parametrize("variables", [{"LC_ALL": "C"}, {"LC_ALL": "POSIX"}, {"LANG": "C", "LC_ALL": ""}])
def test_no_locale_changes_nothing(variables: dict[str, str], plain: dict[str, str], tmp_path: Path) -> None:
    assert left_by(tmp_path, [sys.executable], **variables) == plain


@pytest.mark.slow
def test_no_assertions_and_no_docstrings_change_nothing(plain: dict[str, str], tmp_path: Path) -> None:
    assert left_by(tmp_path, [sys.executable, "-OO", "-B"], PYTHONHASHSEED="7") == plain


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("faketime") is None, reason="needs faketime")
@pytest.mark.parametrize(
    "clock", ["-30y", "+50y", "@1969-12-31 23:00:00", "+0 x-500", "+0 i-0.7", "+0 x1000"]
)
def test_a_clock_that_jumps_changes_nothing(clock: str, plain: dict[str, str], tmp_path: Path) -> None:
    """The clock on the wall; the one that only counts goes on."""
    python = ["faketime", "-f", clock, sys.executable]
    assert left_by(tmp_path, python, FAKETIME_DONT_FAKE_MONOTONIC="1") == plain


def test_a_clock_that_runs_backwards_is_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "recipe.toml").write_text(RECIPE, encoding="utf-8")

    def run(name: str) -> dict[str, str]:
        answer = call(capsys, "run", tmp_path / "recipe.toml", "--out", tmp_path / name)
        assert answer.code == 0
        assert "-" not in re.sub(r"leave-one-out|\S*/\S*", "", answer.err), "no negative seconds"
        timing = json.loads((tmp_path / name / "result.json").read_text(encoding="utf-8"))["timing"]
        assert min(timing.values()) >= 0
        return {file: digest(tmp_path / name / file).sha256 for file in SAME}

    before, count = run("before"), itertools.count()
    for clock, step in (("time", 3600.0), ("time_ns", 3600 * 10**9)):
        monkeypatch.setattr(time, clock, lambda step=step: 4 * step - next(count) * step)
    assert run("after") == before


def test_nothing_that_has_to_end_reads_the_clock_on_the_wall() -> None:
    found = {
        path.relative_to(PACKAGE).as_posix() for path in FILES if clocks(path.read_text(encoding="utf-8"))
    }
    assert found == READS_CLOCK


def clocks(source: str) -> list[str]:
    """What in a file reads the clock on the wall."""
    if not re.search(WORDS, source):  # most of them: nothing to look through
        return []
    tree = ast.parse(source)
    known = aliases(tree)
    names = [full_name(node, known) for node in ast.walk(tree) if isinstance(node, ast.Name | ast.Attribute)]
    return [name for name in names if re.fullmatch(CLOCK, name)]


@pytest.mark.parametrize(
    "source",
    [
        "import time\ntime.time()",
        "from time import time_ns as counted\ncounted()",
        "from datetime import datetime, UTC\ndatetime.now(UTC)",
    ],
)
def test_planted_clocks_are_found(source: str) -> None:
    assert clocks(source)
    assert not clocks("import time\nfrom datetime import datetime\ntime.monotonic(time_ns=1)")


class Narrow:
    """An output that has few letters."""

    def __init__(self, encoding: str) -> None:
        self.encoding, self.said = encoding, ""

    def write(self, text: str) -> int:
        self.said += text
        return len(text)


@pytest.mark.parametrize(
    ("encoding", "said"), [("utf-8", '"東"'), ("ascii", r'"\u6771"'), ("latin-1", r'"\u6771"')]
)
def test_json_loses_no_letter(encoding: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    output = Narrow(encoding)
    monkeypatch.setattr(sys, "stdout", output)
    print_json("東")
    assert output.said.strip() == said
